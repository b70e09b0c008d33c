//! When each event was committed and when it was acknowledged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::load::{self, Load};

/// The share of events at the start that no rate counts: joining, connecting and first plans are not the throughput.
const WARM_UP: usize = 10;

/// How long an event stays unacknowledged before the ledger is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Notes of all events of one measurement, in nanoseconds since its start; zero for what did not happen.
#[derive(Debug)]
pub(crate) struct Ledger {
    load: Load,
    begun: Instant,
    committed: Box<[AtomicU64]>,
    acknowledged: Box<[AtomicU64]>,
    /// One above the highest number acknowledged of each key.
    highest: Box<[AtomicU64]>,
    done: AtomicU64,
    /// When the first was sent, if that was noted.
    sent: AtomicU64,
    /// When the measurement ended, if it did.
    closed: AtomicU64,
    repeated: AtomicU64,
    overtaken: AtomicU64,
}

/// How long events took.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Latency {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Ledger {
    pub(crate) fn new(load: Load, events: u64) -> Ledger {
        let zeros = |count: u64| (0..count).map(|_| AtomicU64::new(0)).collect();
        Ledger {
            load,
            begun: Instant::now(),
            committed: zeros(events),
            acknowledged: zeros(events),
            highest: zeros(load.keys.into()),
            done: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            overtaken: AtomicU64::new(0),
        }
    }

    /// How many events there is room for.
    pub(crate) fn capacity(&self) -> u64 {
        self.committed.len() as u64
    }

    /// Notes that an event is committed.
    pub(crate) fn commit(&self, number: u64) {
        if let Some(at) = usize::try_from(number).ok().and_then(|index| self.committed.get(index)) {
            at.store(self.now(), Ordering::Release);
        }
    }

    /// Notes that the event with this payload is acknowledged, whether for the first time, and whether a later one of
    /// its key came first.
    pub(crate) fn acknowledge(&self, payload: &[u8]) {
        self.acknowledge_at(payload, self.now());
    }

    /// Notes that the events with these payloads are acknowledged, all at the same moment.
    pub(crate) fn acknowledge_all<'a>(&self, payloads: impl Iterator<Item = &'a [u8]>) {
        let now = self.now();
        payloads.for_each(|payload| self.acknowledge_at(payload, now));
    }

    fn acknowledge_at(&self, payload: &[u8], now: u64) {
        let Some(number) = load::number(payload) else { return };
        let Some(at) = usize::try_from(number).ok().and_then(|index| self.acknowledged.get(index)) else { return };
        if at.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.repeated.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if let Some(highest) = self.highest.get(self.load.key(number) as usize)
            && highest.fetch_max(number + 1, Ordering::AcqRel) > number
        {
            self.overtaken.fetch_add(1, Ordering::Relaxed);
        }
        self.done.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until this many are acknowledged, or the time is over, and says whether they are.
    pub(crate) async fn wait_for(&self, count: u64, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while self.done() < count && Instant::now() < until {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        self.done() >= count
    }

    /// How many are committed.
    pub(crate) fn commits(&self) -> u64 {
        nonzero(&self.committed).len() as u64
    }

    /// How many are acknowledged.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// How often an event was acknowledged again.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// How many events were acknowledged after a later one of their key.
    pub(crate) fn overtaken(&self) -> u64 {
        self.overtaken.load(Ordering::Relaxed)
    }

    /// Notes that events are being sent.
    pub(crate) fn send(&self) {
        // The first time counts.
        let _ = self.sent.compare_exchange(0, self.now(), Ordering::AcqRel, Ordering::Acquire);
    }

    /// Ends the measurement. What is in flight still counts, at the time of its acknowledgement.
    pub(crate) fn close(&self) {
        // The first end stays.
        let _ = self.closed.compare_exchange(0, self.now(), Ordering::AcqRel, Ordering::Acquire);
    }

    /// Events acknowledged per second, the warm-up left out. If fewer than all came, time counts to the end at least.
    ///
    /// A slow sink answers in few bursts, of which the warm-up may be the greater part; then all of it counts, from the
    /// first that was sent.
    pub(crate) fn rate(&self) -> f64 {
        let mut times = nonzero(&self.acknowledged);
        times.sort_unstable();
        let (Some(warm), Some(last)) = (times.get(times.len() / WARM_UP), times.last()) else { return 0.0 };
        let closed = if times.len() == self.acknowledged.len() { 0 } else { self.closed.load(Ordering::Acquire) };
        let upto = closed.max(*last);
        let sent = self.sent.load(Ordering::Acquire).min(*warm);
        let from = if (upto - warm) * 2 < upto - sent { sent } else { *warm };
        let count = times.iter().filter(|at| **at > from).count();
        let seconds = Duration::from_nanos(upto - from).as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }

    /// Events acknowledged per second between two moments.
    pub(crate) fn rate_between(&self, from: Duration, upto: Duration) -> f64 {
        let within = nanoseconds(from)..nanoseconds(upto);
        let count = nonzero(&self.acknowledged).into_iter().filter(|at| within.contains(at)).count();
        count as f64 / (upto - from).as_secs_f64()
    }

    /// Events committed per second from a moment on until the last commit.
    pub(crate) fn commit_rate(&self, from: Duration) -> f64 {
        let from = nanoseconds(from);
        let times: Vec<u64> = nonzero(&self.committed).into_iter().filter(|at| *at >= from).collect();
        let Some(last) = times.iter().max() else { return 0.0 };
        times.len() as f64 / Duration::from_nanos(last - from).as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// How long it took from commit to acknowledgement, for what was committed from a moment on. An acknowledgement
    /// that comes before the writer has heard of its commit counts as zero.
    pub(crate) fn latency(&self, from: Duration) -> Option<Latency> {
        let from = nanoseconds(from);
        let pairs = self.committed.iter().zip(&self.acknowledged);
        let pairs = pairs.map(|(commit, ack)| (commit.load(Ordering::Acquire), ack.load(Ordering::Acquire)));
        let mut took: Vec<u64> = pairs
            .filter(|(commit, ack)| *commit >= from && *ack > 0)
            .map(|(commit, ack)| ack.saturating_sub(commit))
            .collect();
        took.sort_unstable();
        let at = |share: f64| {
            let index = ((took.len() as f64 * share) as usize).min(took.len().checked_sub(1)?);
            Some(*took.get(index)? as f64 / 1e6)
        };
        Some(Latency { p50_ms: at(0.5)?, p99_ms: at(0.99)?, max_ms: at(1.0)? })
    }

    /// How long the measurement has lasted.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Starts the clock anew.
    pub(crate) fn restarted(mut self) -> Ledger {
        self.begun = Instant::now();
        self
    }

    fn now(&self) -> u64 {
        nanoseconds(self.begun.elapsed()).max(1)
    }
}

fn nonzero(times: &[AtomicU64]) -> Vec<u64> {
    times.iter().map(|at| at.load(Ordering::Acquire)).filter(|at| *at > 0).collect()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
