//! What the suite needs of a store beyond its promises.

use std::future::Future;
use std::ops::Range;
use std::time::Duration;

use semel::consume::Consumed;
use semel::inbox::{Accepted, Sequence};
use semel::once::Error as OnceError;
use semel::{Consumer, Delivery, Error, Event, Inbox, Outbox, Semel, Store};

/// A store on a database of its own, with a table `effects` that tests count in.
pub trait Harness: Sized + Send + Sync + 'static {
    /// The store under test.
    type Store: Inbox + Outbox;

    /// Whether transactions that meet may be rolled back as conflicts more often than they are run again, as above READ
    /// COMMITTED. A broker delivers such a message again, and so do the tests.
    const CONFLICTS: bool = false;

    /// A fresh, migrated database.
    fn create() -> impl Future<Output = Self> + Send;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// Another handle on the same database, as another process would have.
    fn another(&self) -> impl Future<Output = Self::Store> + Send;

    /// Adds a row to `effects`, inside the transaction.
    fn insert(tx: &mut <Self::Store as Store>::Tx, label: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Defers an insert of one row to `effects` that claims to touch `rows` rows.
    fn defer(tx: &mut <Self::Store as Store>::Tx, label: &str, rows: u32);

    /// Runs a statement that the database refuses, such as one that adds a row without a label, and returns its error.
    fn refuse(tx: &mut <Self::Store as Store>::Tx) -> impl Future<Output = Error> + Send;

    /// Ends the transaction's own connection from the side of the database, as a crash of it would. `false` where there
    /// is none.
    fn cut(tx: &mut <Self::Store as Store>::Tx) -> impl Future<Output = bool> + Send {
        let _ = tx;
        async { false }
    }

    /// Counts the committed rows of `effects` with this label.
    fn count(&self, label: &str) -> impl Future<Output = u64> + Send;

    /// What is stored of a lane: the ranges of the sequences that were applied, in order, whatever `lane.sequence` is.
    fn ranges(&self, consumer: &Consumer, lane: &Sequence) -> impl Future<Output = Vec<Range<u64>>> + Send;

    /// Makes every id that was seen, and every letter that was applied, older by this much.
    fn age(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Counts the committed audit rows with this reason.
    fn audits(&self, reason: &str) -> impl Future<Output = u64> + Send;

    /// Runs `joined` through [`Semel::consume_tx`] in a transaction of the test's own: its effect adds a row to
    /// `effects` and emits the event. The transaction is then committed if that is asked for and there is no error and
    /// the message is not early; otherwise it is rolled back.
    fn consume_joined(
        &self,
        semel: &Semel<Self::Store>,
        joined: &Joined<'_>,
    ) -> impl Future<Output = Result<Consumed<()>, OnceError<Error>>>;

    /// Accepts these by one call of `JoinInbox::accept` in a transaction of the test's own, which is then committed or
    /// rolled back; after an error it is rolled back.
    fn accept_joined(
        &self,
        consumer: &Consumer,
        deliveries: &[Delivery],
        commit: bool,
    ) -> impl Future<Output = Result<Vec<Accepted>, Error>>;
}

/// A message that is consumed in a transaction that the test owns.
#[derive(Debug)]
pub struct Joined<'a> {
    /// Who consumes it.
    pub consumer: &'a Consumer,
    /// The message.
    pub delivery: &'a Delivery,
    /// The label of its effect.
    pub label: &'a str,
    /// What its effect emits.
    pub event: Event,
    /// Whether the transaction is committed in the end.
    pub commit: bool,
}
