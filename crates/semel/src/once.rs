//! Claim, act, store: one commit.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::disposition::Disposition;
use crate::error::{Next, Source};
use crate::store::{Completion, Join, Store, Stored, Tx};
use crate::{
    Ask, Claim, Error as StoreError, Execution, Fingerprint, Key, Keyring, Recorded, Reply, Retention, Scope, observe,
    reply,
};

/// How much longer than a claim's own wait it may take to be answered.
const PAST_THE_WAIT: Duration = Duration::from_secs(2);

/// What a service decides once, at start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long keys are kept.
    pub retention: Retention,
    /// The most bytes a stored reply may take.
    pub reply_limit: usize,
    /// How long one run may take before it is rolled back. Give the store the same deadline.
    pub deadline: Duration,
    /// How often a closure is run in all when serialization failures or deadlocks roll it back.
    pub attempts: u32,
    /// How long to go on asking whether a commit took effect whose acknowledgement was lost.
    pub settle_for: Duration,
    /// Seals stored replies, if set.
    pub keyring: Option<Keyring>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            retention: Retention::default(),
            reply_limit: 1024 * 1024,
            deadline: Duration::from_secs(30),
            attempts: 5,
            settle_for: Duration::from_secs(5),
            keyring: None,
        }
    }
}

/// Makes keyed work run once, on the store `S`. Cheap to clone.
#[derive(Debug)]
pub struct Semel<S> {
    store: S,
    settings: Arc<Settings>,
}

impl<S: Clone> Clone for Semel<S> {
    fn clone(&self) -> Semel<S> {
        Semel { store: self.store.clone(), settings: Arc::clone(&self.settings) }
    }
}

/// How keyed work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It ran now, and its reply is stored. Whether its effect was committed follows from the reply's status.
    Fresh(Reply),
    /// It had run before; this is what it answered then.
    Replayed(Reply),
    /// It ran now and answered something that is not stored. All was rolled back and the key stays new.
    Forgotten(Reply),
}

impl Outcome {
    /// The reply, however it came about.
    pub fn reply(&self) -> &Reply {
        match self {
            Outcome::Fresh(reply) | Outcome::Replayed(reply) | Outcome::Forgotten(reply) => reply,
        }
    }
}

/// Why keyed work gave no reply. `E` is the closure's own error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error<E> {
    /// The same key is running now; ask again after `retry_after`.
    #[error("the same key is running now; ask again in {} ms", retry_after.as_millis())]
    InFlight {
        /// When asking again makes sense.
        retry_after: Duration,
    },
    /// The key has been used for another request; use a new one for a new intent.
    #[error("the key has been used for another request")]
    Mismatch,
    /// The work under this key was interrupted, and nobody knows yet whether it took effect.
    #[error("the work under this key was interrupted and its outcome is not known")]
    Unknown,
    /// The closure failed; all was rolled back and the key stays new.
    #[error("the work failed and was rolled back")]
    Effect(E),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What became of a finished run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// The reply is stored and durable.
    Stored,
    /// All was rolled back; the key stays new.
    Forgotten,
}

impl Finished {
    /// Pairs the reply with what became of it.
    pub fn outcome(self, reply: Reply) -> Outcome {
        match self {
            Finished::Stored => Outcome::Fresh(reply),
            Finished::Forgotten => Outcome::Forgotten(reply),
        }
    }
}

impl<S: Store> Semel<S> {
    /// Semel with its default settings.
    pub fn new(store: S) -> Semel<S> {
        Semel { store, settings: Arc::new(Settings::default()) }
    }

    /// Semel with these settings. Fails if a limit is out of bounds, or if stored replies need a sealing key that the
    /// keyring lacks.
    pub async fn with_settings(store: S, settings: Settings) -> Result<Semel<S>, StoreError> {
        if settings.reply_limit > reply::MAX_BODY_BYTES {
            return Err(StoreError::Settings(format!(
                "reply_limit is {} bytes and may be at most {}",
                settings.reply_limit,
                reply::MAX_BODY_BYTES
            )));
        }
        if settings.attempts == 0 || settings.deadline.is_zero() {
            return Err(StoreError::Settings("attempts and transaction_deadline must be above zero".to_owned()));
        }
        store.check_seals(&settings.keyring.as_ref().map(Keyring::ids).unwrap_or_default()).await?;
        Ok(Semel { store, settings: Arc::new(settings) })
    }

