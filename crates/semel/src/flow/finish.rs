//! The last step.

use super::error::{Error, Result, text_of};
use super::failure::Failure;
use super::handle::Flow;
use super::progress::Ending;
use super::run::{Run, effect_of};
use super::store::FlowStore;
use crate::disposition::Disposition;
use crate::store::Tx;
use crate::{Error as StoreError, Reply, failpoint};

/// What events and jobs of the last step are numbered by. It is never recorded: the reply is the record.
const FINISH: &str = "~finish";

impl<S: FlowStore> Flow<S> {
    /// Runs the last work in a fenced transaction and ends the flow with its reply, in one commit.
    ///
    /// After `Ok` effect and reply are durable (I1), and the flow's key gives that reply for as long as it is kept
    /// (I3). After a crash both are there or neither is. A worker that lost its lease ends nothing (I7). Which replies
    /// commit the effect follows [`Disposition`]; what earlier steps did stays in any case, and a 4xx here undoes
    /// nothing: to have the flow undone, return [`Error::fail`]. A reply that is not stored (5xx, 408, 409, 425, 429)
    /// does not end the flow: it is run again later.
    ///
    /// The work runs again after a serialization failure, as in [`Flow::commit`].
    pub async fn finish<F>(&self, work: F) -> Result<Reply>
    where
        F: AsyncFn(&mut S::Tx) -> Result<Reply>,
    {
        let run = &*self.run;
        run.may_finish()?;
        let mut attempt = 1;
        loop {
            let mut tx = match run.begin(FINISH).await {
                Ok(tx) => tx,
                Err(error) => {
                    run.again(&mut attempt, error).await?;
                    continue;
                }
            };
            let worked = run.semel().run(&mut tx, &work).await.map_err(effect_of);
            if let Some(reply) = run.answer(tx, worked, &mut attempt).await? {
                return Ok(reply);
            }
        }
    }
}

impl<S: FlowStore> Run<S> {
    /// Ends the flow with the reply that its function returned without having finished it.
    pub(super) async fn finish(&self, reply: &Reply) -> Result<()> {
        self.none_vanished()?;
        let mut attempt = 1;
        loop {
            match self.begin(FINISH).await {
                Ok(tx) => {
                    if self.answer(tx, Ok(reply.clone()), &mut attempt).await?.is_some() {
                        return Ok(());
                    }
                }
                Err(error) => self.again(&mut attempt, error).await?,
            }
        }
    }

    /// Ends the flow, which is undone, with what its failure answers.
    pub(super) async fn fail(&self, failure: &Failure) -> Result<()> {
        let mut reply = failure.answer().map_err(|invalid| self.stop(invalid.into()))?;
        let lease = &self.lease;
        let completion = self.semel().completion(&lease.ask, lease.execution, &reply, true, true);
        if matches!(completion, Err(StoreError::ReplyTooLarge { .. })) {
            // What was recorded of the failure stays, and the flow has to end.
            reply = failure.problem().map_err(|invalid| self.stop(invalid.into()))?;
        }
        let mut attempt = 1;
        loop {
            match self.begin(FINISH).await {
                Ok(tx) => {
                    let fate = Fate { keep_effect: true, failed: true };
                    if self.close(tx, reply.clone(), fate, &mut attempt).await?.is_some() {
                        return Ok(());
                    }
                }
                Err(error) => self.again(&mut attempt, error).await?,
            }
        }
    }

    /// Ends a transaction of the last step by what its work answered. `None` if it may be run again.
    async fn answer(&self, tx: S::Tx, worked: Result<Reply>, attempt: &mut u32) -> Result<Option<Reply>> {
        if tx.conflicted() {
            tx.rollback().await;
            let why = worked.map_or_else(|error| text_of(&error), |_| "a statement of the step conflicted".to_owned());
            self.again(attempt, StoreError::Conflict(why.into())).await?;
            return Ok(None);
        }
        let reply = match worked {
            Ok(reply) => reply,
            Err(error) => {
                tx.rollback().await;
                return Err(self.stop(error));
            }
        };
        // Execution has begun long ago, whatever this transaction did.
        let fate = match Disposition::of(reply.status(), reply.mark(), true) {
            Disposition::Commit => Fate { keep_effect: true, failed: false },
            Disposition::StoreOnly { failed } => Fate { keep_effect: false, failed },
            Disposition::Forget => {
                tx.rollback().await;
                let status = reply.status();
                return Err(self.stop(Error::retry(format!("the last step answered {status}, which is not stored"))));
            }
        };
        self.close(tx, reply, fate, attempt).await
    }

    /// Stores the reply and commits. `None` if everything was rolled back and may be run again.
    async fn close(&self, tx: S::Tx, reply: Reply, fate: Fate, attempt: &mut u32) -> Result<Option<Reply>> {
        let Fate { keep_effect, failed } = fate;
        let lease = &self.lease;
        let completion = self.semel().completion(&lease.ask, lease.execution, &reply, keep_effect, failed);
        let mut completion = match completion {
            Ok(completion) => completion,
            Err(error) => {
                tx.rollback().await;
                return Err(self.stop(error.into()));
            }
        };
        completion.retain = self.definition.terms.kept_for();
        failpoint::reach(failpoint::FLOW_FINISHING).await;
        let closed = match tx.complete(&completion).await {
            Err(StoreError::Ambiguous(_)) => self.has_closed().await,
            closed => closed,
        };
        match closed {
            Ok(()) => {
                self.progress().end(Ending::Finished { reply: reply.clone(), failed });
                failpoint::reach(failpoint::FLOW_FINISHED).await;
                Ok(Some(reply))
            }
            Err(error) => {
                self.again(attempt, error).await?;
                Ok(None)
            }
        }
    }

    /// Finds out whether the commit took effect that ended the flow. Renewing waits for the row lock, and says whether
    /// the flow has ended under this very lease.
    async fn has_closed(&self) -> Result<(), StoreError> {
        let mut trying = self.trying();
        loop {
            match self.store().renew(&self.lease, self.lease.lease_for).await {
                Ok(false) => return Ok(()),
                Ok(true) => return Err(StoreError::RolledBack),
                Err(error) => trying.again(error).await?,
            }
        }
    }
}

/// What becomes of the last transaction.
#[derive(Debug, Clone, Copy)]
struct Fate {
    /// Whether what it did is committed with the reply.
    keep_effect: bool,
    /// Whether the flow counts as failed.
    failed: bool,
}
