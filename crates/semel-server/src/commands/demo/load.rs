//! Many clients that retry in a hurry, while the processes that serve them are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;

use super::LOOK_EVERY;
use super::client::{Intent, Note, Payments};
use super::progress::Progress;
use super::stage::Stage;

/// How many clients there are at once.
const CLIENTS: usize = 64;

/// Who is killed, in this order, spread over the run.
const VICTIMS: [Victim; 7] =
    [Victim::Server, Victim::Server, Victim::Consumer, Victim::Server, Victim::Relay, Victim::Server, Victim::Server];

#[derive(Debug, Clone, Copy)]
enum Victim {
    Server,
    Relay,
    Consumer,
}

/// What clients share.
#[derive(Debug)]
struct Work {
    next: AtomicU32,
    last: u32,
    done: AtomicU32,
}

/// Charges every intent from `first` to `last`, each until it is answered, and kills processes under way.
pub(super) async fn run(stage: &mut Stage, first: u32, last: u32, progress: &Progress) -> Result<Vec<Note>> {
    let total = last + 1 - first;
    progress.scene(&format!("4  {total} intents from {CLIENTS} impatient clients, with kill -9 along the way"));
    let work = Arc::new(Work { next: AtomicU32::new(first), last, done: AtomicU32::new(0) });
    let (mut clients, mut notes) = (JoinSet::new(), Vec::new());
    let payments = stage.payments();
    for _ in 0..CLIENTS {
        clients.spawn(client(payments.clone(), Arc::clone(&work)));
    }
    let (mut killed, victims) = (0, u32::try_from(VICTIMS.len())?);
    while work.done.load(Ordering::Relaxed) < total {
        let done = work.done.load(Ordering::Relaxed);
        progress.bar(done, total, "answered");
        let due = total / (victims + 1) * (killed + 1);
        match VICTIMS.get(killed as usize) {
            Some(victim) if done >= due => {
                kill(stage, *victim, done, progress).await?;
                killed += 1;
            }
            _ => tokio::time::sleep(LOOK_EVERY).await,
        }
        // One that failed has something to say that the others do not.
        while let Some(ended) = clients.try_join_next() {
            notes.extend(ended??);
        }
    }
    while let Some(ended) = clients.join_next().await {
        notes.extend(ended??);
    }
    progress.fact(&format!("all {total} answered"));
    Ok(notes)
}

async fn kill(stage: &mut Stage, victim: Victim, done: u32, progress: &Progress) -> Result<()> {
    match victim {
        Victim::Server => {
            stage.kill_server().await?;
            stage.start_server().await?;
            progress.fact(&format!("after {done} answers: killed the payments service and started it again"));
        }
        Victim::Relay => {
            stage.kill_relay().await?;
            stage.start_relay().await?;
            progress.fact(&format!("after {done} answers: killed the relay and started it again"));
        }
        Victim::Consumer => {
            stage.kill_consumer().await?;
            stage.start_consumer().await?;
            progress.fact(&format!("after {done} answers: killed the consumer and started it again"));
        }
    }
    Ok(())
}

/// Takes one intent after the other.
async fn client(payments: Payments, work: Arc<Work>) -> Result<Vec<Note>> {
    let mut notes = Vec::new();
    loop {
        let number = work.next.fetch_add(1, Ordering::Relaxed);
        if number > work.last {
            return Ok(notes);
        }
        notes.push(charge(&payments, Intent(number)).await?);
        work.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// One intent, in one of four manners, the same in every run.
async fn charge(payments: &Payments, intent: Intent) -> Result<Note> {
    let mut note = Note::default();
    let dice = scattered(intent.0);
    match dice % 4 {
        // Stops waiting after a few milliseconds, whatever the service does with it, and asks again.
        0 => {
            let patience = Duration::from_micros(500 + dice / 4 % 8000);
            payments.attempt(intent, patience, &mut note).await?;
        }
        // Two at the same moment.
        1 => payments.twins(intent, &mut note).await?,
        _ => {}
    }
    if note.charges.is_empty() {
        payments.charge(intent, &mut note).await?;
    }
    // Has its answer, and asks again.
    if dice % 4 == 2 {
        payments.charge(intent, &mut note).await?;
    }
    Ok(note)
}

/// Numbers that follow each other become ones that do not: the last step of SplitMix64.
fn scattered(number: u32) -> u64 {
    let number = u64::from(number);
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
