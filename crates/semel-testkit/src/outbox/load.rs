//! Many writers at once.

use std::sync::{Arc, Mutex};

use semel::once::Error as OnceError;
use semel::{Error, Event, EventId, Execution, Fingerprint, Key, Reply, Scope, Semel, Tx};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::dice::Dice;
use super::harness::Harness;
use super::lab::Lab;

/// How many write at once.
const WRITERS: u32 = 16;

/// How many ordering keys have a counter.
pub(super) const COUNTED: u32 = 4;

/// Writers at work. Each transaction counts a row up and emits what it counted under the row's name, so that the order
/// in which the transactions went is written in the events; and it emits to a key that no row orders.
pub(super) struct Load {
    writers: JoinHandle<Vec<EventId>>,
    ended: watch::Receiver<bool>,
}

impl Load {
    /// Starts writing `rounds` transactions per writer. One in eight is refused, so that nothing of it may appear.
    pub(super) fn start<H: Harness>(lab: &Lab<H>, rounds: u32) -> Load {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let (semel, scope, fingerprint) = (lab.semel.clone(), lab.scope.clone(), lab.fingerprint);
            writers.spawn(async move {
                let mut dice = Dice::new(u64::from(writer));
                let mut ids = Vec::new();
                for _ in 0..rounds {
                    ids.extend(write::<H>(&semel, &scope, &fingerprint, &mut dice).await);
                }
                ids
            });
        }
        let (end, ended) = watch::channel(false);
        let writers = tokio::spawn(async move {
            let ids = writers.join_all().await.concat();
            end.send_replace(true);
            ids
        });
        Load { writers, ended }
    }

    /// Tells whether the writers have ended, to somebody who reads meanwhile.
    pub(super) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.clone()
    }

    /// Waits for the writers, and returns the ids of everything that was committed.
    pub(super) async fn committed(self) -> Vec<EventId> {
        self.writers.await.unwrap()
    }
}

/// The name of a counter and its ordering key.
pub(super) fn counted(n: u32) -> String {
    format!("counted-{n}")
}

async fn write<H: Harness>(
    semel: &Semel<H::Store>,
    scope: &Scope,
    fingerprint: &Fingerprint,
    dice: &mut Dice,
) -> Vec<EventId> {
    let counter = counted(u32::try_from(dice.below(COUNTED.into())).unwrap());
    let others = [0, 1].map(|_| format!("free-{}", dice.below(8)));
    let status = if dice.below(8) == 0 { 402 } else { 201 };
    let padding = "x".repeat(dice.pick(2_000));
    let run = Arc::new(Mutex::new(None::<Execution>));
    let ran = run.clone();
    let work = async move |tx: &mut <H::Store as semel::Store>::Tx| {
        *ran.lock().unwrap() = Some(tx.execution());
        let n = H::count_up(tx, &counter).await?;
        tx.emit(Event::new(["even", "odd"][usize::from(n % 2 == 1)], &counter, "counted", &(n, &padding)).unwrap());
        for other in &others {
            tx.emit(Event::new("even", other, "free", &(0, &padding)).unwrap());
        }
        Ok::<Reply, Error>(Reply::new(status, "done").unwrap())
    };
    match semel.once(scope, &Key::random(), fingerprint, work).await {
        Ok(outcome) if outcome.reply().status() == 201 => {
            let execution = run.lock().unwrap().unwrap();
            (0..3).map(|ordinal| EventId::derive(execution, ordinal)).collect()
        }
        Ok(_) => Vec::new(),
        Err(OnceError::Store(error)) => panic!("a writer got {error:?}"),
        Err(_) => panic!("a new key was taken"),
    }
}