    /// The store beneath.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// What was decided at start.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs `effect` once for this scope and key, and stores its reply in the same commit.
    ///
    /// After `Outcome::Fresh`, the reply is durable, and with it the effect if the reply's status commits it
    /// ([`Disposition`]). After `Outcome::Replayed`, nothing ran. After an error nothing was committed, save for
    /// [`StoreError::Ambiguous`], where asking again with the same key tells. A crash at any point leaves either both
    /// effect and reply, or neither (I1, I2).
    ///
    /// `effect` is run again from its start after a serialization failure or deadlock, so what it does outside the
    /// transaction may happen more than once. It must not take longer than the deadline.
    pub async fn once<E, F>(
        &self,
        scope: &Scope,
        key: &Key,
        fingerprint: &Fingerprint,
        effect: F,
    ) -> Result<Outcome, Error<E>>
    where
        F: AsyncFn(&mut S::Tx) -> Result<Reply, E>,
    {
        let ask = Ask::new(scope, key, fingerprint);
        let result = self.once_asked(&ask, effect).await;
        observe::key_request(scope.operation(), outcome_name(&result));
        result
    }

    async fn once_asked<E, F>(&self, ask: &Ask, effect: F) -> Result<Outcome, Error<E>>
    where
        F: AsyncFn(&mut S::Tx) -> Result<Reply, E>,
    {
        let mut attempt = 1;
        loop {
            let mut tx = match self.claim(ask).await {
                Ok(Claim::Fresh(tx)) => tx,
                Ok(Claim::Replay(recorded)) => return Ok(Outcome::Replayed(recorded.reply)),
                Ok(Claim::InFlight { retry_after }) => return Err(Error::InFlight { retry_after }),
                Ok(Claim::Mismatch) => return Err(Error::Mismatch),
                Ok(Claim::Resume(_) | Claim::Unknown) => return Err(Error::Unknown),
                Err(error) => {
                    self.again(&mut attempt, ask.scope.operation(), Error::Store(error)).await?;
                    continue;
                }
            };
            let error = match self.run(&mut tx, &effect).await {
                Ok(reply) => match self.finish(ask, tx, &reply).await {
                    Ok(finished) => return Ok(finished.outcome(reply)),
                    Err(error) => Error::Store(error),
                },
                Err(error) => undone(tx, error).await?,
            };
            self.again(&mut attempt, ask.scope.operation(), error).await?;
        }
    }

    /// Asks for a key and opens a stored reply: the first half of [`Semel::once`], for layers that run the work
    /// themselves.
    pub async fn claim(&self, ask: &Ask) -> Result<Claim<S::Tx, Recorded>, StoreError> {
        let started = std::time::Instant::now();
        let claim = self.store.claim(ask).await;
        observe::claim_took(started.elapsed());
        claim?.try_map_replay(|stored| self.open(ask, &stored))
    }

    /// Ends a run by its reply: the second half of [`Semel::once`]. A commit whose acknowledgement was lost is asked
    /// about, not guessed.
    pub async fn finish(&self, ask: &Ask, tx: S::Tx, reply: &Reply) -> Result<Finished, StoreError> {
        if tx.conflicted() {
            // Whatever the work made of it: another run may succeed, so no answer to this one is final.
            tx.rollback().await;
            return Err(StoreError::Conflict("a statement of the work conflicted".into()));
        }
        let disposition = Disposition::of(reply.status(), reply.mark(), tx.begun());
        let (keep_effect, failed) = match disposition {
            Disposition::Commit => (true, false),
            Disposition::StoreOnly { failed } => (false, failed),
            Disposition::Forget => {
                tx.rollback().await;
                return Ok(Finished::Forgotten);
            }
        };
        let execution = tx.execution();
        let completion = match self.completion(ask, execution, reply, keep_effect, failed) {
            Ok(completion) => completion,
            Err(error) => {
                tx.rollback().await;
                return Err(error);
            }
        };
        match tx.complete(&completion).await {
            Ok(()) => Ok(Finished::Stored),
            Err(StoreError::Ambiguous(cause)) => {
                self.settle(ask, &completion.stored, cause).await?;
                Ok(Finished::Stored)
            }
            Err(error) => {
                if matches!(error, StoreError::Fenced) {
                    observe::fenced_write();
                }
                Err(error)
            }
        }
    }

