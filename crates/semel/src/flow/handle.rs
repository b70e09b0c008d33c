//! What a flow's function works with.

use std::fmt;
use std::sync::Arc;

use super::compensate::{Undoing, Work};
use super::error::Result;
use super::journal::Kind;
use super::run::Run;
use super::store::FlowStore;
use crate::{Execution, Key, Scope};

/// What a flow's function works with: the steps of one run. Cheap to clone.
///
/// Steps are asked for one after another. A step's name is its identity: what is recorded under it is returned and not
/// run again, wherever it stands. Steps that are joined, with `join!` or in tasks of their own, are not supported:
/// after a crash nobody could tell a step that had not begun from one that was renamed.
///
/// A handle belongs to one run. Once the run is over, for whatever reason, each of its steps is refused with
/// [`Error::Stopped`](super::Error::Stopped).
pub struct Flow<S: FlowStore> {
    pub(super) run: Arc<Run<S>>,
}

impl<S: FlowStore> Flow<S> {
    /// The identity of this flow. It stays the same over retries, pauses and takeovers.
    pub fn execution(&self) -> Execution {
        self.run.lease.execution
    }

    /// Whose key it runs under.
    pub fn scope(&self) -> &Scope {
        self.run.lease.scope()
    }

    /// The client's key, or the derived one of a staged job.
    pub fn key(&self) -> &Key {
        self.run.lease.key()
    }

    /// Whether a step of this name is recorded, done or not. With it a new version goes on with what an old one has
    /// begun: ask for the old steps where they are recorded, and for the new ones where they are not. Ask by the name
    /// of a step that only the old version had; a step of the new version is recorded as soon as it ran.
    pub fn has(&self, step: &str) -> bool {
        self.run.progress().get(step).is_some()
    }

    /// Says that former versions had a step of this name, and that nothing has to be done about it where it is
    /// recorded. What it did stays; to have a commit undone if the flow fails, [compensate](Flow::compensate) it.
    /// A call that has no end yet is not retired: keep it until no flow has it under way.
    pub fn retired(&self, step: &str) {
        self.run.progress().retire(step);
    }

    /// Says how a commit is undone if the flow fails for good: in a transaction of its own, recorded as the step
    /// `~undo.` and its name, in one commit with what it does (I1). Register it right behind the commit; compensations
    /// of steps that were done run in the reverse order of their registration, each once.
    ///
    /// Nothing is stored here. A run that undoes a flow runs the function again, up to the first step that is not done,
    /// to find out how. After a crash at any point each compensation has either taken effect with its record, and is
    /// not run again, or neither has.
    ///
    /// A compensation that fails for good holds the flow for a person; one that may pass is tried again.
    ///
    /// ```
    /// # use semel::Flow;
    /// # use semel::flow::{self, FlowStore};
    /// # async fn release<T: semel::Tx>(_tx: &mut T, _sku: &str) -> Result<(), semel::Error> { Ok(()) }
    /// # fn registered<S: FlowStore>(flow: &Flow<S>, sku: String) -> flow::Result<()> {
    /// flow.compensate("reserve", move |tx| {
    ///     let sku = sku.clone();
    ///     Box::pin(async move { Ok(release(tx, &sku).await?) })
    /// })
    /// # }
    /// ```
    pub fn compensate<U>(&self, step: &str, undo: U) -> Result<()>
    where
        U: for<'t> Fn(&'t mut S::Tx) -> Undoing<'t> + Send + Sync + 'static,
    {
        self.run.register(step, Kind::Commit, Work::Commit(Box::new(undo)))
    }
}

impl<S: FlowStore> Clone for Flow<S> {
    fn clone(&self) -> Flow<S> {
        Flow { run: Arc::clone(&self.run) }
    }
}

impl<S: FlowStore> fmt::Debug for Flow<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("name", &self.run.name()).field("lease", &self.run.lease).finish_non_exhaustive()
    }
}
