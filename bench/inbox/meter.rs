//! What is measured while messages are applied.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use semel_bench::processor::{PerEvent, Used};
use serde::Serialize;

use crate::bench::Bench;
use crate::business::Business;

/// What one measurement came to.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measured {
    pub(crate) messages_per_second: f64,
    pub(crate) messages_per_commit: f64,
    /// Bytes of write-ahead log, where the store tells.
    pub(crate) journal_bytes: Option<f64>,
    /// Processor time per message.
    pub(crate) processor: PerEvent,
    /// How often a tier could not answer in time.
    pub(crate) troubles: u64,
}

/// What those who apply messages count.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    messages: AtomicU64,
    commits: AtomicU64,
    ended: AtomicBool,
}

impl Tally {
    /// So many messages were settled by one commit.
    pub(crate) fn committed(&self, messages: u64) {
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Tells everybody to end.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// Where everything stood at some time.
struct Reading {
    at: Instant,
    messages: u64,
    commits: u64,
    journal: Option<u64>,
    used: Used,
}

impl Reading {
    async fn take<S: Business>(bench: &Bench, store: &S, tally: &Tally) -> Result<Reading> {
        let journal = store.journal_bytes().await?;
        Ok(Reading {
            at: Instant::now(),
            messages: tally.messages(),
            commits: store.commits().unwrap_or_else(|| tally.commits.load(Ordering::Relaxed)),
            journal,
            used: Used::now(bench.stage.postmaster),
        })
    }
}

/// Watches messages being applied, after a while in which connections and statements are made ready.
pub(crate) async fn observe<S: Business>(bench: &Bench, store: &S, tally: &Tally) -> Result<Measured> {
    tokio::time::sleep(bench.options.warm_up()).await;
    let before = Reading::take(bench, store, tally).await?;
    tokio::time::sleep(bench.options.measured()).await;
    let after = Reading::take(bench, store, tally).await?;
    let messages = after.messages - before.messages;
    if messages == 0 {
        bail!("nothing was applied: measure for longer");
    }
    let each = |before: u64, after: u64| after.saturating_sub(before) as f64 / messages as f64;
    let journal = before.journal.zip(after.journal);
    Ok(Measured {
        messages_per_second: rate(messages, after.at - before.at),
        messages_per_commit: messages as f64 / after.commits.saturating_sub(before.commits).max(1) as f64,
        journal_bytes: journal.map(|(before, after)| each(before, after)),
        processor: after.used.since(before.used, messages),
        troubles: 0,
    })
}

/// So many in this time, per second.
pub(crate) fn rate(messages: u64, time: Duration) -> f64 {
    messages as f64 / time.as_secs_f64().max(f64::EPSILON)
}
