//! Keys whose work outlives one transaction.
//!
//! A leased key has a committed row *in progress* with a lease, an epoch and a recovery point. While the lease runs,
//! others are told to wait. When it expires, the next claim takes the work over, raises the epoch, and goes on at the
//! recovery point. Every transaction of leased work checks its epoch under a row lock that is held to the commit, so
//! that a worker which slept past its lease cannot write (I7).

use std::fmt;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use crate::error::Source;
use crate::once::{self, Outcome, Semel, undone};
use crate::store::{Store, Tx};
use crate::{Ask, Claim, Error, Execution, Key, Recorded, Reply, Scope, observe};

/// The longest recovery point, in characters. The database checks the same bound (I12).
pub const MAX_POINT_CHARACTERS: usize = 100;

/// Where leased work would be resumed: a name, never a position.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecoveryPoint(String);

/// Why a recovery point was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a recovery point must be 1 to {MAX_POINT_CHARACTERS} visible ASCII characters, not {0:?}")]
pub struct InvalidPoint(String);

impl RecoveryPoint {
    /// Names a recovery point.
    pub fn new(name: impl Into<String>) -> Result<RecoveryPoint, InvalidPoint> {
        let name = name.into();
        let fits = (1..=MAX_POINT_CHARACTERS).contains(&name.len());
        if !fits || !name.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(InvalidPoint(name));
        }
        Ok(RecoveryPoint(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RecoveryPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a worker asks for when it leases a key.
#[derive(Debug, Clone)]
pub struct LeaseTerms {
    /// How long the lease runs without renewal.
    pub lease_for: Duration,
    /// Who asks, for operators to read.
    pub holder: String,
    /// What to do with work whose lease expired.
    pub on_expiry: OnExpiry,
    /// How long the key is kept, counted from the last change.
    pub retain: Duration,
}

/// What becomes of leased work whose worker is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExpiry {
    /// The next claim takes it over at its recovery point.
    Resume,
    /// It is held as *unknown* until somebody finds out what happened.
    Hold,
}

/// The right to work on a key, until it expires or somebody else takes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// What was asked.
    pub ask: Ask,
    /// The run; it stays the same over takeovers.
    pub execution: Execution,
    /// How often the work changed hands, counted from one. The fence compares it.
    pub epoch: i64,
    /// Where the work goes on, if an earlier worker got anywhere.
    pub recovery_point: Option<RecoveryPoint>,
    /// How long the lease runs without renewal.
    pub lease_for: Duration,
    /// How long the key is kept, counted from the last change.
    pub retain: Duration,
}

impl Lease {
    /// Whose key it is.
    pub fn scope(&self) -> &Scope {
        &self.ask.scope
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.ask.key
    }
}

impl<S: Store> Semel<S> {
    /// Leases a key. [`Claim::Fresh`] starts the work, [`Claim::Resume`] goes on with somebody else's.
    pub async fn lease(&self, ask: &Ask, terms: &LeaseTerms) -> Result<Claim<Lease, Recorded>, Error> {
        let keep = self.settings().retention.keep();
        if terms.retain < keep {
            return Err(Error::Settings(format!(
                "leased work would be kept for {} s and keys are kept for {} s; a retry after that would run a second \
                 time (I9)",
                terms.retain.as_secs_f64(),
                keep.as_secs_f64()
            )));
        }
        let claim = self.store().lease(ask, terms).await?;
        claim.try_map_replay(|stored| self.open(ask, &stored))
    }

