//! Reads committed events and hands them to the lanes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::outbox::{Cursor, LaneState, Outbox, Page, Written};
use crate::relay::lane::Message;
use crate::relay::shift::Feeds;
use crate::relay::{Context, failed};
use crate::sink::{Lane, Sink};

/// The unit in which what is in flight is counted: an event takes at least one.
const UNIT_BYTES: u64 = 1024;

/// Events of one lane, and how far the lane has come with them.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) events: Vec<Written>,
    pub(super) upto: Cursor,
    /// Held until the events are dealt with, so that no more is read than may be in flight (I12).
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// Reads page after page, all lanes at once.
pub(super) struct Reader<'a, S, K> {
    context: &'a Context<S, K>,
    feeds: &'a Feeds,
    lanes: Vec<Lane>,
    cursor: Cursor,
    room: Arc<Semaphore>,
    units: u32,
}

impl<'a, S: Outbox, K: Sink> Reader<'a, S, K> {
    /// Starts where the lane that is furthest behind stands; the others skip what they have behind them.
    pub(super) fn new(context: &'a Context<S, K>, feeds: &'a Feeds, states: &[LaneState]) -> Reader<'a, S, K> {
        let cursor = states.iter().map(|state| state.cursor).min().unwrap_or(Cursor::START);
        let units = u32::try_from(context.settings.in_flight_bytes / UNIT_BYTES).unwrap_or(u32::MAX / 2).max(1);
        let room = Arc::new(Semaphore::new(units as usize));
        Reader { context, feeds, lanes: states.iter().map(|state| state.lane).collect(), cursor, room, units }
    }

    /// Reads for as long as it is polled.
    pub(super) async fn read(mut self) {
        if self.lanes.is_empty() {
            return std::future::pending().await;
        }
        let settings = &self.context.settings;
        let mut backoff = Backoff::new(settings.backoff_min, settings.backoff_max.min(Duration::from_secs(5)));
        let mut idle = settings.read_interval;
        loop {
            let next_at = Instant::now() + settings.read_interval;
            match self.context.store.page(self.cursor, &self.lanes, settings.page).await {
                Ok(Some(page)) => {
                    backoff.reset();
                    idle = settings.read_interval;
                    let full = page.events.len() * 4 >= settings.page.events as usize;
                    self.distribute(page).await;
                    if !full {
                        tokio::time::sleep_until(next_at).await;
                    }
                }
                Ok(None) => {
                    backoff.reset();
                    tokio::select! {
                        () = tokio::time::sleep(idle) => idle = (idle * 2).min(settings.poll_max),
                        () = self.context.store.emitted() => idle = settings.read_interval,
                    }
                }
                Err(error) => {
                    failed("read the outbox", &error);
                    tokio::time::sleep(backoff.next()).await;
                }
            }
        }
    }

    async fn distribute(&mut self, page: Page) {
        let units: u64 = page.events.iter().map(units_of).sum();
        let units = u32::try_from(units).unwrap_or(u32::MAX).min(self.units);
        // Nobody closes it.
        let Ok(mut room) = Arc::clone(&self.room).acquire_many_owned(units).await else { return };
        let mut by_lane: BTreeMap<Lane, Vec<Written>> = BTreeMap::new();
        for event in page.events {
            by_lane.entry(event.lane).or_default().push(event);
        }
        for (lane, feed) in self.feeds {
            let events = by_lane.remove(lane).unwrap_or_default();
            // Each lane has a part of its own, so that one which cannot go on holds up no more than its own events.
            let units: u64 = events.iter().map(units_of).sum();
            let units = usize::try_from(units).unwrap_or(usize::MAX).min(room.num_permits());
            let room = room.split(units);
            // A worker that is gone has ended the shift.
            let _ = feed.send(Message::Parcel(Parcel { events, upto: page.upto, room }));
        }
        self.cursor = page.upto;
    }
}

fn units_of(written: &Written) -> u64 {
    (written.event.payload.len() as u64).div_ceil(UNIT_BYTES).max(1)
}
