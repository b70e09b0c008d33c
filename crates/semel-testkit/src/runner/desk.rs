//! A runner at work, with both of its ends at hand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::inbox::{Inbox, Rule, Sequence, Version};
use semel::letter::{LetterFilter, LetterRecord};
use semel::outbox::{Cursor, MAX_EVENTS, PageLimit};
use semel::runner::{Ended, Error, Failure, Handler, Runner, Settings};
use semel::sink::Lane;
use semel::source::Message;
use semel::tier::Tier;
use semel::{Consumer, Event, Outbox, Semel, Store, Tx};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::shelf::Shelf;
use crate::inbox::Harness;
use crate::poll::until;

/// What an effect does before it applies, by the message's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It fails so often.
    Fails(u32),
    /// It fails for good.
    Hopeless,
    /// It panics so often.
    Panics(u32),
    /// It does not end, so often.
    Hangs(u32),
    /// It does what no commit accepts: it emits more than a transaction may.
    Overflows,
}

/// What goes wrong, and what was tried.
#[derive(Debug, Default)]
pub(super) struct Fortune {
    troubles: HashMap<String, Trouble>,
    tried: HashMap<String, u32>,
}

/// Applies a message: adds a row to `effects` with its id, and emits an event that carries it.
pub(super) struct Clerk<H> {
    fortune: Arc<Mutex<Fortune>>,
    harness: std::marker::PhantomData<fn() -> H>,
}

impl<H: Harness> Handler<H::Store> for Clerk<H> {
    fn version(&self, message: &Message) -> Option<Version> {
        let rule = message.header("rule")?;
        let rule = if rule == "each" { Rule::Each } else { Rule::Latest };
        let entity = message.ordering_key.clone();
        Some(Version { entity, version: message.header("version")?.parse().unwrap(), rule })
    }

    async fn apply(&self, tx: &mut <H::Store as Store>::Tx, message: &Message) -> Result<(), Failure> {
        H::insert(tx, &message.id).await?;
        tx.emit(Event::new("applied", &message.ordering_key, "test.applied", &message.id)?);
        let trouble = {
            let mut fortune = self.fortune.lock().unwrap();
            let tried = fortune.tried.entry(message.id.clone()).or_default();
            *tried += 1;
            let tried = *tried;
            fortune.troubles.get(&message.id).copied().filter(|trouble| match trouble {
                Trouble::Hopeless | Trouble::Overflows => true,
                Trouble::Fails(times) | Trouble::Panics(times) | Trouble::Hangs(times) => tried <= *times,
            })
        };
        match trouble {
            None => Ok(()),
            Some(Trouble::Fails(_)) => Err("the clerk is ill".into()),
            Some(Trouble::Hopeless) => Err(Failure::hopeless("the clerk cannot read it")),
            Some(Trouble::Panics(_)) => panic!("the clerk fainted over {}", message.id),
            Some(Trouble::Hangs(_)) => std::future::pending().await,
            Some(Trouble::Overflows) => {
                for _ in 0..=MAX_EVENTS {
                    tx.emit(Event::new("applied", "overflow", "test.applied", &message.id)?);
                }
                Ok(())
            }
        }
    }
}

/// A desk with a database, a shelf before it, and runners.
pub(super) struct Desk<H: Harness> {
    pub(super) harness: H,
    pub(super) shelf: Shelf,
    pub(super) settings: Settings,
    pub(super) deadline: Duration,
    pub(super) tier: Option<Arc<dyn Tier>>,
    /// Who the runners are, and in which generation their source is.
    pub(super) consumer: Consumer,
    fortune: Arc<Mutex<Fortune>>,
}

/// A runner that was started.
pub(super) struct Shift {
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<Ended, Error>>,
}

impl Shift {
    /// Stops it in good order.
    pub(super) async fn ends(mut self) -> Ended {
        drop(self.stop.take());
        self.running.await.unwrap().unwrap()
    }

    /// Waits until it ends by itself.
    pub(super) async fn ended(self) -> Result<Ended, Error> {
        let _stop = self.stop;
        self.running.await.unwrap()
    }
}

/// What the consumer of these tests is called.
pub(super) const CONSUMER: &str = "clerks";

