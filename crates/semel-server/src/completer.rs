//! The role `completer` of `semel run`.
//!
//! The functions of flows are in the services that registered them, and a completer in such a service goes on with its
//! flows. This process has none, so it takes none: it measures what waits and names the flows that nobody takes, which
//! nobody else would notice once their service is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use semel::flow::{Due, FlowStore, Pressure};
use tokio::time::{Instant, MissedTickBehavior};

use crate::database::{Database, with_store};
use crate::metrics;
use crate::shutdown::Shutdown;

/// How often to look.
const EVERY: Duration = Duration::from_secs(5);

/// A completer that has room takes what is due within seconds. What waits for longer than this has none.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// How often the same is told again.
const TELL_EVERY: Duration = Duration::from_secs(600);

/// Measures what waits, and tells which flows nobody takes, until it is time to stop. It changes nothing.
pub(crate) async fn watch(database: &Database, stop: Shutdown) {
    let looking = async { with_store!(database, store => look_for_ever(store).await) };
    tokio::select! {
        () = stop.requested() => {}
        () = looking => {}
    }
}

async fn look_for_ever<S: FlowStore>(store: &S) {
    let (mut names, mut told) = (BTreeSet::new(), Told::default());
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let pressure = match store.flow_pressure().await {
            Ok(pressure) => pressure,
            Err(error) => {
                tracing::warn!(%error, "flows could not be counted and will be counted again");
                continue;
            }
        };
        metrics::flow_pressure(&pressure, &mut names);
        let news = told.news(&pressure, Instant::now());
        for due in news.left {
            let oldest = humantime::format_duration(Duration::from_secs(due.oldest.as_secs()));
            let (flow, count) = (due.flow.as_str(), due.count);
            tracing::warn!(flow, count, %oldest, "flows are due and nobody takes them: does a service have this flow?");
        }
        for flow in news.taken {
            tracing::info!(flow = flow.as_str(), "flows of this name do not wait any more");
        }
    }
}

/// When which flow was told of, so that it is not told at every look.
#[derive(Debug, Default)]
struct Told(BTreeMap<String, Instant>);

/// What is worth telling.
#[derive(Debug, PartialEq, Eq)]
struct News<'a> {
    /// Flows that nobody takes.
    left: Vec<&'a Due>,
    /// Flows that were told of and have been taken since.
    taken: Vec<String>,
}

impl Told {
    fn news<'a>(&mut self, pressure: &'a Pressure, now: Instant) -> News<'a> {
        let overdue: Vec<&Due> = pressure.due.iter().filter(|due| due.oldest >= TAKEN_WITHIN).collect();
        let taken: Vec<String> =
            self.0.keys().filter(|name| overdue.iter().all(|due| due.flow != **name)).cloned().collect();
        for name in &taken {
            self.0.remove(name);
        }
        let mut left = Vec::new();
        for due in overdue {
            if self.0.get(&due.flow).is_none_or(|at| now.duration_since(*at) >= TELL_EVERY) {
                self.0.insert(due.flow.clone(), now);
                left.push(due);
            }
        }
        News { left, taken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(flow: &str, oldest: Duration) -> Due {
        Due { flow: flow.to_owned(), count: 3, oldest }
    }

    fn pressure(due: &[Due]) -> Pressure {
        Pressure { unknown: 0, held: 0, due: due.to_vec() }
    }

    #[test]
    fn a_flow_that_nobody_takes_is_told_once_and_again_after_a_while() {
        let (mut told, now) = (Told::default(), Instant::now());
        let waits = pressure(&[due("order", TAKEN_WITHIN), due("mail", TAKEN_WITHIN - Duration::from_secs(1))]);
        let news = told.news(&waits, now);
        assert_eq!((news.left, news.taken), (vec![&waits.due[0]], Vec::new()));
        let silence = News { left: Vec::new(), taken: Vec::new() };
        assert_eq!(told.news(&waits, now + EVERY), silence);
        assert_eq!(told.news(&waits, now + TELL_EVERY).left, [&waits.due[0]]);
        assert_eq!(told.news(&waits, now + TELL_EVERY + EVERY), silence);
    }

    #[test]
    fn a_flow_that_is_taken_is_told_once_and_may_be_left_again() {
        let (mut told, now) = (Told::default(), Instant::now());
        let left = pressure(&[due("order", TAKEN_WITHIN)]);
        assert_eq!(told.news(&left, now).left.len(), 1);
        let fresh = pressure(&[due("order", Duration::ZERO)]);
        assert_eq!(told.news(&fresh, now + EVERY).taken, ["order"]);
        assert_eq!(told.news(&Pressure::default(), now + EVERY).taken, Vec::<String>::new());
        assert_eq!(told.news(&left, now + EVERY + EVERY).left.len(), 1);
    }
}
