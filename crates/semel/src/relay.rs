//! Moves committed events from the outbox to a sink.
//!
//! Several relays may run side by side, in one process or in many. They divide the lanes among themselves by leases;
//! each lane has one relay that may write its position (I7). What a relay sends is at least once, in order per ordering
//! key, with ids and sequences that never change (I4, I5): after a crash, or after a hand-over that one side slept
//! through, events are sent again exactly as they were.

mod board;
mod housekeeping;
mod keeper;
mod lane;
mod numbering;
mod position;
mod reader;
mod replay;
mod settings;
mod shift;

use std::future::Future;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

pub use replay::{Replay, Replayed, Stopped, replay};
pub use settings::Settings;

use crate::backoff::Backoff;
use crate::outbox::{Joined, Outbox};
use crate::relay::keeper::Keeper;
use crate::relay::shift::{Ended, Shift};
use crate::sink::Sink;
use crate::{Clock, Error as StoreError, SystemClock, observe};

/// Moves events from the store `S` to the sink `K`.
#[derive(Debug)]
pub struct Relay<S, K> {
    store: S,
    sink: Arc<K>,
    settings: Settings,
}

/// Why a relay does not run at all. Whatever may pass by itself is tried again instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting cannot work.
    #[error("{0}")]
    Settings(String),
    /// The store refuses: its schema is another version's, or its positions are another database's.
    #[error(transparent)]
    Store(StoreError),
}

/// What everything that belongs to one membership shares.
struct Context<S, K> {
    store: S,
    sink: Arc<K>,
    settings: Settings,
    joined: Joined,
    /// How many events the sink has taken, of any lane.
    published: AtomicU64,
    /// How long the lease runs at least, as far as this process can tell.
    lease_until: Mutex<Instant>,
    /// Why the membership is over, once it is.
    lost: watch::Sender<Option<Lost>>,
}

/// Why a membership is over before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// Another relay took over, at the store or at the sink.
    Fenced,
    /// The lease could not be renewed in time, so another relay may take over any moment.
    Lapsed,
    /// Something failed that a new start may mend.
    Failed,
}

impl<S, K> Context<S, K> {
    /// Notes that the lease runs until then.
    fn leased_until(&self, until: Instant) {
        *self.lease_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Whether the lease may have run out. A process that was stopped finds out here, before it sends anything more.
    fn has_lapsed(&self) -> bool {
        Instant::now() >= *self.lease_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the membership. The first reason stays.
    fn lose(&self, why: Lost) {
        self.lost.send_if_modified(|lost| {
            let first = lost.is_none();
            lost.get_or_insert(why);
            first
        });
    }

    /// Completes when the membership is over.
    async fn until_lost(&self) -> Lost {
        let mut lost = self.lost.subscribe();
        match lost.wait_for(Option::is_some).await {
            Ok(why) => why.unwrap_or(Lost::Failed),
            Err(_) => Lost::Failed,
        }
    }
}

impl<S: Outbox, K: Sink> Relay<S, K> {
    /// A relay from this store to this sink. Fails if a setting is out of bounds.
    pub fn new(store: S, sink: K, settings: Settings) -> Result<Relay<S, K>, Error> {
        settings.check().map_err(Error::Settings)?;
        Ok(Relay { store, sink: Arc::new(sink), settings })
    }

    /// Relays until `stop` completes; then lets what is in flight end, stores the positions and gives the lanes back.
    ///
    /// A store or a sink that cannot be reached is tried again for as long as it takes. An error means that the relay
    /// refuses to run: somebody has to do something first.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) -> Result<(), Error> {
        let (stopping, stopped) = watch::channel(false);
        let result = {
            let mut relaying = std::pin::pin!(self.relay(stopped));
            tokio::select! {
                result = &mut relaying => result,
                () = stop => {
                    let _ = stopping.send(true);
                    relaying.await
                }
            }
        };
        self.sink.close().await;
        result
    }

    async fn relay(&self, mut stopping: watch::Receiver<bool>) -> Result<(), Error> {
        let mut backoff = Backoff::new(self.settings.backoff_min, self.settings.backoff_max);
        while !*stopping.borrow() {
            let joined_at = Instant::now();
            let joined = match self.store.join_relays(&self.settings.name, self.settings.lease).await {
                Ok(joined) => joined,
                Err(error @ (StoreError::Incarnation { .. } | StoreError::Schema(_) | StoreError::Settings(_))) => {
                    return Err(Error::Store(error));
                }
                Err(error) => {
                    failed("join the relays", &error);
                    backoff.pause(&mut stopping).await;
                    continue;
                }
            };
            tracing::info!(relay = joined.id.0, incarnation = %joined.incarnation, "the relay has joined");
            let lost = self.serve(joined, joined_at, &mut stopping).await;
            observe::relay_lanes(0);
            match lost {
                None => return Ok(()),
                Some(Lost::Fenced) => observe::fenced_write(),
                Some(Lost::Lapsed | Lost::Failed) => observe::relay_failed(),
            }
            if joined_at.elapsed() > self.settings.lease {
                backoff.reset();
            }
            tracing::warn!(reason = ?lost, "the relay has lost its lanes and joins anew");
            backoff.pause(&mut stopping).await;
        }
        Ok(())
    }

    /// Serves one membership to its end. `None` if it ended in good order.
    async fn serve(&self, joined: Joined, joined_at: Instant, stopping: &mut watch::Receiver<bool>) -> Option<Lost> {
        let context = Arc::new(Context {
            store: self.store.clone(),
            sink: Arc::clone(&self.sink),
            settings: self.settings.clone(),
            joined,
            published: AtomicU64::new(0),
            lease_until: Mutex::new(joined_at + self.settings.lease),
            lost: watch::Sender::new(None),
        });
        let mut keeper = Keeper::start(&context);
        let mut lanes = Vec::new();
        let lost = loop {
            let mut shift = Shift::begin(&context, lanes);
            let ended = shift.work(&mut keeper, stopping).await;
            let states = shift.end().await;
            let Some(states) = states.filter(|_| !matches!(ended, Ended::Lost(_))) else {
                context.lose(Lost::Failed);
                let lost = *context.lost.borrow();
                break if matches!(ended, Ended::Stopped) { None } else { lost };
            };
            match ended {
                Ended::Lost(why) => break Some(why),
                Ended::Stopped => {
                    keeper.give(&states).await;
                    break *context.lost.borrow();
                }
                Ended::Surplus { share } => {
                    lanes = states;
                    let surplus = lanes.split_off(usize::from(share).min(lanes.len()));
                    keeper.give(&surplus).await;
                }
                Ended::Took(taken) => {
                    lanes = states;
                    lanes.extend(taken);
                }
            }
        };
        drop(keeper);
        if lost != Some(Lost::Fenced)
            && let Err(error) = context.store.leave_relays(context.joined.id).await
        {
            failed("leave the relays", &error);
        }
        lost
    }
}

/// Takes note of what will be tried again.
fn failed(what: &'static str, error: &(dyn std::error::Error + 'static)) {
    observe::relay_failed();
    let causes = std::iter::successors(error.source(), |error| error.source()).map(ToString::to_string);
    let causes = causes.collect::<Vec<_>>().join(": ");
    tracing::warn!(%error, causes, "the relay could not {what} and will try again");
}

fn now_ms() -> i64 {
    SystemClock.now_ms()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Never called: it compiles only if a relay can be spawned on a runtime.
    fn _a_relay_can_be_spawned<S: Outbox, K: Sink>(relay: Relay<S, K>) {
        drop(tokio::spawn(async move { relay.run(std::future::pending()).await }));
    }
}
