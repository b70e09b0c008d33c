//! Publishes the past again.

use std::collections::{BTreeMap, VecDeque};

use crate::Error as StoreError;
use crate::error::told;
use crate::outbox::{Cursor, HeldEvent, LaneHistory, LaneState, Outbox, PageLimit, Written};
use crate::relay::numbering;
use crate::relay::position::Mark;
use crate::sink::{self, Guarantee, Lane, Outgoing, Sink};

/// What to publish again.
#[derive(Debug, Clone)]
pub struct Replay {
    /// The CloudEvents attribute `source`; give what the relay is given.
    pub source: String,
    /// Only events emitted at or after this, in milliseconds since the Unix epoch.
    pub from_ms: Option<i64>,
    /// Only events emitted before this.
    pub to_ms: Option<i64>,
    /// Only this topic.
    pub topic: Option<String>,
    /// Only this ordering key.
    pub ordering_key: Option<String>,
    /// How much is read at once.
    pub page: PageLimit,
    /// Publishes nothing, and counts what would be.
    pub dry_run: bool,
}

/// What was published again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Events of the past that were looked at.
    pub read: u64,
    /// Events that were published again, or with `dry_run` would have been.
    pub published: u64,
}

/// Why a replay stopped. What was published before stays published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stopped {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The sink failed.
    #[error("the sink did not take event {id}: {why}")]
    Sink {
        /// Which event.
        id: crate::EventId,
        /// What the sink said.
        why: String,
    },
    /// A transactional sink fences the relay that publishes there.
    #[error("a replay cannot go to a transactional sink: it would fence the relay; use its plain form")]
    Transactional,
}

/// Publishes events again that were published before and are still kept, with the ids and sequences they had, in the
/// order they had per ordering key. Events that wait, are held or were skipped are left out. `progress` is called after
/// every page.
///
/// The relay may go on meanwhile. Consumers that have seen an event know it by its id and sequence.
pub async fn replay<S: Outbox, K: Sink>(
    store: &S,
    sink: &K,
    replay: &Replay,
    mut progress: impl FnMut(Replayed),
) -> Result<Replayed, Stopped> {
    if sink.guarantee() == Guarantee::Transactional {
        return Err(Stopped::Transactional);
    }
    let incarnation = store.outbox_status().await?.incarnation;
    let mut lanes: BTreeMap<Lane, Past> =
        store.history().await?.into_iter().map(|history| (history.from.lane, Past::new(history))).collect();
    let mut done = Replayed::default();
    let (Some(start), Some(end)) =
        (lanes.values().map(|past| past.state.cursor).min(), lanes.values().map(|past| past.upto).max())
    else {
        return Ok(done);
    };
    let which: Vec<Lane> = lanes.keys().copied().collect();
    let mut cursor = start;
    while cursor < end {
        let Some(page) = store.page(cursor, &which, replay.page).await? else { break };
        cursor = page.upto;
        let mut batches: BTreeMap<Lane, Vec<Outgoing>> = BTreeMap::new();
        for written in page.events {
            let Some(event) = lanes.get_mut(&written.lane).and_then(|past| past.number(written)) else { continue };
            done.read += 1;
            if replay.wants(&event.written) {
                done.published += 1;
                let outgoing = numbering::outgoing(&event, &replay.source, &incarnation);
                batches.entry(event.written.lane).or_default().push(outgoing);
            }
        }
        if !replay.dry_run {
            for (lane, batch) in &batches {
                publish(sink, *lane, batch, &Mark::new(&incarnation, Cursor::START)).await?;
            }
        }
        progress(done);
    }
    Ok(done)
}

async fn publish<K: Sink>(sink: &K, lane: Lane, batch: &[Outgoing], mark: &Mark) -> Result<(), Stopped> {
    let results = sink.publish(lane, batch, &mark.encode()).await;
    for (event, result) in batch.iter().zip(results) {
        let why = match result {
            Ok(()) | Err(sink::Error::Behind) => continue,
            Err(sink::Error::Refused(why) | sink::Error::Unavailable(why)) => told(&why),
            Err(error @ sink::Error::Fenced) => error.to_string(),
        };
        return Err(Stopped::Sink { id: event.id, why });
    }
    Ok(())
}

impl Replay {
    fn wants(&self, written: &Written) -> bool {
        let event = &written.event;
        self.from_ms.is_none_or(|from_ms| written.time_ms >= from_ms)
            && self.to_ms.is_none_or(|to_ms| written.time_ms < to_ms)
            && self.topic.as_ref().is_none_or(|topic| *topic == event.topic)
            && self.ordering_key.as_ref().is_none_or(|key| *key == event.ordering_key)
    }
}

/// A lane on its way through its past.
struct Past {
    state: LaneState,
    upto: Cursor,
    renumbered: VecDeque<LaneState>,
    history: LaneHistory,
}

impl Past {
    fn new(history: LaneHistory) -> Past {
        let renumbered = history.renumbered.iter().cloned().collect();
        Past { state: history.from.clone(), upto: history.upto, renumbered, history }
    }

    /// Counts an event as the relay did. `None` if it was not published, or lies before what is known of the lane.
    fn number(&mut self, written: Written) -> Option<HeldEvent> {
        if written.cursor <= self.state.cursor || written.cursor > self.upto {
            return None;
        }
        while self.renumbered.front().is_some_and(|state| state.cursor < written.cursor) {
            if let Some(state) = self.renumbered.pop_front() {
                self.state.counts = state.counts;
            }
        }
        let counted = numbering::count(&mut self.state, &written);
        self.state.cursor = written.cursor;
        if self.history.withheld.contains(&written.id) {
            return None;
        }
        let sequence = self.history.redriven.get(&written.id).copied().unwrap_or(counted);
        Some(HeldEvent { written, sequence })
    }
}
