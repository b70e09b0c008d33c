//! Writers at work.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::dice::Dice;
use super::stage::{Counting, Writer};

const WRITERS: u64 = 4;

/// How many ordering keys the writers share.
const KEYS: usize = 24;

/// How often a writer that is not in haste commits.
const PACE: Duration = Duration::from_millis(20);

/// Writers that commit until they are told to end. One transaction in eight is rolled back.
pub(crate) struct Load {
    writers: JoinSet<()>,
    written: watch::Receiver<u64>,
    ending: watch::Sender<bool>,
}

impl Load {
    /// Starts writing at a pace that leaves the machine to the relays.
    pub(crate) fn start<S: Counting>(writer: &Writer<S>) -> Load {
        Load::paced(writer, Some(PACE), 8)
    }

    /// The same, with no transaction rolled back.
    pub(crate) fn without_refusals<S: Counting>(writer: &Writer<S>) -> Load {
        Load::paced(writer, Some(PACE), usize::MAX)
    }

    /// Writes as fast as it goes.
    pub(crate) fn flood<S: Counting>(writer: &Writer<S>) -> Load {
        Load::paced(writer, None, 8)
    }

    fn paced<S: Counting>(writer: &Writer<S>, pace: Option<Duration>, refused_in: usize) -> Load {
        let (ending, ended) = watch::channel(false);
        let (count, written) = watch::channel(0);
        let mut writers = JoinSet::new();
        for number in 0..WRITERS {
            let (writer, ended, count) = (writer.clone(), ended.clone(), count.clone());
            writers.spawn(async move {
                let mut dice = Dice::new(number);
                let mut ticks = pace.map(tokio::time::interval);
                if let Some(ticks) = &mut ticks {
                    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                }
                while !*ended.borrow() {
                    if let Some(ticks) = &mut ticks {
                        ticks.tick().await;
                    }
                    let mut keys: Vec<String> = (0..=dice.below(3)).map(|_| key(dice.below(KEYS))).collect();
                    // Counters are locked in one order, so that writers wait for each other and do not deadlock.
                    keys.sort();
                    keys.dedup();
                    let refuse = dice.below(refused_in) == refused_in - 1;
                    let ids = writer.write(&keys, refuse).await;
                    count.send_modify(|count| *count += ids.len() as u64);
                }
            });
        }
        Load { writers, written, ending }
    }

    /// Waits until this many events were committed since the start.
    pub(crate) async fn reaches(&mut self, events: u64) {
        let reached = self.written.wait_for(|written| *written >= events);
        tokio::time::timeout(semel_testkit::poll::PATIENCE * 10, reached).await.unwrap().unwrap();
    }

    /// How many events were committed so far.
    pub(crate) fn written(&self) -> u64 {
        *self.written.borrow()
    }

    /// Lets every writer finish its transaction, and ends.
    pub(crate) async fn end(mut self) {
        self.ending.send_replace(true);
        while let Some(ended) = self.writers.join_next().await {
            ended.unwrap();
        }
    }
}

fn key(number: usize) -> String {
    format!("key-{number}")
}