impl<H: Harness> Desk<H> {
    /// A desk whose runners are in haste.
    pub(super) async fn open() -> Desk<H> {
        let settings = Settings {
            attempts: 4,
            backoff_min: Duration::from_millis(5),
            backoff_max: Duration::from_millis(40),
            letters_interval: Duration::from_millis(20),
            workers: 3,
            ..Settings::default()
        };
        let (shelf, fortune) = (Shelf::new(), Arc::default());
        let deadline = semel::Settings::default().deadline;
        let consumer = Consumer::new(CONSUMER).unwrap();
        Desk { harness: H::create().await, shelf, settings, deadline, tier: None, consumer, fortune }
    }

    /// A runner of this desk.
    pub(super) async fn runner(&self) -> Result<Runner<H::Store, Shelf, Clerk<H>>, Error> {
        let settings = semel::Settings { deadline: self.deadline, ..semel::Settings::default() };
        let semel = Semel::with_settings(self.harness.store().clone(), settings).await.unwrap();
        let clerk = Clerk { fortune: Arc::clone(&self.fortune), harness: std::marker::PhantomData };
        let runner = Runner::new(semel, self.shelf.clone(), clerk, self.consumer.clone(), self.settings.clone())?;
        Ok(match &self.tier {
            Some(tier) => runner.with_tier(Arc::clone(tier)),
            None => runner,
        })
    }

    /// Starts a runner.
    pub(super) async fn start(&self) -> Shift {
        let (stop, stopped) = oneshot::channel();
        let runner = self.runner().await.unwrap();
        let running = tokio::spawn(async move {
            let stopped = async move { stopped.await.unwrap_or_default() };
            runner.run(stopped).await
        });
        Shift { stop: Some(stop), running }
    }

    pub(super) fn trouble(&self, id: &str, trouble: Trouble) {
        self.fortune.lock().unwrap().troubles.insert(id.to_owned(), trouble);
    }

    pub(super) fn no_more_trouble(&self) {
        self.fortune.lock().unwrap().troubles.clear();
    }

    /// How often an effect was tried.
    pub(super) fn tried(&self, id: &str) -> u32 {
        self.fortune.lock().unwrap().tried.get(id).copied().unwrap_or(0)
    }

    /// Waits until so many were acknowledged.
    pub(super) async fn acknowledges(&self, count: usize) {
        until(&format!("{count} messages are acknowledged"), async || self.shelf.acknowledged().len() >= count).await;
    }

    /// Each of these has applied once.
    pub(super) async fn applied_once(&self, ids: &[&str]) {
        for id in ids {
            assert_eq!(self.harness.count(id).await, 1, "{id}");
        }
    }

    /// The ids of everything of a key that applied, in order.
    pub(super) async fn applied(&self, key: &str) -> Vec<String> {
        let (mut ids, mut after) = (Vec::new(), Cursor::START);
        let (lanes, limit) = ([Lane::of(key)], PageLimit { events: 10_000, bytes: 64 << 20 });
        while let Some(page) = self.harness.store().page(after, &lanes, limit).await.unwrap() {
            after = page.upto;
            let events = page.events.iter().filter(|event| event.event.ordering_key == key);
            ids.extend(events.map(|event| serde_json::from_slice::<String>(&event.event.payload).unwrap()));
        }
        ids
    }

    /// The dead letters.
    pub(super) async fn letters(&self) -> Vec<LetterRecord> {
        self.harness.store().letters(&LetterFilter::default(), 100).await.unwrap()
    }
}

/// A message of a key.
pub(super) fn message(id: &str, key: &str) -> Message {
    Message {
        id: id.to_owned(),
        topic: "orders".to_owned(),
        ordering_key: key.to_owned(),
        message_type: "order.placed".to_owned(),
        producer: "test".to_owned(),
        content_type: "text/plain".to_owned(),
        payload: b"one".as_slice().into(),
        headers: Vec::new(),
        sequence: None,
        offset: None,
    }
}

/// A message that carries a version of its key.
pub(super) fn version(id: &str, key: &str, version: u64, rule: &str) -> Message {
    let headers = vec![("version".to_owned(), version.to_string()), ("rule".to_owned(), rule.to_owned())];
    Message { headers, ..message(id, key) }
}

/// A message at a place among Semel's own events.
pub(super) fn placed(id: &str, key: &str, sequence: u64) -> Message {
    let sequence = Sequence { incarnation: "i-1".to_owned(), topic: "orders".to_owned(), lane: 3, sequence };
    Message { sequence: Some(sequence), ..message(id, key) }
}
