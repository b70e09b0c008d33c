//! A store with what most tests need at hand.

use std::collections::BTreeSet;
use std::ops::Range;

use semel::consume::{Consumed, Fate};
use semel::once::{Error as OnceError, Settings};
use semel::outbox::{Cursor, PageLimit};
use semel::sink::Lane;
use semel::{Consumer, Error, Next, Outbox, Semel};

use super::harness::Harness;
use super::message::{Deed, Failure, Message, perform};

/// What became of a message.
pub(super) type Delivered = Result<Consumed<()>, OnceError<Failure>>;

/// A page that holds everything a small test writes.
const ROOMY: PageLimit = PageLimit { events: 10_000, bytes: 64 << 20 };

/// A harness with what most tests need at hand.
pub(super) struct Lab<H: Harness> {
    pub(super) harness: H,
    pub(super) semel: Semel<H::Store>,
    pub(super) consumer: Consumer,
}

impl<H: Harness> Lab<H> {
    /// A lab on a fresh database.
    pub(super) async fn open() -> Lab<H> {
        let harness = H::create().await;
        let semel = Semel::new(harness.store().clone());
        Lab { harness, semel, consumer: consumer("receipts") }
    }

    /// Semel on the same store with other settings.
    pub(super) async fn with_settings(&self, settings: Settings) -> Semel<H::Store> {
        Semel::with_settings(self.harness.store().clone(), settings).await.unwrap()
    }

    /// Delivers a message to the lab's consumer.
    pub(super) async fn deliver(&self, message: &Message) -> Delivered {
        deliver::<H>(&self.semel, &self.consumer, message).await
    }

    /// Delivers a message that has to apply.
    pub(super) async fn applies(&self, message: &Message) {
        let delivered = self.deliver(message).await;
        assert!(matches!(delivered, Ok(Consumed::Applied(()))), "{message:?} is {delivered:?}");
    }

    /// Delivers a message that has been seen. Its effect must not run: it would panic.
    pub(super) async fn is_known(&self, message: &Message) {
        self.is_known_to(&self.consumer, message).await;
    }

    /// Likewise, to another consumer.
    pub(super) async fn is_known_to(&self, consumer: &Consumer, message: &Message) {
        let again = message.that(Deed::Panic);
        let delivered = deliver::<H>(&self.semel, consumer, &again).await;
        assert!(matches!(delivered, Ok(Consumed::Duplicate)), "{message:?} is {delivered:?} to {consumer:?}");
    }

    /// Delivers many in one commit.
    pub(super) async fn deliver_all(&self, messages: &[Message]) -> Vec<Fate<Failure>> {
        deliver_all::<H>(&self.semel, &self.consumer, messages).await.unwrap()
    }

    /// Counts the message's effects.
    pub(super) async fn count(&self, message: &Message) -> u64 {
        self.harness.count(&message.label).await
    }

    /// The labels of everything that applied, in order: every effect emits an event.
    pub(super) async fn applied(&self) -> Vec<String> {
        let (mut labels, mut after, lanes) = (Vec::new(), Cursor::START, Lane::all().collect::<Vec<_>>());
        while let Some(page) = self.harness.store().page(after, &lanes, ROOMY).await.unwrap() {
            after = page.upto;
            labels.extend(page.events.iter().map(|event| {
                let label: String = serde_json::from_slice(&event.event.payload).unwrap();
                label
            }));
        }
        labels
    }

    /// Each of these has applied once, and nothing else has: by its event and by its row.
    pub(super) async fn applied_once(&self, messages: &[Message]) {
        let (mut applied, mut wanted) = (self.applied().await, labels(messages));
        applied.sort();
        wanted.sort();
        assert_eq!(applied, wanted);
        for label in wanted {
            assert_eq!(self.harness.count(&label).await, 1, "{label}");
        }
    }
}

/// Consumes a message.
pub(super) async fn deliver<H: Harness>(semel: &Semel<H::Store>, consumer: &Consumer, message: &Message) -> Delivered {
    let message = message.clone();
    let delivery = message.delivery.clone();
    semel.consume(consumer, &delivery, async move |tx| perform::<H>(tx, &message).await).await
}

/// Consumes many messages in one commit.
pub(super) async fn deliver_all<H: Harness>(
    semel: &Semel<H::Store>,
    consumer: &Consumer,
    messages: &[Message],
) -> Result<Vec<Fate<Failure>>, OnceError<Failure>> {
    semel.consume_all(consumer, messages, async |tx, message: &Message| perform::<H>(tx, message).await).await
}

/// A consumer in its first generation.
pub(super) fn consumer(name: &str) -> Consumer {
    Consumer::new(name).unwrap()
}

/// Whether a broker would deliver again what ended so, and the harness says that it may.
pub(super) fn is_conflict<H: Harness, E>(error: &OnceError<E>) -> bool {
    H::CONFLICTS && matches!(error, OnceError::Store(error) if error.next() == Next::RunAgain)
}

/// The error of a store that a delivery ended with.
pub(super) fn refused<T: std::fmt::Debug>(result: Result<T, OnceError<Failure>>) -> Error {
    match result {
        Err(OnceError::Store(error)) => error,
        other => panic!("the store refuses it: {other:?}"),
    }
}

/// The labels of messages, in order.
pub(super) fn labels(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| message.label.clone()).collect()
}

/// What became of a batch, in a word each.
pub(super) fn fates<E>(fates: &[Fate<E>]) -> Vec<&'static str> {
    let name = |fate: &Fate<E>| match fate {
        Fate::Applied => "applied",
        Fate::Duplicate => "duplicate",
        Fate::Stale => "stale",
        Fate::Early => "early",
        Fate::Failed(_) => "failed",
        Fate::Refused(_) => "refused",
        Fate::Behind => "behind",
    };
    fates.iter().map(name).collect()
}

/// A set of numbers as ranges.
pub(super) fn ranges_of(numbers: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some(range) if range.end == number => range.end += 1,
            _ => ranges.push(number..number + 1),
        }
    }
    ranges
}

/// Everything up to the last, without a hole.
pub(super) fn contiguous(last: u64) -> Vec<Range<u64>> {
    std::iter::once(1..last + 1).collect()
}