    /// Runs `step` in a fenced transaction and moves the recovery point with it, in one commit.
    ///
    /// After `Ok` both are durable, and the lease stands at `point`; after an error neither is, save for
    /// [`Error::Ambiguous`]. A worker that lost its lease gets [`Error::Fenced`] and changes nothing (I7). A step that
    /// was committed before gets [`Error::Advanced`] and is not committed again. The step runs again after a
    /// serialization failure.
    pub async fn advance<T, E, F>(&self, lease: &mut Lease, point: &RecoveryPoint, step: F) -> Result<T, once::Error<E>>
    where
        F: AsyncFn(&mut S::Tx) -> Result<T, E>,
    {
        let mut attempt = 1;
        // What a step returned whose commit was not acknowledged. The fence waits for the row lock, so the next look at
        // the recovery point tells what became of it.
        let mut unheard: Option<(T, Source)> = None;
        loop {
            let mut tx = match (self.begin_fenced(lease).await, unheard.take()) {
                (Ok(tx), _) => tx,
                (Err(Error::Advanced(Some(at))), Some((value, _))) if at == *point => {
                    lease.recovery_point = Some(at);
                    return Ok(value);
                }
                (Err(Error::Unavailable(_)), Some((_, cause))) => {
                    return Err(once::Error::Store(Error::Ambiguous(cause)));
                }
                (Err(error), _) => {
                    self.again(&mut attempt, lease.scope().operation(), once::Error::Store(error)).await?;
                    continue;
                }
            };
            let error = match self.run(&mut tx, &step).await {
                Ok(_) if tx.conflicted() => {
                    tx.rollback().await;
                    once::Error::Store(Error::Conflict("a statement of the step conflicted".into()))
                }
                Ok(value) => match tx.advance(point).await {
                    Ok(()) => {
                        lease.recovery_point = Some(point.clone());
                        return Ok(value);
                    }
                    Err(Error::Ambiguous(cause)) => {
                        unheard = Some((value, cause));
                        continue;
                    }
                    Err(error) => once::Error::Store(error),
                },
                Err(error) => undone(tx, error).await?,
            };
            self.again(&mut attempt, lease.scope().operation(), error).await?;
        }
    }

    /// Runs the last step in a fenced transaction and completes the key with its reply, in one commit.
    ///
    /// Which replies are stored follows [`crate::Disposition`]; where the reply is not stored, the lease stays.
    pub async fn finish_leased<E, F>(&self, lease: &Lease, step: F) -> Result<Outcome, once::Error<E>>
    where
        F: AsyncFn(&mut S::Tx) -> Result<Reply, E>,
    {
        let mut attempt = 1;
        loop {
            let mut tx = match self.begin_fenced(lease).await {
                Ok(tx) => tx,
                Err(error) => {
                    self.again(&mut attempt, lease.scope().operation(), once::Error::Store(error)).await?;
                    continue;
                }
            };
            let error = match self.run(&mut tx, &step).await {
                Ok(reply) => match self.finish(&lease.ask, tx, &reply).await {
                    Ok(finished) => return Ok(finished.outcome(reply)),
                    Err(error) => once::Error::Store(error),
                },
                Err(error) => undone(tx, error).await?,
            };
            self.again(&mut attempt, lease.scope().operation(), error).await?;
        }
    }

    /// Renews the lease in the background until the guard is dropped, three times per lease.
    pub fn keep_alive(&self, lease: &Lease) -> KeepAlive {
        let (lost, watching) = watch::channel(false);
        let (stop, mut stopping) = oneshot::channel();
        let (store, lease) = (self.store().clone(), lease.clone());
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval((lease.lease_for / 3).max(Duration::from_millis(1)));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await;
            let mut renewed = Instant::now();
            loop {
                tokio::select! {
                    _ = &mut stopping => return,
                    _ = ticks.tick() => {}
                }
                let asked = Instant::now();
                match store.renew(&lease, lease.lease_for).await {
                    Ok(true) => renewed = asked,
                    Ok(false) => return,
                    Err(error) => {
                        let operation = lease.scope().operation();
                        if matches!(error, Error::Fenced) || renewed.elapsed() >= lease.lease_for {
                            tracing::warn!(operation, %error, "the lease was lost");
                            lost.send_replace(true);
                            return;
                        }
                        tracing::warn!(operation, %error, "the lease could not be renewed and will be tried again");
                    }
                }
            }
        });
        KeepAlive { task, stop: Some(stop), watching }
    }

    async fn begin_fenced(&self, lease: &Lease) -> Result<S::Tx, Error> {
        let begun = self.store().begin_fenced(lease).await;
        if matches!(begun, Err(Error::Fenced)) {
            observe::fenced_write();
        }
        begun
    }
}

/// Renews a lease while it lives. Dropping it stops the renewal; the lease then runs out by itself.
#[derive(Debug)]
pub struct KeepAlive {
    task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
    watching: watch::Receiver<bool>,
}

impl KeepAlive {
    /// Returns once the lease was lost to another worker; never, if it is not. For `select!` beside the work.
    pub async fn lost(&mut self) {
        if self.watching.wait_for(|lost| *lost).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl KeepAlive {
    /// Stops the renewal and waits for one that is under way, so that a release which follows has the last word.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        let _ = (&mut self.task).await;
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.task.abort();
    }
}
