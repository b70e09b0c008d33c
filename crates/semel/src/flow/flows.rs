//! The flows that a process has registered.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::completer::Completer;
use super::definition::Definition;
use super::drive::{Ended, drive};
use super::error::{Changed, Error};
use super::job;
use super::journal::{MAX_KEPT_BYTES, Start};
use super::keep::{self, Label};
use super::settings::Settings;
use super::store::FlowStore;
use super::terms::Invalid;
use crate::{Ask, Claim, LeaseTerms, OnExpiry, Outcome, Semel, failpoint, observe, once};

/// The flows that a process has registered, on the store `S`. Cheap to clone.
pub struct Flows<S: FlowStore> {
    shared: Arc<Shared<S>>,
}

/// Puts flows together.
pub struct Builder<S: FlowStore> {
    semel: Semel<S>,
    definitions: Vec<Definition<S>>,
    settings: Settings,
}

/// What all runs of a process share.
pub(super) struct Shared<S: FlowStore> {
    pub(super) semel: Semel<S>,
    pub(super) settings: Settings,
    definitions: BTreeMap<String, Arc<Definition<S>>>,
}

impl<S: FlowStore> Builder<S> {
    /// Registers a flow.
    #[must_use]
    pub fn register(mut self, definition: Definition<S>) -> Builder<S> {
        self.definitions.push(definition);
        self
    }

    /// Sets how flows are worked on in this process.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Builder<S> {
        self.settings = settings;
        self
    }

    /// The flows, unless something about them cannot work: names, bounds (I12), or a retention that would forget what
    /// may still be retried, by a client or under a provider's key (I9).
    pub fn build(self) -> Result<Flows<S>, Invalid> {
        self.settings.check().map_err(Invalid::Settings)?;
        let mut definitions = BTreeMap::new();
        for definition in self.definitions {
            let definition = definition.checked(&self.semel.settings().retention)?;
            let name = definition.name().to_owned();
            if definitions.insert(name.clone(), Arc::new(definition)).is_some() {
                return Err(Invalid::Twice(name));
            }
        }
        let shared = Shared { semel: self.semel, settings: self.settings, definitions };
        Ok(Flows { shared: Arc::new(shared) })
    }
}

impl<S: FlowStore> Flows<S> {
    /// Begins to put flows together.
    pub fn builder(semel: Semel<S>) -> Builder<S> {
        Builder { semel, definitions: Vec::new(), settings: Settings::default() }
    }

    /// Runs a flow once for this scope and key, or goes on with one that was abandoned, and waits for its reply.
    ///
    /// | the key | result |
    /// |---|---|
    /// | is new | the flow runs and ends: [`Outcome::Fresh`], also with the reply of a failure once all is undone |
    /// | was abandoned | the flow goes on where it stopped, with the input that is stored |
    /// | has run | [`Outcome::Replayed`] with the stored reply, byte for byte (I3) |
    /// | is worked on, pauses, or failed in a way that may pass | [`once::Error::InFlight`] |
    /// | is held | [`once::Error::Unknown`] |
    /// | was used for another request | [`once::Error::Mismatch`] |
    /// | does not fit the code | [`once::Error::Effect`] with [`Error::Changed`] |
    ///
    /// Key, input and flow are committed before anything runs. From then on the flow ends whether or not the client
    /// comes back: after a crash a completer goes on with it. It runs in a task of its own, so dropping this future, as
    /// a server does when its client disconnects, stops nothing.
    pub async fn run<I>(&self, flow: &str, ask: &Ask, input: &I) -> Result<Outcome, once::Error<Error>>
    where
        I: Serialize + ?Sized,
    {
        let definition = self.shared.registered(flow).map_err(once::Error::Effect)?;
        let start = self.start(flow, ask, input).map_err(once::Error::Effect)?;
        let terms = self.shared.terms(&definition);
        let performing = tokio::spawn(perform(Arc::clone(&self.shared), ask.clone(), terms, start));
        performing.await.unwrap_or_else(|stopped| {
            // The runtime is shutting down, or the engine itself failed. The lease runs out.
            tracing::error!(flow, %stopped, "the run of a flow was cut off; it goes on when its lease is over");
            Err(once::Error::InFlight { retry_after: self.shared.settings.lease_for })
        })
    }

    /// Goes on with flows that nobody works on: abandoned ones, those whose pause is over, and staged jobs. Run one in
    /// every process that registers flows.
    pub fn completer(&self) -> Completer<S> {
        Completer::new(Arc::clone(&self.shared))
    }

