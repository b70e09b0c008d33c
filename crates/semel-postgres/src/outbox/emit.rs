//! Writing events at the end of a transaction.

use std::collections::HashSet;

use semel::outbox::{MAX_EVENTS, MAX_ORDERING_KEYS};
use semel::{Error, Event, Execution};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::row::headers_json;
use crate::parameter::{Parameter, Typed};

pub(crate) const EMIT: &str = include_str!("../sql/emit_all.sql");

/// Events as `semel.emit_all` takes them: one call, and within the completion's flight no further round trip.
pub(crate) struct Emission<'a> {
    execution: Option<Uuid>,
    pub(crate) topics: Typed<Vec<&'a str>>,
    pub(crate) ordering_keys: Typed<Vec<&'a str>>,
    pub(crate) event_types: Typed<Vec<&'a str>>,
    pub(crate) content_types: Typed<Vec<&'a str>>,
    pub(crate) payloads: Typed<Vec<&'a [u8]>>,
    pub(crate) headers: Typed<Vec<Option<String>>>,
    pub(crate) traceparents: Typed<Vec<Option<&'a str>>>,
    pub(crate) tracestates: Typed<Vec<Option<&'a str>>>,
}

impl<'a> Emission<'a> {
    /// Of a run; without one, of the last claim in the transaction or of the transaction itself. Fails if there are
    /// more events or ordering keys than one transaction may have (I12).
    pub(crate) fn new(execution: Option<Execution>, events: &'a [Event]) -> Result<Emission<'a>, Error> {
        check(events)?;
        let names = |name: fn(&Event) -> &str| Typed(events.iter().map(name).collect(), Type::TEXT_ARRAY);
        Ok(Emission {
            execution: execution.map(|execution| execution.as_uuid()),
            topics: names(|event| &event.topic),
            ordering_keys: names(|event| &event.ordering_key),
            event_types: names(|event| &event.event_type),
            content_types: names(|event| &event.content_type),
            payloads: Typed(events.iter().map(|event| event.payload.as_ref()).collect(), Type::BYTEA_ARRAY),
            headers: Typed(events.iter().map(headers_json).collect(), Type::TEXT_ARRAY),
            traceparents: Typed(events.iter().map(|event| event.traceparent.as_deref()).collect(), Type::TEXT_ARRAY),
            tracestates: Typed(events.iter().map(|event| event.tracestate.as_deref()).collect(), Type::TEXT_ARRAY),
        })
    }

    pub(crate) fn params(&self) -> [&dyn Parameter; 9] {
        [
            &self.execution,
            &self.topics,
            &self.ordering_keys,
            &self.event_types,
            &self.content_types,
            &self.payloads,
            &self.headers,
            &self.traceparents,
            &self.tracestates,
        ]
    }
}

/// Refuses more events, or more ordering keys, than one transaction may emit. The database counts them too.
fn check(events: &[Event]) -> Result<(), Error> {
    if events.len() > MAX_EVENTS {
        return Err(Error::TooManyEvents { what: format!("{} events", events.len()), limit: MAX_EVENTS });
    }
    if events.len() > MAX_ORDERING_KEYS {
        let keys: HashSet<&str> = events.iter().map(|event| event.ordering_key.as_str()).collect();
        if keys.len() > MAX_ORDERING_KEYS {
            let what = format!("to {} ordering keys", keys.len());
            return Err(Error::TooManyEvents { what, limit: MAX_ORDERING_KEYS });
        }
    }
    Ok(())
}
