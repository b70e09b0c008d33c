//! An event's attributes in CloudEvents 1.0, binary content mode: the payload travels as it is, the attributes beside
//! it.

use std::borrow::Cow;
use std::time::{Duration, UNIX_EPOCH};

use semel::sink::Outgoing;

/// 9999-12-31T23:59:59.999Z, the last instant that RFC 3339 can write.
const LAST_MS: i64 = 253_402_300_799_999;

/// The attributes that every binding carries, `datacontenttype` excepted, which each binding maps in its own way.
/// `partitionkey` is the extension for the ordering key.
pub(crate) fn attributes(outgoing: &Outgoing) -> [(&'static str, Cow<'_, str>); 6] {
    [
        ("specversion", "1.0".into()),
        ("id", outgoing.id.to_string().into()),
        ("source", outgoing.source.as_str().into()),
        ("type", outgoing.event.event_type.as_str().into()),
        ("time", time(outgoing.time_ms).into()),
        ("partitionkey", outgoing.event.ordering_key.as_str().into()),
    ]
}

/// What Semel adds for consumers that count: where the event stands in its lane.
pub(crate) fn coordinates(outgoing: &Outgoing) -> [(&'static str, Cow<'_, str>); 3] {
    [
        ("semel-lane", outgoing.lane.0.to_string().into()),
        ("semel-sequence", outgoing.sequence.to_string().into()),
        ("semel-incarnation", outgoing.incarnation.as_str().into()),
    ]
}

/// The W3C trace context, under the names that tracing libraries look for.
pub(crate) fn trace_context(outgoing: &Outgoing) -> impl Iterator<Item = (&'static str, &str)> {
    let parent = outgoing.event.traceparent.as_deref().map(|value| ("traceparent", value));
    let state = outgoing.event.tracestate.as_deref().map(|value| ("tracestate", value));
    parent.into_iter().chain(state)
}

/// The service's own headers, in order. A name that means something to the broker or to a reader of CloudEvents is sent
/// as `semel-header-NAME`, so that a header can neither pose as an attribute nor steer the broker, and is not lost.
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
pub(crate) fn headers(outgoing: &Outgoing) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
    outgoing.event.headers.iter().map(|(name, value)| {
        let lower = name.to_ascii_lowercase();
        let prefixes = ["ce-", "cloudevents", "semel-", "nats-", "x-"];
        let names = ["content-type", "traceparent", "tracestate", "cc", "bcc"];
        // RabbitMQ gives meaning to x-delay, x-death and others, and routes copies by CC and BCC.
        let reserved = names.contains(&lower.as_str()) || prefixes.iter().any(|prefix| lower.starts_with(prefix));
        (if reserved { format!("semel-header-{name}").into() } else { name.as_str().into() }, value.as_str())
    })
}

/// The time as RFC 3339 with milliseconds, in UTC.
fn time(time_ms: i64) -> String {
    let since_epoch = Duration::from_millis(time_ms.clamp(0, LAST_MS).unsigned_abs());
    humantime::format_rfc3339_millis(UNIX_EPOCH + since_epoch).to_string()
}
