//! Where the lanes of a relay stand, until it is stored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedMutexGuard};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::outbox::{LaneState, Outbox, RelayId};
use crate::relay::{Context, Lost, failed};
use crate::sink::Lane;
use crate::{Error as StoreError, Sink, failpoint};

/// How often positions of lanes without events are stored, so that others find them near the front.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// The lanes' states, as their workers post them.
#[derive(Debug)]
pub(super) struct Board {
    lanes: Mutex<BTreeMap<Lane, Posted>>,
    posted: Notify,
    /// Held while positions are on their way to the store.
    noting: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Posted {
    state: LaneState,
    /// Whether events have passed since it was stored.
    counted: bool,
    /// Whether the cursor has moved since it was stored.
    moved: bool,
}

impl Board {
    /// A board on which these states are posted. They are stored soon: those of lanes that this relay had before may
    /// not have been.
    pub(super) fn new(states: &[LaneState]) -> Board {
        let posted = |state: &LaneState| Posted { state: state.clone(), counted: true, moved: true };
        let lanes = states.iter().map(|state| (state.lane, posted(state))).collect();
        let board = Board { lanes: Mutex::new(lanes), posted: Notify::new(), noting: Arc::default() };
        board.posted.notify_one();
        board
    }

    /// Where every lane stands.
    pub(super) fn states(&self) -> Vec<LaneState> {
        self.lock().values().map(|posted| posted.state.clone()).collect()
    }

    /// Posts where a lane stands. `counted` if events have passed.
    pub(super) fn post(&self, state: &LaneState, counted: bool) {
        let mut lanes = self.lock();
        if let Some(posted) = lanes.get_mut(&state.lane) {
            posted.counted |= counted;
            posted.moved = true;
            if counted {
                posted.state.clone_from(state);
            } else {
                posted.state.cursor = state.cursor;
            }
        }
        drop(lanes);
        if counted {
            self.posted.notify_one();
        }
    }

    /// Completes when no positions are on their way to the store.
    pub(super) async fn noted(&self) {
        drop(self.noting.lock().await);
    }

    fn take(&self, idle_too: bool) -> Vec<LaneState> {
        let mut lanes = self.lock();
        let due = lanes.values_mut().filter(|posted| posted.counted || (idle_too && posted.moved));
        due.map(|posted| {
            (posted.counted, posted.moved) = (false, false);
            posted.state.clone()
        })
        .collect()
    }

    fn put_back(&self, states: &[LaneState]) {
        let mut lanes = self.lock();
        for state in states {
            if let Some(posted) = lanes.get_mut(&state.lane) {
                posted.counted = true;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Lane, Posted>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores what is posted, for as long as it is polled. Losing the last of it to a crash, or to being dropped, means
    /// that events are sent again, as they were (I5).
    pub(super) async fn store<S: Outbox, K: Sink>(&self, context: &Context<S, K>) {
        let settings = &context.settings;
        let mut backoff = Backoff::new(settings.backoff_min, settings.backoff_max.min(Duration::from_secs(5)));
        let mut idle_at = Instant::now() + IDLE_INTERVAL;
        loop {
            let next = tokio::time::sleep(settings.checkpoint_interval);
            tokio::select! {
                () = self.posted.notified() => {}
                () = tokio::time::sleep_until(idle_at) => {}
            }
            let idle_too = Instant::now() >= idle_at;
            let states = self.take(idle_too);
            if idle_too {
                idle_at = Instant::now() + IDLE_INTERVAL;
            }
            if states.is_empty() {
                continue;
            }
            // A task of its own, so that a write that has begun ends, and its connection with it stays in use, even if
            // the shift is over meanwhile. One that comes late is refused (I7), or left out as behind what is stored.
            let noting = Arc::clone(&self.noting).lock_owned().await;
            match tokio::spawn(note(context.store.clone(), context.joined.id, states.clone(), noting)).await {
                Ok(Ok(())) => backoff.reset(),
                Ok(Err(StoreError::Fenced)) => {
                    context.lose(Lost::Fenced);
                    return;
                }
                Ok(Err(error)) => {
                    failed("store its positions", &error);
                    self.put_back(&states);
                    self.posted.notify_one();
                    tokio::time::sleep(backoff.next()).await;
                }
                Err(_) => {
                    context.lose(Lost::Failed);
                    return;
                }
            }
            next.await;
        }
    }
}

/// Stores where these lanes stand.
async fn note<S: Outbox>(
    store: S,
    id: RelayId,
    states: Vec<LaneState>,
    _noting: OwnedMutexGuard<()>,
) -> Result<(), StoreError> {
    failpoint::reach(failpoint::RELAY_NOTING).await;
    let noted = store.checkpoint(id, &states).await;
    if matches!(noted, Err(StoreError::Fenced)) {
        tracing::warn!(relay = id.0, "the store has refused the relay's positions: its lanes are another's");
    }
    noted
}
