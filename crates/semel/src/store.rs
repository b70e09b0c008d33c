//! What a store implements, and what a transaction of a store can do.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use crate::flow::{Job, Settled};
use crate::lease::{Lease, LeaseTerms, RecoveryPoint};
use crate::operator::{Audit, Eviction, KeyFilter, KeyRecord};
use crate::{Ask, Claim, Error, Event, Execution, Key, Scope};

/// Where keys, replies and leases live: the service's own database.
///
/// Every implementation passes the same conformance suite. A store that cannot be asked answers
/// [`Error::Unavailable`]; it never guesses (I10).
pub trait Store: Clone + Send + Sync + 'static {
    /// A transaction of this store that holds a claim. Owned, so that an HTTP layer can hand it to a handler.
    type Tx: Tx;

    /// Asks for a key. On [`Claim::Fresh`] the caller holds an open transaction, and nobody else can hold one for the
    /// same scope and key until it ends. All other answers leave nothing open.
    fn claim(&self, ask: &Ask) -> impl Future<Output = Result<Claim<Self::Tx, Stored>, Error>> + Send;

    /// Asks for a key whose work outlives one transaction. On [`Claim::Fresh`] and [`Claim::Resume`] a row with lease
    /// and epoch is committed.
    fn lease(&self, ask: &Ask, terms: &LeaseTerms) -> impl Future<Output = Result<Claim<Lease, Stored>, Error>> + Send;

    /// Extends a lease to `lease_for` from now. `false` if the work has ended under this very lease; [`Error::Fenced`]
    /// if another worker took over.
    fn renew(&self, lease: &Lease, lease_for: Duration) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Ends a lease now, so that a retry can take the work over at its recovery point. A lost lease is left alone.
    fn release(&self, lease: &Lease) -> impl Future<Output = Result<(), Error>> + Send;

    /// Takes a lease back under which nothing was done, so that the key is new again. Work that has a recovery point or
    /// was taken over is only released.
    fn abandon(&self, lease: &Lease) -> impl Future<Output = Result<(), Error>> + Send;

    /// Opens a transaction in which the lease's execution and epoch were checked under a row lock that is held to the
    /// commit (I7). [`Error::Advanced`] if the work stands elsewhere than at the lease's recovery point.
    fn begin_fenced(&self, lease: &Lease) -> impl Future<Output = Result<Self::Tx, Error>> + Send;

    /// Deletes up to `limit` expired keys, never waiting for one that is in use, and says how many.
    fn reap(&self, limit: u32) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Counts leases that expired while their work was unfinished.
    fn stuck_leases(&self) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Checks that the database answers and has this version's schema.
    fn check(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Remembers which sealing keys this process can open, and fails if a live row needs one that is missing.
    fn check_seals(&self, known: &[String]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Lists keys for an operator, newest first.
    fn list_keys(&self, filter: &KeyFilter) -> impl Future<Output = Result<Vec<KeyRecord>, Error>> + Send;

    /// Looks one key up for an operator.
    fn show_key(&self, scope: &Scope, key: &Key) -> impl Future<Output = Result<Option<KeyRecord>, Error>> + Send;

    /// Removes a key so that its next request runs as new, and writes the audit row in the same commit. A key in
    /// flight is refused, and so is one that `expected` names another run of. With `dry_run` nothing is changed.
    fn evict_key(
        &self,
        scope: &Scope,
        key: &Key,
        expected: Option<Execution>,
        audit: &Audit,
        dry_run: bool,
    ) -> impl Future<Output = Result<Eviction, Error>> + Send;
}

/// A transaction that holds a claim or a fence. Dropping it rolls it back.
///
/// The methods that run statements belong to each store's own type.
pub trait Tx: Send + Sized + 'static {
    /// The run this transaction belongs to.
    fn execution(&self) -> Execution;

    /// Whether execution has begun: a statement was run or deferred, or an event emitted.
    fn begun(&self) -> bool;

    /// Whether a statement met a serialization failure or deadlock, so that running all of it again may succeed.
    fn conflicted(&self) -> bool;

    /// Emits an event: it is written at the completion and published if and only if this transaction commits (I4). An
    /// effect that is rolled back takes its events along. Execution begins here, if it had not.
    ///
    /// More events or ordering keys than one transaction may have make the completion fail.
    fn emit(&mut self, event: Event);

    /// Stages a job: a flow that starts if and only if this transaction commits. An effect that is rolled back takes
    /// its jobs along. Execution begins here, if it had not. More jobs than one transaction may have make the
    /// completion fail.
    fn stage(&mut self, job: Job);

    /// Stores the reply and commits. After `Ok`, effect and reply are durable and visible together (I1); after any
    /// error but [`Error::Ambiguous`], neither is.
    fn complete(self, completion: &Completion) -> impl Future<Output = Result<(), Error>> + Send;

    /// Moves the recovery point of leased work from where the lease says and commits, with what the transaction did.
    /// The lease runs on from now.
    fn advance(self, point: &RecoveryPoint) -> impl Future<Output = Result<(), Error>> + Send;

    /// Records the end of a step of a flow and commits, with what the transaction did: both are durable, or neither
    /// (I1). Only for a transaction of [`FlowStore::begin_step`](crate::flow::FlowStore::begin_step). A step that is
    /// recorded already makes it fail with [`Error::Raced`]; the effect is not committed a second time (I2).
    fn record(self, settled: &Settled) -> impl Future<Output = Result<(), Error>> + Send;

    /// Rolls everything back. The key stays as it was before the claim.
    fn rollback(self) -> impl Future<Output = ()> + Send;
}

