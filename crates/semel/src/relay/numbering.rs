//! Gives events their sequences.

use bytes::Bytes;

use crate::event::{self, Event};
use crate::outbox::{HeldEvent, LaneState, Written};
use crate::sink::Outgoing;

/// Counts an event: the next sequence of its topic in this lane. The cursor is not moved.
pub(super) fn count(state: &mut LaneState, written: &Written) -> u64 {
    match state.counts.get_mut(&written.event.topic) {
        Some(last) => {
            *last += 1;
            *last
        }
        None => {
            state.counts.insert(written.event.topic.clone(), 1);
            1
        }
    }
}

/// The event as it goes out.
pub(super) fn outgoing(held: &HeldEvent, source: &str, incarnation: &str) -> Outgoing {
    let written = &held.written;
    Outgoing {
        id: written.id,
        source: source.to_owned(),
        time_ms: written.time_ms,
        lane: written.lane,
        sequence: held.sequence,
        incarnation: incarnation.to_owned(),
        event: written.event.clone(),
    }
}

/// What goes out in the place of an event whose key is parked, so that consumers who count sequences do not wait for
/// it. The event itself, should it be redriven, gets a new sequence and keeps its id; the placeholder has an id of its
/// own.
pub(super) fn placeholder(parked: &HeldEvent) -> HeldEvent {
    let Written { cursor, id, lane, time_ms, event } = &parked.written;
    let event = Event {
        topic: event.topic.clone(),
        ordering_key: event.ordering_key.clone(),
        event_type: event::PLACEHOLDER.to_owned(),
        content_type: "application/octet-stream".to_owned(),
        payload: Bytes::new(),
        headers: Vec::new(),
        traceparent: None,
        tracestate: None,
    };
    let id = id.placeholder(parked.sequence);
    let written = Written { cursor: *cursor, id, lane: *lane, time_ms: *time_ms, event };
    HeldEvent { written, sequence: parked.sequence }
}
