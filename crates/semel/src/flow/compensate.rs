//! Undoing what a flow did before it failed.
//!
//! That a flow is undone is recorded first, with the reason. From then on nothing new begins, whoever works on it: a
//! run that takes it over runs the function again, which gets the recorded results and registers its compensations
//! anew, up to the first step that is not done. Then the compensations run in the reverse order of their registration,
//! each as a step of its own, and the flow ends with the failure's reply.
//!
//! | crash | what is recorded | what the next run does |
//! |---|---|---|
//! | before the reason is recorded | the steps that are done | runs the function, which fails again, or does not |
//! | behind that, or between two compensations | the reason, and the compensations that are done | undoes the others |
//! | in a compensation that is a commit | neither what it did nor that it did it | runs it |
//! | in one that is a call | an attempt that may have happened | what every call does: see [`super::call`] |
//! | behind the last compensation | all of them | ends the flow |

use std::pin::Pin;

use serde_json::Value;
use tokio::time::timeout;

use super::commit::Concluded;
use super::error::{Error, Result};
use super::failed::Failed;
use super::journal::{Kind, State, UNDO};
use super::pursuit::Pursuit;
use super::run::Run;
use super::store::FlowStore;
use crate::provider::Call;
use crate::{Error as StoreError, failpoint};

/// A compensation that runs in a transaction. Box it: `|tx| Box::pin(async move { … })`.
pub type Undoing<'t> = Pin<Box<dyn Future<Output = Result<()>> + Send + 't>>;

/// An attempt at a compensation that is a call; what it returned, as JSON.
pub(super) type Undone = Pin<Box<dyn Future<Output = Result<Value, Failed>> + Send>>;

/// A compensation that is a call.
pub(super) type UndoCall = Box<dyn Fn(Call) -> Undone + Send + Sync>;

type UndoCommit<S> = dyn for<'t> Fn(&'t mut <S as crate::Store>::Tx) -> Undoing<'t> + Send + Sync;

/// How a step is undone.
pub(super) struct Undo<S: FlowStore> {
    /// The step.
    pub(super) step: String,
    pub(super) work: Work<S>,
}

/// What undoes a step.
pub(super) enum Work<S: FlowStore> {
    /// A transaction.
    Commit(Box<UndoCommit<S>>),
    /// A call to the provider of the call that it undoes.
    Call { provider: String, call: UndoCall },
}

impl<S: FlowStore> Run<S> {
    /// Undoes every step that is done and says how, the last one first. A step that is not done has nothing to undo.
    pub(super) async fn undo_all(&self) -> Result<()> {
        for Undo { step, work } in self.take_undos().into_iter().rev() {
            let state = self.progress().get(&step).map(|entry| entry.state);
            if state != Some(State::Done) {
                continue;
            }
            match work {
                Work::Commit(undo) => self.undo_commit(&step, &*undo).await?,
                Work::Call { provider, call } => self.undo_call(&step, &provider, call).await?,
            }
        }
        Ok(())
    }

    async fn undo_call(&self, step: &str, provider: &str, call: UndoCall) -> Result<()> {
        let step = format!("{UNDO}{step}");
        let found = self.progress().find(&step, Kind::Call);
        let entry = found.map_err(|changed| self.stop(changed.into()))?;
        let provider = self.provider(&step, provider, entry.as_ref())?;
        match entry.as_ref().map(|entry| entry.state) {
            // A person may have said that it is not to be undone.
            Some(State::Done | State::Failed) => Ok(()),
            Some(State::Unknown) => Err(self.hold(&step, "nobody has said yet what became of it".to_owned())),
            None | Some(State::Pending) => {
                let pursuit = Pursuit::begin(self, &step, provider, entry.as_ref(), true);
                pursuit.pursue(|_| Ok(()), call).await.map(drop)
            }
        }
    }

    /// What it did and that it did it are one commit, so nothing of it can be in doubt. If it fails for good, the flow
    /// is held until an operator lets it go on, which tries it again.
    async fn undo_commit(&self, step: &str, undo: &UndoCommit<S>) -> Result<()> {
        let step = format!("{UNDO}{step}");
        let found = self.progress().find(&step, Kind::Commit);
        if found.map_err(|changed| self.stop(changed.into()))?.is_some() {
            return Ok(());
        }
        let mut attempt = 1;
        loop {
            let mut tx = match self.begin(&step).await {
                Ok(tx) => tx,
                Err(error) => {
                    self.again(&mut attempt, error).await?;
                    continue;
                }
            };
            let undone = match timeout(self.semel().settings().deadline, undo(&mut tx)).await {
                Ok(undone) => undone,
                Err(_) => Err(Error::Store(StoreError::Deadline)),
            };
            failpoint::reach(failpoint::FLOW_STEP_EFFECT).await;
            let settled = undone.and_then(|()| self.done(&step, Kind::Commit, &()));
            match self.conclude(tx, settled, &mut attempt).await {
                Ok(Concluded::Recorded | Concluded::Before(_)) => return Ok(()),
                Ok(Concluded::Again) => {}
                Err(Error::Failed(failure)) => return Err(self.hold(&step, failure.to_string())),
                Err(error) => return Err(self.stop(error)),
            }
        }
    }
}