/// A transaction that the caller began and will commit, on whatever driver.
///
/// Nothing is retried. After the caller's commit, effect and reply are visible together; after the caller's rollback,
/// neither is (I1).
///
/// `S` is the store whose tables the transaction works on: `impl Join<Postgres> for` a driver's transaction.
pub trait Join<S> {
    /// Asks for a key inside the caller's transaction. `ask.wait` is ignored: it never blocks.
    fn claim(&mut self, ask: &Ask) -> impl Future<Output = Result<Claim<Execution, Stored>, Error>>;

    /// Sets the savepoint to which a refused effect is rolled back.
    fn savepoint(&mut self) -> impl Future<Output = Result<(), Error>>;

    /// Rolls back to [`Join::savepoint`]; the claim stays.
    fn rollback_to_savepoint(&mut self) -> impl Future<Output = Result<(), Error>>;

    /// Writes events, which are published if and only if the caller commits (I4). Their ordering keys stay locked until
    /// then: transactions that emit to several keys pass them all at once, or always in the same order. Outside a keyed
    /// operation the transaction gets an execution of its own.
    fn emit(&mut self, events: &[Event]) -> impl Future<Output = Result<(), Error>>;

    /// Stores the reply. It is durable when the caller commits. `completion.keep_effect` is not read: the caller has
    /// rolled back to the savepoint already.
    fn complete(&mut self, ask: &Ask, completion: &Completion) -> impl Future<Output = Result<(), Error>>;
}

/// A reply as a store keeps it: header lines and body are opaque bytes, sealed or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The run that made it.
    pub execution: Execution,
    /// The HTTP status.
    pub status: u16,
    /// The header lines.
    pub headers: Bytes,
    /// The body.
    pub body: Bytes,
    /// The id of the key that headers and body are sealed with, if any.
    pub sealed_by: Option<String>,
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// What to keep.
    pub stored: Stored,
    /// Whether the effect commits with the reply, or is rolled back to the claim first.
    pub keep_effect: bool,
    /// Whether the key's state is *failed* rather than *completed*.
    pub failed: bool,
    /// How long the key is kept from now.
    pub retain: Duration,
}
