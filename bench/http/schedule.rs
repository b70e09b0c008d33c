//! Requests that are due at even intervals, whether or not earlier ones were answered.

use std::ops::Range;
use std::sync::{Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use semel_bench::drive::{Latency, Load};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// When requests are due, and how long after that they were answered.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// For each client, when its next requests are due.
    turns: Vec<Mutex<UnboundedReceiver<Instant>>>,
    measured: Range<Instant>,
    micros: StdMutex<Vec<u32>>,
}

impl Schedule {
    /// Starts with so many requests per second, the clients in turn. It goes on until it is dropped.
    pub(crate) fn start(per_second: f64, load: Load) -> Result<Schedule> {
        let begun = Instant::now();
        let (clients, turns): (Vec<_>, Vec<_>) = (0..load.clients).map(|_| unbounded_channel()).unzip();
        // A thread of its own, because the runtime's clock counts in milliseconds.
        let keep = move || keep(begun, per_second, &clients);
        std::thread::Builder::new().name("schedule".to_owned()).spawn(keep)?;
        let from = begun + load.warm_up;
        Ok(Schedule {
            turns: turns.into_iter().map(Mutex::new).collect(),
            measured: from..from + load.measured,
            micros: StdMutex::default(),
        })
    }

    /// Waits until the request with this number is due, and tells when that was.
    pub(crate) async fn due(&self, number: u64) -> Result<Instant> {
        let mut turns = self.turns[number as usize % self.turns.len()].lock().await;
        turns.recv().await.context("the schedule has ended")
    }

    /// Takes note of an answer, now, to the request that was due then.
    pub(crate) fn answered(&self, due: Instant) {
        if self.measured.contains(&due) {
            let micros = u32::try_from(due.elapsed().as_micros()).unwrap_or(u32::MAX);
            self.micros.lock().unwrap_or_else(PoisonError::into_inner).push(micros);
        }
    }

    /// How long answers took. Requests that no client came to count with the time that they have waited.
    pub(crate) async fn latency(&self) -> Result<Latency> {
        for turns in &self.turns {
            let mut turns = turns.lock().await;
            while let Ok(due) = turns.try_recv() {
                self.answered(due);
            }
        }
        let micros = std::mem::take(&mut *self.micros.lock().unwrap_or_else(PoisonError::into_inner));
        ensure!(!micros.is_empty(), "nothing was due: measure for longer");
        Ok(Latency::of(micros))
    }
}

/// Tells each client in turn when its request is due, until nobody listens.
fn keep(begun: Instant, per_second: f64, clients: &[UnboundedSender<Instant>]) {
    for (number, client) in clients.iter().cycle().enumerate() {
        let due = begun + Duration::from_secs_f64(number as f64 / per_second);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if client.send(due).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn time_counts_from_when_a_request_was_due() {
        let load = Load { clients: 2, warm_up: Duration::ZERO, measured: Duration::from_millis(20) };
        let schedule = Schedule::start(1_000.0, load).unwrap();
        let first = schedule.due(0).await.unwrap();
        let second = schedule.due(1).await.unwrap();
        assert_eq!(second - first, Duration::from_millis(1));
        // Nobody comes to the other eighteen.
        while schedule.turns[1].lock().await.len() < 12 {
            tokio::task::yield_now().await;
        }
        schedule.answered(first);
        schedule.answered(second);
        let latency = schedule.latency().await.unwrap();
        assert!(latency.max_ms >= 20.0, "{latency:?}");
        assert!(schedule.latency().await.is_err(), "nothing is counted twice");
    }
}