    /// [`Semel::once`] inside a transaction that the caller owns and commits, on any driver that the store supports.
    ///
    /// Nothing is retried; [`StoreError::next`] says what the caller may do. After an error the caller must roll back.
    /// `Outcome::Fresh` means *stored when the caller commits*.
    pub async fn once_tx<J, E, F>(
        &self,
        tx: &mut J,
        scope: &Scope,
        key: &Key,
        fingerprint: &Fingerprint,
        effect: F,
    ) -> Result<Outcome, Error<E>>
    where
        J: Join<S>,
        F: AsyncFnOnce(&mut J) -> Result<Reply, E>,
    {
        let ask = Ask::new(scope, key, fingerprint);
        let result = self.once_joined(tx, &ask, effect).await;
        observe::key_request(scope.operation(), outcome_name(&result));
        result
    }

    async fn once_joined<J, E, F>(&self, tx: &mut J, ask: &Ask, effect: F) -> Result<Outcome, Error<E>>
    where
        J: Join<S>,
        F: AsyncFnOnce(&mut J) -> Result<Reply, E>,
    {
        let execution = match tx.claim(ask).await?.try_map_replay(|stored| self.open(ask, &stored))? {
            Claim::Fresh(execution) => execution,
            Claim::Replay(recorded) => return Ok(Outcome::Replayed(recorded.reply)),
            Claim::InFlight { retry_after } => return Err(Error::InFlight { retry_after }),
            Claim::Mismatch => return Err(Error::Mismatch),
            Claim::Resume(_) | Claim::Unknown => return Err(Error::Unknown),
        };
        tx.savepoint().await?;
        let reply = effect(tx).await.map_err(Error::Effect)?;
        let (keep_effect, failed) = match Disposition::of(reply.status(), reply.mark(), true) {
            Disposition::Commit => (true, false),
            Disposition::StoreOnly { failed } => (false, failed),
            Disposition::Forget => {
                tx.rollback_to_savepoint().await?;
                return Ok(Outcome::Forgotten(reply));
            }
        };
        if !keep_effect {
            tx.rollback_to_savepoint().await?;
        }
        let completion = self.completion(ask, execution, &reply, keep_effect, failed)?;
        tx.complete(ask, &completion).await?;
        Ok(Outcome::Fresh(reply))
    }

    /// Opens a stored reply.
    pub(crate) fn open(&self, ask: &Ask, stored: &Stored) -> Result<Recorded, StoreError> {
        let (headers, body) = match &stored.sealed_by {
            None => (stored.headers.clone(), stored.body.clone()),
            Some(id) => {
                let keyring = self.settings.keyring.as_ref().ok_or_else(|| {
                    StoreError::Settings(format!("a stored reply is sealed with key {id:?} and no keyring is set"))
                })?;
                keyring.open(ask, stored).map_err(|error| StoreError::Reply(error.into()))?
            }
        };
        let reply =
            Reply::from_stored(stored.status, &headers, body).map_err(|error| StoreError::Reply(error.into()))?;
        Ok(Recorded { execution: stored.execution, reply })
    }

    /// Runs the work under the deadline.
    pub(crate) async fn run<T, E, F>(&self, tx: &mut S::Tx, work: &F) -> Result<T, Error<E>>
    where
        F: AsyncFn(&mut S::Tx) -> Result<T, E>,
    {
        match timeout(self.settings.deadline, work(tx)).await {
            Ok(result) => result.map_err(Error::Effect),
            Err(_) => Err(Error::Store(StoreError::Deadline)),
        }
    }

