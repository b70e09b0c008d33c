//! A producer at work.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::stage::{Applying, Producer};
use crate::relay::dice::Dice;

/// How many ordering keys there are.
const KEYS: usize = 12;

/// How often a transaction is committed.
const PACE: Duration = Duration::from_millis(15);

/// A producer that commits until it is told to end.
pub(crate) struct Load {
    producing: JoinHandle<()>,
    written: watch::Receiver<u64>,
    ending: watch::Sender<bool>,
}

impl Load {
    /// Starts one whose messages all apply.
    pub(crate) fn start<S: Applying>(producer: &Producer<S>) -> Load {
        Load::failing(producer, usize::MAX)
    }

    /// Starts one of whose messages one in `one_in` fails in two attempts and applies in the third.
    pub(crate) fn failing<S: Applying>(producer: &Producer<S>, one_in: usize) -> Load {
        let (ending, ended) = watch::channel(false);
        let (count, written) = watch::channel(0);
        let producer = producer.clone();
        let producing = tokio::spawn(async move {
            let mut dice = Dice::new(11);
            let mut ticks = tokio::time::interval(PACE);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while !*ended.borrow() {
                ticks.tick().await;
                let events: Vec<(String, Value)> = (0..=dice.below(3))
                    .map(|_| {
                        let fail = if dice.below(one_in) == 0 && one_in < usize::MAX { 4 } else { 0 };
                        // Names of two lengths, so that there are both topics.
                        (format!("key-{}", dice.below(KEYS)), json!({ "fail": fail }))
                    })
                    .collect();
                producer.emit(&events).await;
                count.send_modify(|count| *count += events.len() as u64);
            }
        });
        Load { producing, written, ending }
    }

    /// Waits until so many more events are committed.
    pub(crate) async fn grows_by(&mut self, events: u64) {
        let enough = *self.written.borrow() + events;
        let reached = self.written.wait_for(|written| *written >= enough);
        tokio::time::timeout(semel_testkit::poll::PATIENCE, reached).await.unwrap().unwrap();
    }

    /// Lets the producer finish its transaction, and ends.
    pub(crate) async fn end(self) {
        self.ending.send_replace(true);
        self.producing.await.unwrap();
    }
}
