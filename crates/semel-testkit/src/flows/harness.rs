//! What the suite needs of a store beyond its promises.

use std::future::Future;
use std::time::Duration;

use semel::flow::FlowStore;
use semel::{Error, Inbox, Outbox, Store};

/// A store on a database of its own, with a table `effects` that tests count in.
pub trait Harness: Sized + Send + Sync + 'static {
    /// The store under test.
    type Store: FlowStore + Inbox + Outbox;

    /// A fresh, migrated database.
    fn create() -> impl Future<Output = Self> + Send;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// Another handle on the same database, as another process would have. It belongs to the runtime that it is opened
    /// in, and ends with it.
    fn another(&self) -> impl Future<Output = Self::Store> + Send;

    /// Adds a row to `effects`, inside the transaction.
    fn insert(tx: &mut <Self::Store as Store>::Tx, label: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Begins an ordinary transaction, without a key.
    fn begin(&self) -> impl Future<Output = <Self::Store as Store>::Tx> + Send;

    /// Commits what [`Harness::begin`] began.
    fn commit(tx: <Self::Store as Store>::Tx) -> impl Future<Output = Result<(), Error>> + Send;

    /// Counts the committed rows of `effects` with this label.
    fn count(&self, label: &str) -> impl Future<Output = u64> + Send;

    /// Counts the committed audit rows with this reason.
    fn audits(&self, reason: &str) -> impl Future<Output = u64> + Send;

    /// How many rows there are of flows, and of their steps.
    fn rows(&self) -> impl Future<Output = Rows> + Send;

    /// Every input, result and failure of a flow, as they lie in the database.
    fn kept(&self) -> impl Future<Output = Vec<Vec<u8>>> + Send;

    /// Puts these bytes in the place of the result of every step of this name, as a version before this one may have
    /// written them.
    fn rewrite(&self, step: &str, result: &[u8]) -> impl Future<Output = ()> + Send;

    /// Makes every key, lease, flow and step older by this much.
    fn age(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Makes every flow that is stored so far one of another incarnation of the database, as a restore does.
    fn reincarnate(&self) -> impl Future<Output = ()> + Send;
}

/// How many rows there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Of flows.
    pub flows: u64,
    /// Of their steps.
    pub steps: u64,
}
