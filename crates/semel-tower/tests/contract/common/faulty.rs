//! A real store whose commits and leases can be stopped or made to fail.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::flow::{Job, Settled};
use semel::lease::{Lease, LeaseTerms, RecoveryPoint};
use semel::operator::{Audit, Eviction, KeyFilter, KeyRecord};
use semel::{Ask, Claim, Completion, Error, Event, Execution, Key, Scope, Store, Stored, Tx};

use super::backend::Backend;
use super::script::Hold;

/// What happens to a commit.
pub enum Fault {
    /// It waits before it begins, and then goes on.
    Stop(Hold),
    /// It is rolled back by a serialization failure.
    Conflict,
    /// It commits, but the caller is told that another run was first.
    Raced,
    /// It commits, but nobody can tell the caller.
    Ambiguous,
}

#[derive(Clone, Default)]
struct Faults {
    of_commits: Arc<Mutex<VecDeque<Fault>>>,
    of_leases: Arc<Mutex<VecDeque<Hold>>>,
    deadlock: Arc<AtomicBool>,
}

#[derive(Clone)]
pub struct Faulty<S> {
    inner: S,
    faults: Faults,
}

pub struct FaultyTx<T> {
    inner: T,
    faults: Faults,
}

impl<T> Deref for FaultyTx<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for FaultyTx<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<S: Store> Store for Faulty<S> {
    type Tx = FaultyTx<S::Tx>;

    async fn claim(&self, ask: &Ask) -> Result<Claim<Self::Tx, Stored>, Error> {
        Ok(match self.inner.claim(ask).await? {
            Claim::Fresh(inner) => Claim::Fresh(FaultyTx { inner, faults: self.faults.clone() }),
            Claim::Resume(inner) => Claim::Resume(FaultyTx { inner, faults: self.faults.clone() }),
            Claim::Replay(stored) => Claim::Replay(stored),
            Claim::InFlight { retry_after } => Claim::InFlight { retry_after },
            Claim::Mismatch => Claim::Mismatch,
            Claim::Unknown => Claim::Unknown,
        })
    }

    async fn lease(&self, ask: &Ask, terms: &LeaseTerms) -> Result<Claim<Lease, Stored>, Error> {
        let claim = self.inner.lease(ask, terms).await?;
        let hold = self.faults.of_leases.lock().unwrap().pop_front();
        if let Some(hold) = hold {
            hold.stop().await;
        }
        Ok(claim)
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<bool, Error> {
        self.inner.renew(lease, lease_for).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), Error> {
        self.inner.release(lease).await
    }

    async fn abandon(&self, lease: &Lease) -> Result<(), Error> {
        self.inner.abandon(lease).await
    }

    async fn begin_fenced(&self, lease: &Lease) -> Result<Self::Tx, Error> {
        Ok(FaultyTx { inner: self.inner.begin_fenced(lease).await?, faults: self.faults.clone() })
    }

    async fn reap(&self, limit: u32) -> Result<u64, Error> {
        self.inner.reap(limit).await
    }

    async fn stuck_leases(&self) -> Result<u64, Error> {
        self.inner.stuck_leases().await
    }

    async fn check(&self) -> Result<(), Error> {
        self.inner.check().await
    }

    async fn check_seals(&self, known: &[String]) -> Result<(), Error> {
        self.inner.check_seals(known).await
    }

    async fn list_keys(&self, filter: &KeyFilter) -> Result<Vec<KeyRecord>, Error> {
        self.inner.list_keys(filter).await
    }

    async fn show_key(&self, scope: &Scope, key: &Key) -> Result<Option<KeyRecord>, Error> {
        self.inner.show_key(scope, key).await
    }

    async fn evict_key(
        &self,
        scope: &Scope,
        key: &Key,
        expected: Option<Execution>,
        audit: &Audit,
        dry_run: bool,
    ) -> Result<Eviction, Error> {
        self.inner.evict_key(scope, key, expected, audit, dry_run).await
    }
}

impl<T: Tx> Tx for FaultyTx<T> {
    fn execution(&self) -> Execution {
        self.inner.execution()
    }

    fn begun(&self) -> bool {
        self.inner.begun()
    }

    fn conflicted(&self) -> bool {
        self.inner.conflicted() || self.faults.deadlock.swap(false, Ordering::SeqCst)
    }

    fn emit(&mut self, event: Event) {
        self.inner.emit(event);
    }

    fn stage(&mut self, job: Job) {
        self.inner.stage(job);
    }

    async fn complete(self, completion: &Completion) -> Result<(), Error> {
        let fault = self.faults.of_commits.lock().unwrap().pop_front();
        match fault {
            None => self.inner.complete(completion).await,
            Some(Fault::Stop(hold)) => {
                hold.stop().await;
                self.inner.complete(completion).await
            }
            Some(Fault::Conflict) => {
                self.inner.rollback().await;
                Err(Error::Conflict("could not serialize access".into()))
            }
            Some(Fault::Raced) => {
                self.inner.complete(completion).await?;
                Err(Error::Raced)
            }
            Some(Fault::Ambiguous) => {
                self.inner.complete(completion).await?;
                Err(Error::Ambiguous("the acknowledgement was lost".into()))
            }
        }
    }

    async fn advance(self, point: &RecoveryPoint) -> Result<(), Error> {
        self.inner.advance(point).await
    }

    async fn record(self, settled: &Settled) -> Result<(), Error> {
        self.inner.record(settled).await
    }

    async fn rollback(self) {
        self.inner.rollback().await;
    }
}

/// A backend whose commits and leases can be stopped or made to fail.
pub struct FaultyBackend<B> {
    pub inner: B,
    faults: Faults,
}

impl<B> FaultyBackend<B> {
    /// The next transaction that is asked was chosen as a deadlock's victim.
    pub fn next_deadlocks(&self) {
        self.faults.deadlock.store(true, Ordering::SeqCst);
    }

    /// The next lease is committed and stops before anybody is told.
    pub fn next_lease_stops(&self, hold: Hold) {
        self.faults.of_leases.lock().unwrap().push_back(hold);
    }

    /// The next commit meets this.
    pub fn next(&self, fault: Fault) {
        self.faults.of_commits.lock().unwrap().push_back(fault);
    }
}

impl<B: Backend> Backend for FaultyBackend<B> {
    type Store = Faulty<B::Store>;

    async fn start() -> FaultyBackend<B> {
        FaultyBackend { inner: B::start().await, faults: Faults::default() }
    }

    fn store(&self) -> Faulty<B::Store> {
        Faulty { inner: self.inner.store(), faults: self.faults.clone() }
    }

    async fn act(tx: &mut FaultyTx<<B::Store as Store>::Tx>, note: &str) -> Result<(), Error> {
        B::act(&mut tx.inner, note).await
    }

    async fn count(tx: &mut FaultyTx<<B::Store as Store>::Tx>) -> Result<(), Error> {
        B::count(&mut tx.inner).await
    }

    async fn effects(&self) -> i64 {
        self.inner.effects().await
    }

    async fn expire_keys(&self) {
        self.inner.expire_keys().await;
    }

    async fn expire_leases(&self) {
        self.inner.expire_leases().await;
    }

    async fn states(&self) -> Vec<String> {
        self.inner.states().await
    }

    async fn executions(&self) -> Vec<Vec<u8>> {
        self.inner.executions().await
    }

    async fn break_off(&mut self) {
        self.inner.break_off().await;
    }

    async fn mend(&mut self) {
        self.inner.mend().await;
    }
}
