//! Steps that are calls to somebody else's API.
//!
//! A call cannot be part of a commit, so it is three: the attempt is counted with the call's key, the call is made, and
//! its end is recorded. What holds after a crash:
//!
//! | crash | what is recorded | what the next run does |
//! |---|---|---|
//! | before the attempt is counted | nothing | makes the first attempt |
//! | between that and the call | an attempt that nobody lived to record | it may have happened, see below |
//! | during the call, or before its end is recorded | the same | the same |
//! | after its result is recorded | the result | returns it; nothing is sent |
//! | after an error is recorded | what the attempt came to | goes by that |
//!
//! What may have happened is sent again under the same stored key for as long as the provider recognises it, looked up
//! after that, and held for a person where nothing can be asked; [`intent::next`](crate::intent::next) is the whole of
//! that decision, and the rows lead every worker to the same one (I8). A worker that was suspended and sends late sends
//! the same key; what it wants to record is refused (I7).

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::compensate::{Undone, Work};
use super::error::{Changed, Error, Result};
use super::failed::Failed;
use super::handle::Flow;
use super::journal::{Entry, Kind, State};
use super::pursuit::Pursuit;
use super::run::Run;
use super::store::FlowStore;
use crate::provider::{Call, Provider};

/// Undoes a call with its result, as JSON.
type Undoer = Box<dyn Fn(Call, &[u8]) -> Undone + Send + Sync>;

/// A call that is about to be made: await it, or say first how it is undone.
#[must_use = "a call is made when it is awaited"]
pub struct Calling<'a, S: FlowStore, T, F> {
    flow: Flow<S>,
    step: String,
    provider: String,
    work: F,
    undo: Option<Undoer>,
    result: PhantomData<fn() -> T>,
    borrowed: PhantomData<&'a ()>,
}

impl<S: FlowStore> Flow<S> {
    /// Calls a provider, outside any transaction, and records the result under the step's name.
    ///
    /// `work` makes one attempt: it sends [`Call::key`] where [`Call::header`] says, which is the same on every attempt
    /// of every worker (I8), and may take the provider's timeout. It is run again as the profile says, and by other
    /// workers after a crash. After `Ok` the result is durable and no later run sends anything. An error that is not
    /// [`Failed`] is *unknown*, and so is a timeout: the provider may have done it.
    ///
    /// A call that fails for good returns [`Error::Failed`], recorded like a result. One that nobody can know the end
    /// of holds the flow. The provider must be declared in the [definition](super::Definition::calling), and the
    /// profile of that declaration is the one that counts.
    pub fn call<'a, T, F, Fut>(&self, step: &str, provider: &Provider, work: F) -> Calling<'a, S, T, F>
    where
        F: Fn(Call) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, Failed>> + Send + 'a,
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        Calling {
            flow: self.clone(),
            step: step.to_owned(),
            provider: provider.name.clone(),
            work,
            undo: None,
            result: PhantomData,
            borrowed: PhantomData,
        }
    }
}

impl<S: FlowStore, T: DeserializeOwned + 'static, F> Calling<'_, S, T, F> {
    /// Says how the call is undone if the flow fails for good: by a call to the same provider, given the recorded
    /// result.
    ///
    /// It is the step `~undo.` and the step's name, with a key of its own, and goes by the same rules as every call: it
    /// is done once per intent, however often it is sent. Compensations of steps that are done run in the reverse order
    /// of their registration. One that fails for good, or that nobody can know the end of, holds the flow for a person.
    pub fn compensate<U, R, Fut>(mut self, undo: U) -> Self
    where
        U: Fn(Call, T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Failed>> + Send + 'static,
        R: Serialize + Send + 'static,
    {
        let undoer: Undoer = Box::new(move |call: Call, json: &[u8]| -> Undone {
            match serde_json::from_slice::<T>(json) {
                Ok(result) => {
                    let undoing = undo(call, result);
                    Box::pin(async move {
                        let undone = undoing.await;
                        // What it returned is for people; that it was done is what counts.
                        undone.map(|result| serde_json::to_value(result).unwrap_or(Value::Null))
                    })
                }
                Err(error) => {
                    let failed = Failed::refused(format!("the result of the call cannot be read: {error}"));
                    Box::pin(std::future::ready(Err(failed)))
                }
            }
        });
        self.undo = Some(undoer);
        self
    }
}

impl<'a, S, T, F, Fut> IntoFuture for Calling<'a, S, T, F>
where
    S: FlowStore,
    F: Fn(Call) -> Fut + Send + 'a,
    Fut: Future<Output = Result<T, Failed>> + Send + 'a,
    T: Serialize + DeserializeOwned + Send + 'static,
{
    type Output = Result<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Calling { flow, step, provider, work, undo, .. } = self;
            let run = &*flow.run;
            let asked = step.clone();
            let calling = async move {
                let entry = run.ask(&step, Kind::Call)?;
                let provider = run.provider(&step, &provider, entry.as_ref())?;
                // What was done before the flow was undone is answered as ever, so that the function gets as far again.
                let (json, undone_since) = match entry {
                    Some(entry) if entry.state != State::Pending => (run.settled_call(&entry)?, None),
                    entry => {
                        let pursuit = Pursuit::begin(run, &step, provider, entry.as_ref(), false);
                        (pursuit.pursue(fits::<T>, work).await?, run.unwinding.clone())
                    }
                };
                let value: T = run.read(&step, &json)?;
                if let Some(undo) = undo {
                    let provider = provider.name.clone();
                    let work = Work::Call { provider, call: Box::new(move |call| undo(call, &json[..])) };
                    run.register(&step, Kind::Call, work)?;
                }
                match undone_since {
                    Some(failure) => Err(Error::Failed(failure)),
                    None => Ok(value),
                }
            };
            run.whole(&asked, calling).await
        })
    }
}

impl<S: FlowStore> Run<S> {
    /// The declared profile of a provider, which must be the one that a recorded call was made to.
    pub(super) fn provider(&self, step: &str, name: &str, entry: Option<&Entry>) -> Result<&Provider> {
        let Some(provider) = self.definition.provider(name) else {
            let (provider, flow) = (name.to_owned(), self.name().to_owned());
            return Err(self.stop(Changed::UnknownProvider { provider, flow }.into()));
        };
        match entry.and_then(|entry| entry.intent.as_ref()) {
            Some(intent) if intent.provider != name => {
                let (step, recorded, asked) = (step.to_owned(), intent.provider.clone(), name.to_owned());
                Err(self.stop(Changed::ProviderChanged { step, recorded, asked }.into()))
            }
            _ => Ok(provider),
        }
    }

    /// What a call came to that has an end. One that a person has to look at holds the flow.
    pub(super) fn settled_call(&self, entry: &Entry) -> Result<Bytes> {
        match entry.state {
            State::Done | State::Failed => self.result_of(entry),
            State::Pending | State::Unknown => {
                Err(self.hold(&entry.step, "nobody has said yet what became of it".to_owned()))
            }
        }
    }
}

impl<S: FlowStore, T, F> fmt::Debug for Calling<'_, S, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (step, provider) = (&self.step, &self.provider);
        f.debug_struct("Calling").field("step", step).field("provider", provider).finish_non_exhaustive()
    }
}

/// Whether JSON can be read as the result of a call.
fn fits<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<()> {
    serde_json::from_slice::<T>(json).map(drop)
}