    /// The names of the registered flows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shared.definitions.keys().map(String::as_str)
    }

    fn start<I: Serialize + ?Sized>(&self, flow: &str, ask: &Ask, input: &I) -> Result<Start, Error> {
        let json = serde_json::to_vec(input).map_err(job::Invalid::Json)?;
        if json.len() > MAX_KEPT_BYTES {
            return Err(job::Invalid::Input(json.len()).into());
        }
        Ok(Start { flow: flow.to_owned(), input: keep::keep(&self.shared.semel, ask, Label::Input, json)? })
    }
}

/// Leases the key and runs the flow to the end of the run.
async fn perform<S: FlowStore>(
    shared: Arc<Shared<S>>,
    ask: Ask,
    terms: LeaseTerms,
    start: Start,
) -> Result<Outcome, once::Error<Error>> {
    let mut attempt = 1;
    let claim = loop {
        match shared.semel.store().begin_flow(&ask, &terms, &start).await {
            Ok(claim) => break claim,
            Err(error) => {
                let error: once::Error<Error> = once::Error::Store(error);
                shared.semel.again(&mut attempt, ask.scope.operation(), error).await?;
            }
        }
    };
    let journal = match claim {
        Claim::Fresh(journal) => {
            failpoint::reach(failpoint::FLOW_BEGUN).await;
            journal
        }
        Claim::Resume(journal) => {
            observe::flow_takeover(&journal.flow);
            journal
        }
        Claim::Replay(stored) => return Ok(Outcome::Replayed(shared.semel.open(&ask, &stored)?.reply)),
        Claim::InFlight { retry_after } => return Err(once::Error::InFlight { retry_after }),
        Claim::Mismatch => return Err(once::Error::Mismatch),
        Claim::Unknown => return Err(once::Error::Unknown),
    };
    let definition = match shared.registered(&journal.flow) {
        Ok(definition) => definition,
        Err(error) => {
            // The key was begun with another flow. Those who know it go on with it.
            shared.semel.store().park_flow(&journal.lease, Duration::ZERO, None).await?;
            return Err(once::Error::Effect(error));
        }
    };
    if journal.flow != start.flow && definition.terms.on_expiry == OnExpiry::Hold {
        // It was taken over on another flow's terms. Its lease runs out, and whoever looks by its own holds it.
        return Err(once::Error::InFlight { retry_after: terms.lease_for });
    }
    match drive(shared, definition, journal).await {
        Ended::Completed(reply) => Ok(Outcome::Fresh(reply)),
        Ended::Parked { changed: Some(changed), .. } => Err(once::Error::Effect(changed.into())),
        Ended::Parked { pause, changed: None } => Err(once::Error::InFlight { retry_after: pause }),
        Ended::Held => Err(once::Error::Unknown),
        // Whatever was not stored of its end, its steps are: nobody may be told that nothing was committed.
        Ended::Lost | Ended::Abandoned => Err(once::Error::InFlight { retry_after: terms.lease_for }),
    }
}

impl<S: FlowStore> Shared<S> {
    /// Every registered flow, by its name.
    pub(super) fn definitions(&self) -> impl ExactSizeIterator<Item = &Arc<Definition<S>>> {
        self.definitions.values()
    }

    /// On which terms flows of this definition are leased here.
    pub(super) fn terms(&self, definition: &Definition<S>) -> LeaseTerms {
        LeaseTerms {
            lease_for: self.settings.lease_for,
            holder: self.settings.holder.clone(),
            on_expiry: definition.terms.on_expiry,
            retain: definition.terms.kept_for(),
        }
    }

    fn registered(&self, flow: &str) -> Result<Arc<Definition<S>>, Error> {
        let unregistered = || Changed::Unregistered { flow: flow.to_owned() };
        Ok(self.definitions.get(flow).cloned().ok_or_else(unregistered)?)
    }
}

impl<S: FlowStore> Clone for Flows<S> {
    fn clone(&self) -> Flows<S> {
        Flows { shared: Arc::clone(&self.shared) }
    }
}

impl<S: FlowStore> fmt::Debug for Flows<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flows").field("names", &self.names().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

impl<S: FlowStore> fmt::Debug for Builder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (definitions, settings) = (&self.definitions, &self.settings);
        f.debug_struct("Builder").field("definitions", definitions).field("settings", settings).finish_non_exhaustive()
    }
}
