//! One run of a flow's function: what all of its steps share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::compensate::{Undo, Work};
use super::definition::Definition;
use super::error::{Changed, Error, Result};
use super::failure::Failure;
use super::flows::Shared;
use super::journal::{Entry, Journal, Kind, MAX_FLOW_BYTES, MAX_KEPT_BYTES, Settled, State, UNDO};
use super::keep::{self, Label};
use super::progress::{Ending, Progress};
use super::since::Since;
use super::store::FlowStore;
use super::trying::Trying;
use crate::{Error as StoreError, Lease, Semel, observe, once};

/// One run of a flow's function, under one lease.
pub(super) struct Run<S: FlowStore> {
    pub(super) shared: Arc<Shared<S>>,
    pub(super) definition: Arc<Definition<S>>,
    pub(super) lease: Lease,
    /// Whether calls may have been made that the rows do not know of.
    pub(super) restored: bool,
    /// Why the flow is being undone, if it was when this run began: then nothing new begins.
    pub(super) unwinding: Option<Failure>,
    /// How old the flow was when it was read, how much of its life was over, and when that was. Ages grow by elapsed
    /// time: no clock is compared with the database's.
    age: Duration,
    lived: Duration,
    read_at: Since,
    progress: Mutex<Progress>,
    undos: Mutex<Vec<Undo<S>>>,
}