    /// Decides whether to run the work again after `error`, and pauses before it does.
    pub(crate) async fn again<E>(&self, attempt: &mut u32, operation: &str, error: Error<E>) -> Result<(), Error<E>> {
        let repeatable = match &error {
            Error::Store(error) => matches!(error.next(), Next::RunAgain) || matches!(error, StoreError::Raced),
            Error::Effect(_) => true,
            _ => false,
        };
        if !repeatable || *attempt >= self.settings.attempts {
            return Err(error);
        }
        observe::serialization_retry(operation);
        let jitter_ms = u64::from(Execution::mint().as_uuid().as_bytes()[0]) % 8;
        tokio::time::sleep(Duration::from_millis((1 << (*attempt).min(7)) + jitter_ms)).await;
        *attempt += 1;
        Ok(())
    }

    /// What is stored of a reply: within its limit (I12), and sealed if there is a keyring.
    pub(crate) fn completion(
        &self,
        ask: &Ask,
        execution: Execution,
        reply: &Reply,
        keep_effect: bool,
        failed: bool,
    ) -> Result<Completion, StoreError> {
        let headers = reply.header_lines();
        let bytes = reply.stored_bytes();
        if bytes > self.settings.reply_limit {
            return Err(StoreError::ReplyTooLarge { bytes, limit: self.settings.reply_limit });
        }
        if headers.len() > reply::MAX_HEADER_BYTES {
            return Err(StoreError::ReplyTooLarge { bytes: headers.len(), limit: reply::MAX_HEADER_BYTES });
        }
        let plain = Stored {
            execution,
            status: reply.status(),
            headers: headers.into(),
            body: reply.body().clone(),
            sealed_by: None,
        };
        let stored = match &self.settings.keyring {
            None => plain,
            Some(keyring) => keyring.seal(ask, &plain).map_err(|error| StoreError::Reply(error.into()))?,
        };
        Ok(Completion { stored, keep_effect, failed, retain: self.settings.retention.keep() })
    }

    /// Finds out whether a commit took effect whose acknowledgement was lost. The claim's lock is held until the old
    /// transaction has ended one way or the other, so a claim that gets through sees the truth. The whole reply is
    /// compared: leased work keeps its execution when another worker takes over and answers otherwise.
    async fn settle(&self, ask: &Ask, sent: &Stored, cause: Source) -> Result<(), StoreError> {
        // A row that expired before it was asked about would look as if it had never been.
        let patience = self.settings.settle_for.min(self.settings.retention.keep() / 2);
        let ends = tokio::time::Instant::now() + patience;
        let mut pause = Duration::from_millis(10);
        loop {
            let left = ends.saturating_duration_since(tokio::time::Instant::now());
            match timeout(left + PAST_THE_WAIT, self.store.claim(&ask.clone().waiting(left))).await {
                Ok(Ok(Claim::Replay(stored))) if stored == *sent => return Ok(()),
                Ok(Ok(Claim::Replay(_) | Claim::Mismatch)) => return Err(StoreError::Raced),
                Ok(Ok(Claim::Fresh(tx))) => {
                    tx.rollback().await;
                    return Err(StoreError::RolledBack);
                }
                Err(_) => return Err(StoreError::Ambiguous(cause)),
                Ok(Ok(_) | Err(_)) if left.is_zero() => return Err(StoreError::Ambiguous(cause)),
                Ok(Ok(_) | Err(_)) => {
                    tokio::time::sleep(pause.min(left)).await;
                    pause = (pause * 2).min(Duration::from_millis(500));
                }
            }
        }
    }
}

/// Rolls back work that failed. `Ok` if a conflict was behind it, so that running it again may succeed.
pub(crate) async fn undone<T: Tx, E>(tx: T, error: Error<E>) -> Result<Error<E>, Error<E>> {
    let conflicted = tx.conflicted();
    tx.rollback().await;
    if conflicted { Ok(error) } else { Err(error) }
}

fn outcome_name<E>(result: &Result<Outcome, Error<E>>) -> &'static str {
    match result {
        Ok(Outcome::Fresh(_)) => "fresh",
        Ok(Outcome::Replayed(_)) => "replayed",
        Ok(Outcome::Forgotten(_)) | Err(Error::Effect(_)) => "rolled_back",
        Err(Error::InFlight { .. } | Error::Unknown) => "in_flight",
        Err(Error::Mismatch) => "mismatch",
        Err(Error::Store(error)) => match error.next() {
            Next::Later | Next::AskAgain | Next::RunAgain => "unavailable",
            Next::Stop => "rolled_back",
        },
    }
}
