//! Clients that ask again as soon as they are answered, and what they get done.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many ask at once, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// How many ask.
    pub clients: u64,
    /// What comes before the measurement, at least: it also lasts until nobody is cold.
    pub warm_up: Duration,
    /// How long the measurement lasts.
    pub measured: Duration,
}

/// How long operations took.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    /// Half of them took no longer.
    pub p50_ms: f64,
    /// 99 of 100 took no longer.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// What a load came to.
#[derive(Debug)]
pub struct Driven<R> {
    /// Operations that ended while it was measured.
    pub operations: u64,
    /// All operations, those before and after it included.
    pub total: u64,
    /// How many of them per second.
    pub per_second: f64,
    /// How long they took.
    pub latency: Latency,
    /// What was read when the measurement began.
    pub before: R,
    /// What was read when it ended.
    pub after: R,
}

/// How many operations a client runs before anything is measured. A connection's first ones connect, fill the server's
/// caches, compile its functions and plan each statement five times before a plan is kept: once in the life of a
/// connection.
const COLD_OPERATIONS: u64 = 32;

/// Where the clients stand.
#[derive(Debug)]
struct Progress {
    done: AtomicU64,
    /// A permit for each client that is warm.
    warm: Semaphore,
    is_measured: AtomicBool,
    is_over: AtomicBool,
}

impl Progress {
    fn new() -> Progress {
        Progress {
            done: AtomicU64::new(0),
            warm: Semaphore::new(0),
            is_measured: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }
}

impl Latency {
    /// Of these, in microseconds.
    pub fn of(mut micros: Vec<u32>) -> Latency {
        micros.sort_unstable();
        let at = |share: f64| {
            let place = (micros.len().saturating_sub(1) as f64 * share).round() as usize;
            micros.get(place).map_or(0.0, |micros| f64::from(*micros) / 1000.0)
        };
        Latency { p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0) }
    }
}

/// Has clients run operations, each with a number of its own, one after the other. `read` is asked when the measurement
/// begins and when it ends. The first operation that fails ends everything.
pub async fn drive<R, G, F>(
    load: Load,
    read: impl Fn() -> G,
    operate: impl Fn(u64) -> F + Clone + Send + 'static,
) -> Result<Driven<R>>
where
    G: Future<Output = Result<R>>,
    F: Future<Output = Result<()>> + Send,
{
    let progress = Arc::new(Progress::new());
    let mut clients = JoinSet::new();
    for client in 0..load.clients {
        let (progress, operate) = (Arc::clone(&progress), operate.clone());
        clients.spawn(async move { ask(&progress, (client, load.clients), operate).await });
    }
    let watching = async {
        tokio::time::sleep(load.warm_up).await;
        progress.warm.acquire_many(u32::try_from(load.clients)?).await?.forget();
        let before = read().await?;
        progress.is_measured.store(true, Ordering::Relaxed);
        let (at, done) = (Instant::now(), progress.done.load(Ordering::Relaxed));
        tokio::time::sleep(load.measured).await;
        let operations = progress.done.load(Ordering::Relaxed) - done;
        let lasted = at.elapsed();
        progress.is_measured.store(false, Ordering::Relaxed);
        anyhow::Ok((before, read().await?, operations, lasted))
    };
    let watched = tokio::select! {
        watched = watching => watched,
        // Nobody stops by himself.
        Some(ended) = clients.join_next() => {
            ended??;
            bail!("a client stopped before the measurement was over");
        }
    };
    progress.is_over.store(true, Ordering::Relaxed);
    let mut micros = Vec::new();
    while let Some(ended) = clients.join_next().await {
        micros.extend(ended??);
    }
    let (before, after, operations, lasted) = watched?;
    if operations == 0 {
        bail!("nothing was done: measure for longer");
    }
    Ok(Driven {
        operations,
        total: progress.done.load(Ordering::Relaxed),
        per_second: operations as f64 / lasted.as_secs_f64(),
        latency: Latency::of(micros),
        before,
        after,
    })
}

/// One client: how long its operations took while it was measured.
async fn ask<F>(progress: &Progress, (client, clients): (u64, u64), operate: impl Fn(u64) -> F) -> Result<Vec<u32>>
where
    F: Future<Output = Result<()>>,
{
    let mut micros = Vec::new();
    for turn in 0.. {
        if turn == COLD_OPERATIONS {
            progress.warm.add_permits(1);
        }
        if progress.is_over.load(Ordering::Relaxed) {
            break;
        }
        let at = Instant::now();
        operate(turn * clients + client).await?;
        progress.done.fetch_add(1, Ordering::Relaxed);
        if progress.is_measured.load(Ordering::Relaxed) {
            micros.push(u32::try_from(at.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
    }
    Ok(micros)
}

/// The finaliser of SplitMix64: another number for each, in no order.
pub fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends_of_what_was_seen() {
        let latency = Latency::of((1..=1000).rev().collect());
        assert_eq!((latency.p50_ms, latency.p99_ms, latency.max_ms), (0.501, 0.99, 1.0));
        assert_eq!(Latency::of(Vec::new()).max_ms, 0.0);
    }

    #[tokio::test]
    async fn every_operation_has_a_number_of_its_own() {
        let load = Load { clients: 3, warm_up: Duration::from_millis(5), measured: Duration::from_millis(20) };
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        let operate = move |number| {
            noted.lock().unwrap().push(number);
            async {
                tokio::task::yield_now().await;
                Ok(())
            }
        };
        let driven = drive(load, || async { Ok(()) }, operate).await.unwrap();
        let mut seen = seen.lock().unwrap().clone();
        assert_eq!(seen.len() as u64, driven.total);
        assert!(driven.operations <= driven.total);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len() as u64, driven.total);
    }

    #[tokio::test]
    async fn nothing_is_measured_while_somebody_is_cold() {
        let load = Load { clients: 2, warm_up: Duration::ZERO, measured: Duration::from_millis(5) };
        let done = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&done);
        let operate = move |number: u64| {
            // The second client takes its time, and is the one that is counted.
            counted.fetch_add(number % 2, Ordering::Relaxed);
            async move {
                if number % 2 == 1 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                tokio::task::yield_now().await;
                Ok(())
            }
        };
        let reads = || async { Ok(done.load(Ordering::Relaxed)) };
        let driven = drive(load, reads, operate).await.unwrap();
        assert!(driven.before >= COLD_OPERATIONS, "{}", driven.before);
    }

    #[tokio::test]
    async fn an_operation_that_fails_ends_the_measurement() {
        let load = Load { clients: 2, warm_up: Duration::from_secs(60), measured: Duration::from_secs(60) };
        let operate = |number| async move {
            if number == 7 {
                bail!("seven")
            } else {
                tokio::task::yield_now().await;
                Ok(())
            }
        };
        let error = drive(load, || async { Ok(()) }, operate).await.unwrap_err();
        assert_eq!(error.to_string(), "seven");
    }
}
