//! What the suite needs of a store beyond its promises.

use std::future::Future;

use semel::{Error, Event, Fingerprint, Key, Outbox, Outcome, Scope, Semel, Store};

/// A store on a database of its own, with a table `effects` that tests count in and a table `counters` that they count
/// with.
pub trait Harness: Sized + Send + Sync + 'static {
    /// The store under test.
    type Store: Outbox;

    /// A fresh, migrated database.
    fn create() -> impl Future<Output = Self> + Send;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// Another handle on the same database, as another process would have.
    fn another(&self) -> impl Future<Output = Self::Store> + Send;

    /// Adds a row to `effects`, inside the transaction.
    fn insert(tx: &mut <Self::Store as Store>::Tx, label: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Adds one to the row of `counters` with this name, inside the transaction, and returns what it counts then.
    fn count_up(tx: &mut <Self::Store as Store>::Tx, name: &str) -> impl Future<Output = Result<i64, Error>> + Send;

    /// Counts the committed rows of `effects` with this label.
    fn count(&self, label: &str) -> impl Future<Output = u64> + Send;

    /// Counts the committed audit rows with this reason.
    fn audits(&self, reason: &str) -> impl Future<Output = u64> + Send;

    /// Runs `joined` through [`Semel::once_tx`] in a transaction of the test's own, which it then commits or rolls
    /// back: adds a row labelled with the key to `effects`, emits each batch by a call of its own, and answers.
    fn once_joined(&self, semel: &Semel<Self::Store>, joined: &Joined<'_>) -> impl Future<Output = Outcome>;

    /// Emits each batch by a call of its own in a transaction without a key, which it then commits or rolls back.
    fn emit_joined(&self, batches: &[Vec<Event>], commit: bool) -> impl Future<Output = Result<(), Error>>;

    /// Makes everything that is stored so far, relays aside, that of another incarnation, as a restore does.
    fn reincarnate(&self) -> impl Future<Output = ()> + Send;
}

/// A keyed operation in a transaction that the test owns.
#[derive(Debug)]
pub struct Joined<'a> {
    /// Whose key it is.
    pub scope: &'a Scope,
    /// The key.
    pub key: &'a Key,
    /// The request's fingerprint.
    pub fingerprint: &'a Fingerprint,
    /// What it answers.
    pub status: u16,
    /// What it emits, a call each.
    pub batches: &'a [Vec<Event>],
    /// Whether the transaction is committed in the end.
    pub commit: bool,
}
