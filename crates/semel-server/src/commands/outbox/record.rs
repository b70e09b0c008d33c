//! How events and held keys look to an operator, as text and as JSON.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use semel::outbox::{EventRecord, EventState, HeldEvent, HeldKey, HeldState};
use serde_json::{Value, json};

use crate::commands::text::{self, facts, line, time};

/// The most characters of an error that a line shows; `--json` has all of it.
const ERROR_SHOWN: usize = 160;

/// An event as a JSON object. The payload is left out unless asked for: it is the tenant's.
pub(crate) fn to_json(record: &EventRecord, with_payload: bool) -> Value {
    let written = &record.written;
    let event = &written.event;
    let mut object = json!({
        "id": written.id.to_string(),
        "state": state(record.state),
        "topic": event.topic,
        "ordering_key": event.ordering_key,
        "type": event.event_type,
        "content_type": event.content_type,
        "time": time(written.time_ms),
        "lane": written.lane.0,
        "tick": written.cursor.tick,
        "seq": written.cursor.seq,
        "headers": event.headers,
        "traceparent": event.traceparent,
        "tracestate": event.tracestate,
        "payload_bytes": event.payload.len(),
        "held": record.held.as_ref().map(held_to_json),
        "skipped": record.skipped.as_ref().map(|audit| json!({ "actor": audit.actor, "reason": audit.reason })),
    });
    if with_payload {
        match text::json(&event.payload) {
            Some(text) => object["payload"] = text.into(),
            None => object["payload_base64"] = BASE64_STANDARD.encode(&event.payload).into(),
        }
    }
    object
}

/// An event as one line per fact.
pub(crate) fn to_text(record: &EventRecord, with_payload: bool) -> String {
    let written = &record.written;
    let event = &written.event;
    let mut told = vec![
        ("id", written.id.to_string()),
        ("state", state(record.state).to_owned()),
        ("topic", event.topic.clone()),
        ("ordering key", event.ordering_key.clone()),
        ("type", event.event_type.clone()),
        ("content type", event.content_type.clone()),
        ("time", time(written.time_ms)),
        ("lane", written.lane.0.to_string()),
        ("tick, seq", format!("{}, {}", written.cursor.tick, written.cursor.seq)),
    ];
    told.extend(event.headers.iter().map(|(name, value)| ("header", format!("{name}: {value}"))));
    told.extend(event.traceparent.iter().map(|context| ("traceparent", line(context, ERROR_SHOWN))));
    told.extend(event.tracestate.iter().map(|context| ("tracestate", line(context, ERROR_SHOWN))));
    told.push(("payload bytes", event.payload.len().to_string()));
    if let Some(held) = &record.held {
        told.push(("attempts", held.attempts.to_string()));
        told.push(("held since", time(held.since_ms)));
        if held.state == HeldState::Retrying {
            told.push(("tried again at", time(held.retry_at_ms)));
        }
        told.push(("error", line(&held.error, ERROR_SHOWN)));
    }
    if let Some(audit) = &record.skipped {
        told.push(("skipped by", audit.actor.clone()));
        told.push(("reason", audit.reason.clone()));
    }
    if with_payload {
        told.push(match text::json(&event.payload) {
            Some(text) => ("payload", line(text, usize::MAX)),
            None => ("payload base64", BASE64_STANDARD.encode(&event.payload)),
        });
    }
    facts(&told)
}

/// A held key as a JSON object.
pub(crate) fn held_to_json(held: &HeldKey) -> Value {
    json!({
        "ordering_key": held.ordering_key,
        "lane": held.lane.0,
        "state": held.state.as_str(),
        "attempts": held.attempts,
        "retry_at": (held.state == HeldState::Retrying).then(|| time(held.retry_at_ms)),
        "error": held.error,
        "since": time(held.since_ms),
        "events": held.events,
    })
}

/// A held key and its first event as cells under [`HELD_HEADING`].
pub(crate) fn held_to_row(held: &HeldKey, first: Option<&HeldEvent>) -> Vec<String> {
    vec![
        held.ordering_key.clone(),
        held.lane.0.to_string(),
        held.state.as_str().to_owned(),
        held.events.to_string(),
        held.attempts.to_string(),
        time(held.since_ms),
        first.map_or_else(|| "-".to_owned(), |event| event.written.id.to_string()),
        line(&held.error, ERROR_SHOWN),
    ]
}

/// What the cells of [`held_to_row`] hold.
pub(crate) const HELD_HEADING: [&str; 8] =
    ["KEY", "LANE", "STATE", "EVENTS", "ATTEMPTS", "SINCE", "FIRST EVENT", "ERROR"];

fn state(state: EventState) -> &'static str {
    match state {
        EventState::Created => "created",
        EventState::Published => "published",
        EventState::Retrying => "retrying",
        EventState::Parked => "parked",
        EventState::Redriving => "redriving",
        EventState::Skipped => "skipped",
    }
}

#[cfg(test)]
mod tests {
    use semel::Event;
    use semel::outbox::{Cursor, Written};
    use semel::sink::Lane;
    use uuid::Uuid;

    use super::*;

    fn record(payload: &[u8]) -> EventRecord {
        let event = Event::bytes("charges", "alice", "charge.created", "application/json", payload.to_vec()).unwrap();
        let cursor = Cursor { tick: 3, seq: 7 };
        let written = Written { cursor, id: Uuid::nil().into(), lane: Lane::of("alice"), time_ms: 0, event };
        EventRecord { written, state: EventState::Created, held: None, skipped: None }
    }

    #[test]
    fn a_payload_is_shown_only_when_asked_for_and_as_text_only_if_it_is_json() {
        let text = record(br#"{"a":1}"#);
        assert_eq!(to_json(&text, false).get("payload"), None);
        assert_eq!(to_json(&text, true)["payload"], r#"{"a":1}"#);
        assert!(!to_text(&text, false).contains("{\"a\":1}") && to_text(&text, true).contains("{\"a\":1}"));
        for bytes in [b"\xff\"".as_slice(), b"not json", b"\"\xff\""] {
            let shown = to_json(&record(bytes), true);
            assert_eq!(shown["payload_base64"], BASE64_STANDARD.encode(bytes));
            assert_eq!(shown.get("payload"), None);
        }
    }

    #[test]
    fn the_names_of_states_are_those_of_their_json() {
        for each in [
            EventState::Created,
            EventState::Published,
            EventState::Retrying,
            EventState::Parked,
            EventState::Redriving,
            EventState::Skipped,
        ] {
            assert_eq!(serde_json::to_value(each).unwrap(), state(each));
        }
    }
}