impl<S: FlowStore> Run<S> {
    pub(super) fn new(
        shared: &Arc<Shared<S>>,
        definition: &Arc<Definition<S>>,
        journal: Journal,
        unwinding: Option<Failure>,
        read_at: Since,
    ) -> Run<S> {
        Run {
            shared: Arc::clone(shared),
            definition: Arc::clone(definition),
            lease: journal.lease,
            restored: journal.restored,
            unwinding,
            age: journal.age,
            lived: journal.lived,
            read_at,
            progress: Mutex::new(Progress::new(journal.entries)),
            undos: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn semel(&self) -> &Semel<S> {
        &self.shared.semel
    }

    pub(super) fn store(&self) -> &S {
        self.shared.semel.store()
    }

    /// The flow's name.
    pub(super) fn name(&self) -> &str {
        self.definition.name()
    }

    /// When the rows were read.
    pub(super) fn read_at(&self) -> Since {
        self.read_at
    }

    /// How old the flow is.
    pub(super) fn age(&self) -> Duration {
        self.age.saturating_add(self.read_at.passed())
    }

    /// No foreign code runs under the lock, so a poisoned one still guards sound state.
    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The function asks for a step: what is recorded of it, or `None` if it is to run now. Nothing new begins once the
    /// flow is being undone.
    pub(super) fn ask(&self, step: &str, kind: Kind) -> Result<Option<Entry>> {
        if !self.progress().is_open() {
            return Err(Error::Stopped);
        }
        let asked = self.progress().ask(self.name(), step, kind);
        match (asked, &self.unwinding) {
            // Nothing new begins any more, so it does not matter what is wrong with it.
            (
                Err(Changed::TooManySteps { .. } | Changed::DuplicateStep { .. } | Changed::StepName { .. }),
                Some(failure),
            ) => Err(Error::Failed(failure.clone())),
            (Err(changed), _) => Err(self.stop(changed.into())),
            (Ok(None), Some(failure)) => Err(Error::Failed(failure.clone())),
            (Ok(entry), _) => Ok(entry),
        }
    }

    /// The function is about to end the flow with a reply.
    pub(super) fn may_finish(&self) -> Result<()> {
        if !self.progress().is_open() {
            return Err(Error::Stopped);
        }
        if let Some(failure) = &self.unwinding {
            return Err(Error::Failed(failure.clone()));
        }
        self.none_vanished()
    }

    /// Everything recorded was asked for. Otherwise nobody knows how to undo what was not.
    pub(super) fn none_vanished(&self) -> Result<()> {
        let whole = self.progress().none_vanished(self.name());
        whole.map_err(|changed| self.stop(changed.into()))
    }

    /// Registers how a step is undone.
    pub(super) fn register(&self, step: &str, kind: Kind, work: Work<S>) -> Result<()> {
        if !self.progress().is_open() {
            return Err(Error::Stopped);
        }
        let registered = self.progress().compensate(step, kind);
        registered.map_err(|changed| self.stop(changed.into()))?;
        self.undos().push(Undo { step: step.to_owned(), work });
        Ok(())
    }

    /// Hands over what is registered. What a compensation holds is let go with it: it may hold this run.
    pub(super) fn take_undos(&self) -> Vec<Undo<S>> {
        std::mem::take(&mut *self.undos())
    }

    fn undos(&self) -> MutexGuard<'_, Vec<Undo<S>>> {
        self.undos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a step to its end. If the function lets go of it before, with a timeout of its own or in `select!`, nobody
    /// knows what came of it until the rows are read again: this run is over.
    pub(super) async fn whole<T>(&self, step: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut under_way = UnderWay { run: self, step, ended: false };
        let result = work.await;
        under_way.ended = true;
        result
    }

    /// Ends this run if the error does not leave it to the function, and gives the error back.
    pub(super) fn stop(&self, error: Error) -> Error {
        if !matches!(error, Error::Failed(_) | Error::Stopped) {
            let ending = Ending::of(&error);
            let fenced = matches!(ending, Ending::Lost);
            if self.progress().end(ending) && fenced {
                observe::fenced_write();
            }
        }
        error
    }

    /// Ends this run: the flow goes on after a pause. It is not longer than the flow may live, so that its end is not
    /// slept through, and much shorter than it is kept.
    pub(super) fn pause(&self, pause: Duration) -> Error {
        let life = match self.unwinding {
            None => {
                let lived = self.lived.saturating_add(self.read_at.passed());
                self.definition.terms.life().saturating_sub(lived)
            }
            Some(_) => Duration::MAX,
        };
        let longest = life.min(self.definition.terms.kept_for() / 2);
        self.progress().end(Ending::Paused(pause.min(longest)));
        Error::Stopped
    }

    /// Ends this run: a person has to find out what became of a step.
    pub(super) fn hold(&self, step: &str, why: String) -> Error {
        observe::flow_step(self.name(), step, "unknown");
        self.progress().end(Ending::Held { step: step.to_owned(), why });
        Error::Stopped
    }

    /// The recorded end of a step, as it is stored.
    pub(super) fn settled(&self, step: &str, kind: Kind, state: State, json: Vec<u8>) -> Result<Settled> {
        if json.len() > MAX_KEPT_BYTES {
            return Err(Changed::TooLarge { step: step.to_owned(), bytes: json.len() }.into());
        }
        // What undoes a step always has room.
        let kept = self.progress().kept_bytes().saturating_add(json.len());
        if kept > MAX_FLOW_BYTES && state == State::Done && !step.starts_with(UNDO) {
            return Err(Changed::TooMuch { step: step.to_owned() }.into());
        }
        let label = Label::Step(self.lease.execution, step);
        let result = keep::keep(self.semel(), &self.lease.ask, label, json)?;
        Ok(Settled { step: step.to_owned(), kind, state, result })
    }

    /// The end of a step that is done, with this value.
    pub(super) fn done<T: Serialize>(&self, step: &str, kind: Kind, value: &T) -> Result<Settled> {
        self.settled(step, kind, State::Done, written(step, value)?)
    }

    /// The end of a step that failed.
    pub(super) fn failed(&self, step: &str, kind: Kind, failure: &mut Failure) -> Result<Settled> {
        let json = failure.bounded_json().map_err(|error| unwritable(step, &error))?;
        self.settled(step, kind, State::Failed, json)
    }

    /// What a recorded step came to: its result as JSON, or its failure.
    pub(super) fn result_of(&self, entry: &Entry) -> Result<Bytes> {
        let json = match &entry.result {
            Some(kept) => {
                let label = Label::Step(self.lease.execution, &entry.step);
                let opened = keep::open(self.semel(), &self.lease.ask, label, kept);
                opened.map_err(|error| self.stop(error.into()))?
            }
            None => Bytes::new(),
        };
        match entry.state {
            State::Failed => Err(Error::Failed(self.read(&entry.step, &json)?)),
            _ => Ok(json),
        }
    }

    /// Reads the result of a step.
    pub(super) fn read<T: DeserializeOwned>(&self, step: &str, json: &[u8]) -> Result<T> {
        serde_json::from_slice(json)
            .map_err(|error| self.stop(Changed::Unreadable { step: step.to_owned(), why: error.to_string() }.into()))
    }

    /// The result of a recorded step, or its failure.
    pub(super) fn recorded<T: DeserializeOwned>(&self, entry: &Entry) -> Result<T> {
        let json = self.result_of(entry)?;
        self.read(&entry.step, &json)
    }

    /// Records the end of a call or a pause.
    pub(super) async fn settle(&self, settled: &Settled) -> Result<()> {
        let mut trying = self.trying();
        while let Err(error) = self.store().settle_step(&self.lease, settled).await {
            trying.again(error).await.map_err(|error| self.stop(error.into()))?;
        }
        self.note(settled);
        Ok(())
    }

    /// Takes note of the recorded end of a step.
    pub(super) fn note(&self, settled: &Settled) {
        self.progress().note(&settled.step, settled.kind, settled.state);
        self.progress().keep(settled.result.bytes.len());
        let outcome = if settled.state == State::Done { "done" } else { "failed" };
        observe::flow_step(self.name(), &settled.step, outcome);
    }

    /// Opens a fenced transaction for a step.
    pub(super) async fn begin(&self, step: &str) -> Result<S::Tx, StoreError> {
        self.store().begin_step(&self.lease, step).await
    }

    /// Pauses before the work of a transaction is run again, or ends this run if that does not help.
    pub(super) async fn again(&self, attempt: &mut u32, error: StoreError) -> Result<()> {
        let operation = self.lease.scope().operation();
        match self.semel().again::<Error>(attempt, operation, once::Error::Store(error)).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.stop(effect_of(error))),
        }
    }

    pub(super) fn trying(&self) -> Trying {
        Trying::new(self.semel().settings().settle_for)
    }
}

/// A step that has begun and not ended.
struct UnderWay<'r, S: FlowStore> {
    run: &'r Run<S>,
    step: &'r str,
    ended: bool,
}

impl<S: FlowStore> Drop for UnderWay<'_, S> {
    fn drop(&mut self) {
        if !self.ended && !std::thread::panicking() {
            let cause = format!("the function let go of the step {:?} before its end", self.step);
            self.run.progress().end(Ending::Broken { cause, changed: None });
        }
    }
}

/// The error of a step's work, or of the store beneath it.
pub(super) fn effect_of<E: Into<Error>>(error: once::Error<E>) -> Error {
    match error {
        once::Error::Effect(error) => error.into(),
        once::Error::Store(error) => Error::Store(error),
        once::Error::InFlight { .. } | once::Error::Mismatch | once::Error::Unknown => Error::Stopped,
    }
}

/// A value as JSON.
pub(super) fn written<T: Serialize>(step: &str, value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| unwritable(step, &error))
}

fn unwritable(step: &str, error: &serde_json::Error) -> Error {
    Changed::Unwritable { step: step.to_owned(), why: error.to_string() }.into()
}
