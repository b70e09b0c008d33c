//! Something that happened, written in the transaction that made it happen.

use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::Execution;

/// The longest topic, ordering key or type, in bytes. The database checks the same bounds (I12).
pub const MAX_NAME_BYTES: usize = 255;

/// The most bytes a payload may take.
pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;

/// The most bytes all headers may take together.
pub const MAX_HEADER_BYTES: usize = 8 * 1024;

/// The type of what is published in the place of an event that is parked: consumers who count sequences count it, and
/// everybody else ignores it.
pub const PLACEHOLDER: &str = "semel.placeholder";

/// An event as a service emits it. It is published if and only if its transaction commits (I4), after every earlier
/// event of the same ordering key (I5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Where it goes: a topic, subject, exchange or stream, as the sink has it.
    pub topic: String,
    /// Events that share it are published in order.
    pub ordering_key: String,
    /// What happened, such as `charge.created`: the CloudEvents attribute `type`.
    pub event_type: String,
    /// The media type of the payload: the CloudEvents attribute `datacontenttype`.
    pub content_type: String,
    /// The payload's bytes, published as they are.
    pub payload: Bytes,
    /// Further headers, in order.
    pub headers: Vec<(String, String)>,
    /// The W3C trace context, if there is one.
    pub traceparent: Option<String>,
    /// The vendors' part of the trace context.
    pub tracestate: Option<String>,
}

/// Why an event was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A name is empty, too long, or holds control characters.
    #[error("the {what} of an event must be 1 to {MAX_NAME_BYTES} bytes without control characters")]
    Name {
        /// Which one.
        what: &'static str,
    },
    /// The payload is too large.
    #[error("the payload of an event takes {0} bytes and the limit is {MAX_PAYLOAD_BYTES}")]
    Payload(usize),
    /// The headers are too large, or hold what HTTP does not allow.
    #[error("the headers of an event must be visible ASCII names and single lines, {MAX_HEADER_BYTES} bytes in all")]
    Headers,
    /// The value could not be written as JSON.
    #[error("the payload could not be written as JSON")]
    Json(#[from] serde_json::Error),
}

impl Event {
    /// An event with `payload` as JSON.
    pub fn new<T: Serialize + ?Sized>(
        topic: impl Into<String>,
        ordering_key: impl Into<String>,
        event_type: impl Into<String>,
        payload: &T,
    ) -> Result<Event, Invalid> {
        Event::bytes(topic, ordering_key, event_type, "application/json", serde_json::to_vec(payload)?)
    }

    /// An event with these payload bytes.
    pub fn bytes(
        topic: impl Into<String>,
        ordering_key: impl Into<String>,
        event_type: impl Into<String>,
        content_type: impl Into<String>,
        payload: impl Into<Bytes>,
    ) -> Result<Event, Invalid> {
        let event = Event {
            topic: named("topic", topic.into())?,
            ordering_key: named("ordering key", ordering_key.into())?,
            event_type: named("type", event_type.into())?,
            content_type: named("content type", content_type.into())?,
            payload: payload.into(),
            headers: Vec::new(),
            traceparent: None,
            tracestate: None,
        };
        match event.payload.len() {
            0..=MAX_PAYLOAD_BYTES => Ok(event),
            bytes => Err(Invalid::Payload(bytes)),
        }
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Result<Event, Invalid> {
        let (name, value) = (name.into(), value.into());
        let name_ok = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
        let total: usize = self.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
        if !name_ok || value.chars().any(char::is_control) || total + name.len() + value.len() + 4 > MAX_HEADER_BYTES {
            return Err(Invalid::Headers);
        }
        self.headers.push((name, value));
        Ok(self)
    }

    /// Sets the W3C trace context.
    #[must_use]
    pub fn traced(mut self, traceparent: impl Into<String>, tracestate: Option<String>) -> Event {
        self.traceparent = Some(traceparent.into());
        self.tracestate = tracestate;
        self
    }
}

/// The identity of an event: derived from the run that emitted it and its place in that run, so that every publication
/// of it, however late, carries the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(Uuid);

impl EventId {
    /// The id of the event number `ordinal`, counted from zero, of a run.
    pub fn derive(execution: Execution, ordinal: u32) -> EventId {
        EventId(derive_uuid("semel event 1", execution.as_uuid(), &ordinal.to_be_bytes()))
    }

    /// The id of what takes the place of this event under a sequence it is not published with.
    pub(crate) fn placeholder(&self, sequence: u64) -> EventId {
        EventId(derive_uuid("semel placeholder 1", self.0, &sequence.to_be_bytes()))
    }

    /// The id as a UUID of version 8.
    pub fn as_uuid(&self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for EventId {
    fn from(id: Uuid) -> EventId {
        EventId(id)
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A UUID of version 8 from a hash. `label` keeps what is derived for one purpose apart from every other.
pub(crate) fn derive_uuid(label: &str, from: Uuid, rest: &[u8]) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(label);
    hash.update(from.as_bytes());
    hash.update(rest);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

fn named(what: &'static str, text: String) -> Result<String, Invalid> {
    if text.is_empty() || text.len() > MAX_NAME_BYTES || text.chars().any(char::is_control) {
        return Err(Invalid::Name { what });
    }
    Ok(text)
}
