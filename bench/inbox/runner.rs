//! The runner, with tiers and without.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use semel::runner::{Failure, Settings};
use semel::tier::Filter;
use semel::{Consumer, Handler, Message, Runner, Semel};
use semel_brokers::redis::RedisTier;
use tokio::sync::oneshot;

use crate::bench::Bench;
use crate::business::Business;
use crate::case::{Run, Sending, Tier};
use crate::load::{Numbered, PARTITIONS};
use crate::memory::{Counts, Memory};
use crate::meter::{Measured, observe};

/// How many ids a filter remembers at least.
const REMEMBERED: usize = 1_000_000;

/// The work of a message.
struct Charges;

impl<S: Business> Handler<S> for Charges {
    async fn apply(&self, tx: &mut S::Tx, message: &Message) -> Result<(), Failure> {
        let number = message.header("number").and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| Failure::hopeless("the message has no number"))?;
        Ok(S::charge(tx, Numbered(number), Sending::Awaited).await?)
    }
}

/// Measures a case. Each message that was acknowledged has to be in the store once, however often it came.
pub(crate) async fn measure<S: Business>(bench: &Bench, store: &S, run: Run) -> Result<Measured> {
    let counts = Arc::new(Counts::default());
    let source = Memory::new(run.again, bench.options.payload_bytes, Arc::clone(&counts));
    let settings = Settings {
        recognition: run.by,
        batch: run.batch,
        workers: usize::try_from(PARTITIONS)?,
        ..Settings::default()
    };
    let mut runner = Runner::new(Semel::new(store.clone()), source, Charges, Consumer::new("bench")?, settings)?;
    let mut redis = None;
    match run.tier {
        Tier::Off => {}
        Tier::Filter => runner = runner.with_tier(Arc::new(Filter::new(REMEMBERED, 0.01))),
        Tier::Redis => {
            let tier = Arc::new(RedisTier::connect(&bench.cache_url()?).await?);
            redis = Some(Arc::clone(&tier));
            runner = runner.with_tier(tier);
        }
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move { runner.run(async { drop(stopped.await) }).await });
    let measured = observe(bench, store, &counts.tally).await;
    drop(stop);
    running.await.context("the runner panicked")??;
    let (counted, different) = (store.counted().await?, counts.different.load(Ordering::Relaxed));
    if (counted.receipts, counted.different, counted.changes) != (different, different, different) {
        bail!("{different} different messages were acknowledged, and the store has {counted:?}");
    }
    let mut measured = measured?;
    measured.troubles = redis.map_or(0, |redis| redis.troubles());
    Ok(measured)
}
