//! Steps that are transactions.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{Error, Result, text_of};
use super::failure::Failure;
use super::handle::Flow;
use super::journal::{Entry, Kind, Settled};
use super::run::{Run, effect_of};
use super::store::FlowStore;
use crate::store::Tx;
use crate::{Error as StoreError, failpoint};

/// What became of a transaction of a step.
pub(super) enum Concluded {
    /// The step is recorded now, with what the transaction did.
    Recorded,
    /// The step was recorded before, and this is what it came to. What the transaction did was rolled back, or is that
    /// very record, whose acknowledgement was lost.
    Before(Box<Entry>),
    /// Everything was rolled back, and it may be run again.
    Again,
}

impl<S: FlowStore> Flow<S> {
    /// Runs `work` in a fenced transaction and records its result under the step's name, in one commit.
    ///
    /// After `Ok` both are durable (I1), and no later run runs the work again: it gets the stored result (I2). After a
    /// crash both are there or neither is. A worker that lost its lease commits nothing (I7). What the work emits and
    /// stages carries ids derived from the step's name, so a step that runs again makes the same.
    ///
    /// The work runs again from its start after a serialization failure, a deadlock or a lost connection, as in
    /// [`Semel::advance`](crate::Semel::advance). An error of its own rolls it back. If that is a failure for good, it
    /// is recorded as what the step came to, so that a function which handles it goes the same way in every run. Any
    /// other error ends this run, and the step is tried again in the next.
    pub fn commit<T, E, F>(&self, step: &str, work: F) -> impl Future<Output = Result<T>> + use<S, T, E, F>
    where
        F: AsyncFn(&mut S::Tx) -> Result<T, E>,
        E: Into<Error>,
        T: Serialize + DeserializeOwned,
    {
        let (flow, step) = (self.clone(), step.to_owned());
        async move { flow.run.whole(&step, flow.run.commit(&step, work)).await }
    }
}

impl<S: FlowStore> Run<S> {
    async fn commit<T, E, F>(&self, step: &str, work: F) -> Result<T>
    where
        F: AsyncFn(&mut S::Tx) -> Result<T, E>,
        E: Into<Error>,
        T: Serialize + DeserializeOwned,
    {
        if let Some(entry) = self.ask(step, Kind::Commit)? {
            return self.recorded(&entry);
        }
        let mut attempt = 1;
        loop {
            let mut tx = match self.begin(step).await {
                Ok(tx) => tx,
                Err(error) => {
                    self.again(&mut attempt, error).await?;
                    continue;
                }
            };
            let worked = self.semel().run(&mut tx, &work).await.map_err(effect_of);
            failpoint::reach(failpoint::FLOW_STEP_EFFECT).await;
            let (value, settled) = match worked {
                Ok(value) => {
                    let settled = self.done(step, Kind::Commit, &value);
                    (Some(value), settled)
                }
                Err(error) => (None, Err(error)),
            };
            match (self.conclude(tx, settled, &mut attempt).await, value) {
                (Ok(Concluded::Recorded), Some(value)) => return Ok(value),
                (Ok(Concluded::Before(entry)), _) => return self.recorded(&entry),
                (Ok(_), _) => {}
                (Err(Error::Failed(failure)), _) => return Err(self.refuse(step, failure).await),
                (Err(error), _) => return Err(self.stop(error)),
            }
        }
    }

    /// Ends a transaction of a step: commits it with the step's record, or rolls it back. The error of the work is
    /// given back as it is.
    pub(super) async fn conclude(&self, tx: S::Tx, settled: Result<Settled>, attempt: &mut u32) -> Result<Concluded> {
        if tx.conflicted() {
            // Whatever the work made of it: another run may succeed.
            tx.rollback().await;
            let why = settled.map_or_else(|error| text_of(&error), |_| "a statement of the step conflicted".to_owned());
            self.again(attempt, StoreError::Conflict(why.into())).await?;
            return Ok(Concluded::Again);
        }
        let settled = match settled {
            Ok(settled) => settled,
            Err(error) => {
                tx.rollback().await;
                return Err(error);
            }
        };
        match self.record(tx, &settled).await {
            Ok(None) => {
                self.note(&settled);
                failpoint::reach(failpoint::FLOW_STEP_COMMITTED).await;
                Ok(Concluded::Recorded)
            }
            Ok(Some(entry)) => {
                self.progress().note(&entry.step, entry.kind, entry.state);
                Ok(Concluded::Before(Box::new(entry)))
            }
            Err(error) => {
                self.again(attempt, error).await?;
                Ok(Concluded::Again)
            }
        }
    }

    /// Commits a transaction with the record of its step. If the step is recorded already, or the acknowledgement was
    /// lost and the commit took effect, what is recorded is returned: reading waits for the row lock, so by then the
    /// commit has taken effect or never will.
    async fn record(&self, tx: S::Tx, settled: &Settled) -> Result<Option<Entry>, StoreError> {
        let error = match tx.record(settled).await {
            Ok(()) => return Ok(None),
            Err(StoreError::Ambiguous(_)) => StoreError::RolledBack,
            Err(StoreError::Raced) => StoreError::Raced,
            Err(error) => return Err(error),
        };
        let mut trying = self.trying();
        let journal = loop {
            match self.store().read_flow(&self.lease).await {
                Ok(journal) => break journal,
                Err(error) => trying.again(error).await?,
            }
        };
        journal.entries.into_iter().find(|entry| entry.step == settled.step).map(Some).ok_or(error)
    }

    /// Records that a commit failed for good, in a transaction that does nothing else, and gives the failure back.
    async fn refuse(&self, step: &str, failure: Failure) -> Error {
        let mut failure = failure.of_step(step);
        let mut attempt = 1;
        loop {
            let tx = match self.begin(step).await {
                Ok(tx) => tx,
                Err(error) => match self.again(&mut attempt, error).await {
                    Ok(()) => continue,
                    Err(error) => return error,
                },
            };
            let settled = self.failed(step, Kind::Commit, &mut failure);
            match self.conclude(tx, settled, &mut attempt).await {
                Ok(Concluded::Recorded | Concluded::Before(_)) => return Error::Failed(failure),
                Ok(Concluded::Again) => {}
                Err(error) => return self.stop(error),
            }
        }
    }
}
