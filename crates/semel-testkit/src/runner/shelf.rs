//! A source in this process: what is put on it is handed out until it is acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use semel::source::{Error, Message, Received, Redelivery, Source};
use tokio::sync::Notify;

/// A source whose other side the test holds.
#[derive(Debug, Clone)]
pub(super) struct Shelf {
    state: Arc<Mutex<State>>,
    put: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<(Message, Option<String>)>,
    handed: BTreeMap<u64, (Message, Option<String>)>,
    next: u64,
    acknowledged: Vec<String>,
    given_back: Vec<String>,
    prolonged: BTreeMap<String, u32>,
    redelivery: Redelivery,
    /// How many acknowledgements are lost on their way.
    losing: u32,
}

impl Shelf {
    pub(super) fn new() -> Shelf {
        let redelivery = Redelivery::Within { longest: Duration::from_secs(60), because: "a test".to_owned() };
        let state = State {
            waiting: VecDeque::new(),
            handed: BTreeMap::new(),
            next: 0,
            acknowledged: Vec::new(),
            given_back: Vec::new(),
            prolonged: BTreeMap::new(),
            redelivery,
            losing: 0,
        };
        Shelf { state: Arc::new(Mutex::new(state)), put: Arc::default() }
    }

    pub(super) fn put(&self, messages: impl IntoIterator<Item = Message>) {
        self.lock().waiting.extend(messages.into_iter().map(|message| (message, None)));
        self.put.notify_one();
    }

    /// Puts a message that the source could not make sense of.
    pub(super) fn put_unusable(&self, message: Message, why: &str) {
        self.lock().waiting.push_back((message, Some(why.to_owned())));
        self.put.notify_one();
    }

    pub(super) fn promise(&self, redelivery: Redelivery) {
        self.lock().redelivery = redelivery;
    }

    pub(super) fn lose_acknowledgements(&self, count: u32) {
        self.lock().losing = count;
    }

    /// The ids of what was acknowledged, in order.
    pub(super) fn acknowledged(&self) -> Vec<String> {
        self.lock().acknowledged.clone()
    }

    /// The ids of what was given back, in order.
    pub(super) fn given_back(&self) -> Vec<String> {
        self.lock().given_back.clone()
    }

    /// How often a message was told to be worked on.
    pub(super) fn prolonged(&self, id: &str) -> u32 {
        self.lock().prolonged.get(id).copied().unwrap_or(0)
    }

    /// How many are handed out and neither acknowledged nor given back.
    pub(super) fn in_hand(&self) -> usize {
        self.lock().handed.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Source for Shelf {
    type Receipt = u64;

    async fn receive(&self, most: usize) -> Result<Vec<Received<u64>>, Error> {
        loop {
            {
                let mut state = self.lock();
                let count = state.waiting.len().min(most);
                let taken: Vec<_> = state.waiting.drain(..count).collect();
                if !taken.is_empty() {
                    let received = taken.into_iter().map(|(message, unusable)| {
                        state.next += 1;
                        let receipt = state.next;
                        state.handed.insert(receipt, (message.clone(), unusable.clone()));
                        Received { message, unusable, receipt }
                    });
                    return Ok(received.collect());
                }
            }
            self.put.notified().await;
        }
    }

    async fn acknowledge(&self, receipts: &[&u64]) -> Result<(), Error> {
        let mut state = self.lock();
        for receipt in receipts {
            if let Some((message, unusable)) = state.handed.remove(receipt) {
                if state.losing > 0 {
                    state.losing -= 1;
                    state.waiting.push_back((message, unusable));
                } else {
                    state.acknowledged.push(message.id);
                }
            }
        }
        self.put.notify_one();
        Ok(())
    }

    async fn give_back(&self, receipts: &[&u64]) -> Result<(), Error> {
        let mut state = self.lock();
        for receipt in receipts {
            if let Some((message, unusable)) = state.handed.remove(receipt) {
                state.given_back.push(message.id.clone());
                state.waiting.push_back((message, unusable));
            }
        }
        Ok(())
    }

    async fn prolong(&self, receipts: &[&u64]) -> Result<(), Error> {
        let mut state = self.lock();
        for receipt in receipts {
            if let Some(id) = state.handed.get(receipt).map(|(message, _)| message.id.clone()) {
                *state.prolonged.entry(id).or_default() += 1;
            }
        }
        Ok(())
    }

    fn prolong_every(&self) -> Option<Duration> {
        Some(Duration::from_millis(10))
    }

    async fn redelivery(&self) -> Result<Redelivery, Error> {
        Ok(self.lock().redelivery.clone())
    }

    async fn close(&self) {}
}
