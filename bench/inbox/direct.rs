//! Workers who apply messages by calling the library, or without it.

use std::sync::Arc;

use anyhow::{Result, bail};
use semel::{Consumed, Consumer, Fate, Semel};
use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::business::{Bare, Business};
use crate::case::{Direct, Proof};
use crate::load::{Asked, Numbered};
use crate::meter::{Measured, Tally, observe};

/// Measures a case. Everything that was counted has to be in the store, once.
pub(crate) async fn measure<S: Business>(bench: &Bench, store: &S, direct: Direct) -> Result<Measured> {
    let tally = Arc::new(Tally::default());
    let mut workers = JoinSet::new();
    for worker in 0..direct.workers {
        let (store, tally) = (store.clone(), Arc::clone(&tally));
        match direct.proof {
            Proof::Nothing => workers.spawn(without_inbox(store, direct, worker, tally)),
            _ => workers.spawn(with_inbox(store, direct, worker, tally)),
        };
    }
    let measured = observe(bench, store, &tally).await;
    tally.end();
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    let (counted, applied) = (store.counted().await?, tally.messages());
    if (counted.receipts, counted.different, counted.changes) != (applied, applied, applied) {
        bail!("{applied} messages were applied, and the store has {counted:?}");
    }
    measured
}

/// The messages of a worker: of all that there are, those that are its own.
fn messages(direct: Direct, worker: u64) -> impl Iterator<Item = Vec<Numbered>> {
    (0..).map(move |batch: u64| {
        let own = batch * direct.batch..(batch + 1) * direct.batch;
        own.map(|own| Numbered(own * direct.workers + worker)).collect()
    })
}

async fn without_inbox<S: Business>(store: S, direct: Direct, worker: u64, tally: Arc<Tally>) -> Result<()> {
    let mut bare = store.without_inbox().await?;
    for messages in messages(direct, worker) {
        if tally.is_ended() {
            break;
        }
        bare.apply(&messages, direct.sending).await?;
        tally.committed(direct.batch);
    }
    Ok(())
}

async fn with_inbox<S: Business>(store: S, direct: Direct, worker: u64, tally: Arc<Tally>) -> Result<()> {
    let semel = Semel::new(store);
    let consumer = Consumer::new("bench")?;
    for messages in messages(direct, worker) {
        if tally.is_ended() {
            break;
        }
        let asked: Vec<Asked> = messages.iter().map(|message| message.asked(direct.proof)).collect::<Result<_>>()?;
        let sending = direct.sending;
        if let [only] = asked.as_slice() {
            let message = only.message;
            let effect = async move |tx: &mut S::Tx| S::charge(tx, message, sending).await;
            let consumed = semel.consume(&consumer, only.as_ref(), effect).await?;
            if consumed != Consumed::Applied(()) {
                bail!("a message that nobody had seen was {consumed:?}");
            }
        } else {
            let effect = async move |tx: &mut S::Tx, asked: &Asked| S::charge(tx, asked.message, sending).await;
            let fates = semel.consume_all(&consumer, &asked, effect).await?;
            if let Some(fate) = fates.iter().find(|fate| !matches!(fate, Fate::Applied)) {
                bail!("a message that nobody had seen was {fate:?}");
            }
        }
        tally.committed(direct.batch);
    }
    Ok(())
}
