//! A flow as a service registers it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::error::Result;
use super::handle::Flow;
use super::store::FlowStore;
use super::terms::{Invalid, Terms};
use crate::provider::Provider;
use crate::{OnExpiry, Reply, Retention};

/// A run of a function.
pub(super) type Running = Pin<Box<dyn Future<Output = Result<Reply>> + Send>>;

type Function<S> = dyn Fn(Flow<S>, &[u8]) -> serde_json::Result<Running> + Send + Sync;

/// A flow as a service registers it: a function under a name, whom it calls, and how long it is kept.
///
/// A handler, a client's retry and a completer run the same function with the input that was stored when the flow
/// began. It may be run many times; its steps are what happens once. Side effects belong inside steps. Everything else
/// has no rule but one: while its steps give the same results, it asks for the same steps.
pub struct Definition<S: FlowStore> {
    function: Box<Function<S>>,
    pub(super) terms: Terms,
}

impl<S: FlowStore> Definition<S> {
    /// A flow of this name. The function takes a handle and the input, and returns what [`Flow::finish`] returned.
    ///
    /// Unless you say otherwise it is kept for as long as keys are, it may live for a day, and a flow whose worker is
    /// gone is resumed.
    pub fn new<F, Fut, I>(name: impl Into<String>, function: F) -> Definition<S>
    where
        F: Fn(Flow<S>, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply>> + Send + 'static,
        I: DeserializeOwned + Send + 'static,
    {
        let function = Arc::new(function);
        let start = move |flow: Flow<S>, input: &[u8]| -> serde_json::Result<Running> {
            let (function, input) = (Arc::clone(&function), serde_json::from_slice::<I>(input)?);
            // The call itself is part of the run: if it panics, that is caught there.
            let running: Running = Box::pin(async move {
                let running = (*function)(flow, input);
                running.await
            });
            Ok(running)
        };
        Definition { function: Box::new(start), terms: Terms::new(name.into()) }
    }

    /// Declares whom it calls. Others cannot be called, and flows must be kept for at least as long as each of these
    /// recognises keys (I9). Calls go by the profile that is declared here.
    #[must_use]
    pub fn calling(mut self, providers: impl IntoIterator<Item = Provider>) -> Definition<S> {
        self.terms.providers.extend(providers);
        self
    }

    /// Keeps flows for this long after their last change. While they are kept, their key gives the stored reply.
    #[must_use]
    pub fn retain(mut self, retain: Duration) -> Definition<S> {
        self.terms.retain = Some(retain);
        self
    }

    /// Has flows undone that have not ended after this long. It is not above what they are kept for. It starts again
    /// when an operator lets a flow go on.
    #[must_use]
    pub fn lives_for(mut self, lives_for: Duration) -> Definition<S> {
        self.terms.lives_for = Some(lives_for);
        self
    }

    /// Says what becomes of a flow whose worker is gone: it is resumed, or held as *unknown* until an operator lets it
    /// go on. Flows that pause are resumed in either case.
    #[must_use]
    pub fn on_expiry(mut self, on_expiry: OnExpiry) -> Definition<S> {
        self.terms.on_expiry = on_expiry;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.terms.name
    }

    /// Settles what was left open, or says what cannot work.
    pub(super) fn checked(self, retention: &Retention) -> std::result::Result<Definition<S>, Invalid> {
        Ok(Definition { function: self.function, terms: self.terms.checked(retention)? })
    }

    /// Begins a run of the function, or says why its input cannot be read. Nothing runs before it is polled.
    pub(super) fn start(&self, flow: Flow<S>, input: &[u8]) -> serde_json::Result<Running> {
        (self.function)(flow, input)
    }

    /// The profile of a declared provider.
    pub(super) fn provider(&self, name: &str) -> Option<&Provider> {
        self.terms.providers.iter().find(|provider| provider.name == name)
    }
}

impl<S: FlowStore> fmt::Debug for Definition<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("terms", &self.terms).finish_non_exhaustive()
    }
}
