//! Goes on with flows that nobody works on.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::definition::Definition;
use super::drive::drive;
use super::flows::Shared;
use super::journal::Journal;
use super::store::FlowStore;
use crate::backoff::Backoff;
use crate::{Lease, OnExpiry, observe};

/// How often what waits is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// The pauses after a store that could not be asked.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Goes on with flows that nobody works on: abandoned ones, those whose pause is over, and staged jobs.
///
/// Any number of completers may run side by side, in one process or in many: each flow is given to one of them, and
/// what an earlier worker still tries is refused (I7). An abandoned flow is gone on with when its lease is over and a
/// completer looks, so within two leases. Flows whose names are not registered here are left alone.
pub struct Completer<S: FlowStore> {
    shared: Arc<Shared<S>>,
}

impl<S: FlowStore> Completer<S> {
    pub(super) fn new(shared: Arc<Shared<S>>) -> Completer<S> {
        Completer { shared }
    }

    /// Works until `stop` completes. Then it takes nothing more, lets what it runs go on for the settings' `grace`, and
    /// gives back what has not ended by then: it is cut off as by a crash, and others can take it over at once.
    ///
    /// A store that cannot be reached is tried again for as long as it takes. If this future is dropped, its runs are
    /// cut off, and their leases run out.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) {
        let mut stop = std::pin::pin!(stop);
        let mut shift = Shift::new(Arc::clone(&self.shared));
        loop {
            shift.measure().await;
            let look = shift.take().await;
            tokio::select! {
                () = &mut stop => break,
                () = shift.wait(look) => {}
            }
        }
        shift.end().await;
    }
}

impl<S: FlowStore> fmt::Debug for Completer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.shared.definitions().map(|definition| definition.name()).collect();
        f.debug_struct("Completer").field("names", &names).finish_non_exhaustive()
    }
}

/// What a look for flows brought.
#[derive(Debug, Clone, Copy)]
enum Look {
    /// All there is, or nothing.
    Enough,
    /// There may be more than there was room for.
    More,
    /// The store could not be asked; this long it is left alone.
    Failed(Duration),
}

/// What a completer has in hand.
struct Shift<S: FlowStore> {
    shared: Arc<Shared<S>>,
    runs: JoinSet<()>,
    /// The leases of the runs, save for those that nobody but a person may take over.
    leases: HashMap<Id, Lease>,
    /// Which flow is looked for first. It changes with every look, so that none takes all the room every time.
    first: usize,
    backoff: Backoff,
    measure_at: Instant,
    measured: BTreeSet<String>,
}

impl<S: FlowStore> Shift<S> {
    fn new(shared: Arc<Shared<S>>) -> Shift<S> {
        let measured = shared.definitions().map(|definition| definition.name().to_owned()).collect();
        Shift {
            shared,
            runs: JoinSet::new(),
            leases: HashMap::new(),
            first: 0,
            backoff: Backoff::new(PAUSES.0, PAUSES.1),
            measure_at: Instant::now(),
            measured,
        }
    }

    fn room(&self) -> usize {
        self.shared.settings.concurrency.saturating_sub(self.runs.len())
    }

    /// Measures what waits, also under names that nobody here has registered.
    async fn measure(&mut self) {
        if Instant::now() < self.measure_at {
            return;
        }
        self.measure_at = Instant::now() + MEASURE_EVERY;
        match self.shared.semel.store().flow_pressure().await {
            Ok(pressure) => observe::flow_pressure(&pressure, &mut self.measured),
            Err(error) => tracing::warn!(%error, "flows that wait could not be counted and will be counted again"),
        }
    }

    /// Takes as many flows as there is room for, and runs them. It is not to be cut short: what the store has given is
    /// this worker's.
    async fn take(&mut self) -> Look {
        let definitions: Vec<Arc<Definition<S>>> = self.shared.definitions().cloned().collect();
        let count = definitions.len();
        self.first = (self.first + 1) % count.max(1);
        let mut look = Look::Enough;
        for definition in definitions.iter().cycle().skip(self.first).take(count) {
            let room = self.room();
            if room == 0 {
                return Look::More;
            }
            let (terms, limit) = (self.shared.terms(definition), u32::try_from(room).unwrap_or(u32::MAX));
            match self.shared.semel.store().take_flows(definition.name(), &terms, limit).await {
                Ok(journals) => {
                    if journals.len() >= room {
                        look = Look::More;
                    }
                    journals.into_iter().for_each(|journal| self.begin(definition, journal));
                }
                Err(error) => {
                    let pause = self.backoff.next();
                    let flow = definition.name();
                    tracing::warn!(flow, %error, "no flows could be taken; the completer will try again");
                    return Look::Failed(pause);
                }
            }
        }
        self.backoff.reset();
        look
    }

    fn begin(&mut self, definition: &Arc<Definition<S>>, journal: Journal) {
        observe::flow_takeover(definition.name());
        let lease = journal.lease.clone();
        let (shared, definition) = (Arc::clone(&self.shared), Arc::clone(definition));
        let resumes = definition.terms.on_expiry == OnExpiry::Resume;
        let run = self.runs.spawn(async move { drop(drive(shared, definition, journal).await) });
        if resumes {
            self.leases.insert(run.id(), lease);
        }
    }

    /// Waits until it is time to look again: there may be something new, or there is room again for what is there.
    async fn wait(&mut self, look: Look) {
        let shared = Arc::clone(&self.shared);
        let (pause, asks) = match look {
            Look::Enough | Look::More => (shared.settings.looks_every(), true),
            Look::Failed(pause) => (pause, false),
        };
        let until = Instant::now() + pause;
        loop {
            let has_room = self.room() > 0;
            tokio::select! {
                () = tokio::time::sleep_until(until), if has_room => return,
                () = shared.semel.store().flow_staged(), if has_room && asks => return,
                Some(ended) = self.runs.join_next_with_id(), if !self.runs.is_empty() => {
                    self.forget(&ended);
                    if matches!(look, Look::More) {
                        return;
                    }
                }
            }
        }
    }

    fn forget(&mut self, ended: &Result<(Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => *id,
            Err(stopped) => {
                tracing::error!(%stopped, "the run of a flow was cut off; it goes on when its lease is over");
                stopped.id()
            }
        };
        self.leases.remove(&id);
    }

    /// Lets the runs end, for a while, and gives the rest back.
    async fn end(mut self) {
        let until = Instant::now() + self.shared.settings.grace;
        while let Ok(Some(ended)) = tokio::time::timeout_at(until, self.runs.join_next_with_id()).await {
            self.forget(&ended);
        }
        self.runs.shutdown().await;
        for lease in self.leases.values() {
            let operation = lease.scope().operation();
            match self.shared.semel.store().park_flow(lease, Duration::ZERO, None).await {
                Ok(()) => tracing::info!(operation, "a flow was cut off and given back"),
                Err(error) => tracing::warn!(operation, %error, "a flow was cut off; its lease runs out"),
            }
        }
    }
}
