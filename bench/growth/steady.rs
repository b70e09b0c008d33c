//! Clients that ask at a steady pace, whether or not they are answered in time.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use semel_bench::drive::Latency;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// How many ask, and how often in all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) clients: u64,
    pub(crate) per_second: f64,
}

/// What a pace came to.
#[derive(Debug)]
pub(crate) struct Kept<T> {
    pub(crate) operations: u64,
    pub(crate) per_second: f64,
    pub(crate) latency: Latency,
    pub(crate) lasted: Duration,
    /// What came of the work that went on meanwhile.
    pub(crate) work: T,
}

/// Has clients run operations at this pace for as long as some other work goes on. The first operation that fails ends
/// everything.
pub(crate) async fn during<T, F>(
    work: impl Future<Output = Result<T>>,
    pace: Pace,
    operate: impl Fn(u64) -> F + Clone + Send + 'static,
) -> Result<Kept<T>>
where
    F: Future<Output = Result<()>> + Send,
{
    let (begun, is_over) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for client in 0..pace.clients {
        let (is_over, operate) = (Arc::clone(&is_over), operate.clone());
        clients.spawn(async move { ask(&is_over, (client, begun), pace, operate).await });
    }
    let work = tokio::select! {
        work = work => work?,
        // Nobody stops by himself.
        Some(ended) = clients.join_next() => {
            ended??;
            bail!("a client stopped before the work was over");
        }
    };
    is_over.store(true, Ordering::Relaxed);
    let mut micros = Vec::new();
    while let Some(ended) = clients.join_next().await {
        micros.extend(ended??);
    }
    if micros.is_empty() {
        bail!("nothing was done: the work was over too soon");
    }
    let (operations, lasted) = (micros.len() as u64, begun.elapsed());
    let per_second = operations as f64 / lasted.as_secs_f64();
    Ok(Kept { operations, per_second, latency: Latency::of(micros), lasted, work })
}

/// One client: how long its operations took. One that begins late because the one before took too long is counted from
/// when it was due; one that begins late because the timer did is not.
async fn ask<F>(
    is_over: &AtomicBool,
    (client, begun): (u64, Instant),
    pace: Pace,
    operate: impl Fn(u64) -> F,
) -> Result<Vec<u32>>
where
    F: Future<Output = Result<()>>,
{
    let mut micros = Vec::new();
    for turn in 0.. {
        let number = turn * pace.clients + client;
        let due = begun + Duration::from_secs_f64(number as f64 / pace.per_second);
        let is_late = Instant::now() > due;
        sleep_until(due).await;
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let at = if is_late { due } else { Instant::now() };
        operate(number).await?;
        micros.push(u32::try_from(at.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    Ok(micros)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    const PACE: Pace = Pace { clients: 2, per_second: 1000.0 };

    #[tokio::test]
    async fn what_waits_for_a_slow_operation_counts_from_when_it_was_due() {
        let (begun, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(tokio::sync::Notify::new()));
        let enough = Arc::clone(&asked);
        let operate = move |number: u64| {
            let (begun, asked) = (Arc::clone(&begun), Arc::clone(&asked));
            async move {
                if number == 0 {
                    // The others of this client are due meanwhile, two milliseconds apart.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                if begun.fetch_add(1, Ordering::Relaxed) == 100 {
                    asked.notify_one();
                }
                Ok(())
            }
        };
        let work = async {
            enough.notified().await;
            Ok("done")
        };
        let kept = during(work, PACE, operate).await.unwrap();
        assert_eq!(kept.work, "done");
        assert!(kept.operations > 100 && kept.latency.max_ms >= 50.0, "{kept:?}");
        // One in a hundred waited behind it for nearly as long.
        assert!(kept.latency.p99_ms >= 10.0, "{kept:?}");
    }

    #[tokio::test]
    async fn an_operation_that_fails_ends_the_work() {
        let work = std::future::pending::<Result<()>>();
        let operate = |number| async move { if number == 7 { bail!("seven") } else { Ok(()) } };
        assert_eq!(during(work, PACE, operate).await.unwrap_err().to_string(), "seven");
    }
}
