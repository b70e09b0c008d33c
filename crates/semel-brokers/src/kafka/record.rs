//! An event as a Kafka record, by the CloudEvents Kafka binding in binary mode.

use std::borrow::Cow;

use rdkafka::message::{Header, OwnedHeaders};
use semel::sink::Outgoing;

use crate::cloud_event;

/// What a batch of records takes before its first.
const BATCH_HEADER_BYTES: usize = 61;

/// By how much a record may be larger in a batch of many than alone: the two varints that count from the first record.
const SPREAD_BYTES: usize = 14;

/// The attributes of [`cloud_event::attributes`] as headers, in the same order.
const ATTRIBUTES: [&str; 6] = ["ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "ce_partitionkey"];

/// The same for [`cloud_event::coordinates`].
const COORDINATES: [&str; 3] = ["semel_lane", "semel_sequence", "semel_incarnation"];

/// The record's headers, in order. A header of the service's own that would pose as one of ours is sent as
/// `semel_header_NAME`.
pub(super) fn fields(outgoing: &Outgoing) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
    let mut fields: Vec<(Cow<'_, str>, Cow<'_, str>)> = Vec::with_capacity(16);
    let attributes = cloud_event::attributes(outgoing).into_iter().map(|(_, value)| value);
    fields.extend(ATTRIBUTES.into_iter().map(Cow::from).zip(attributes));
    fields.push(("content-type".into(), outgoing.event.content_type.as_str().into()));
    let coordinates = cloud_event::coordinates(outgoing).into_iter().map(|(_, value)| value);
    fields.extend(COORDINATES.into_iter().map(Cow::from).zip(coordinates));
    fields.extend(cloud_event::trace_context(outgoing).map(|(name, value)| (name.into(), value.into())));
    fields.extend(outgoing.event.headers.iter().map(|(name, value)| (own(name), value.as_str().into())));
    fields
}

/// The same as librdkafka has them.
pub(super) fn headers(outgoing: &Outgoing) -> OwnedHeaders {
    let fields = fields(outgoing);
    fields.iter().fold(OwnedHeaders::new_with_capacity(fields.len()), |headers, (name, value)| {
        headers.insert(Header { key: name, value: Some(value.as_bytes()) })
    })
}

/// The bytes of a batch that holds this record alone: what a broker compares with the topic's limit.
pub(super) fn batch_bytes(outgoing: &Outgoing) -> usize {
    let fields = fields(outgoing);
    let headers: usize = fields.iter().map(|(name, value)| prefixed(name.len()) + prefixed(value.len())).sum();
    // Attributes, and the zero that each of the two counts from the first record is.
    let body = 3
        + prefixed(outgoing.event.ordering_key.len())
        + prefixed(outgoing.event.payload.len())
        + varint_bytes(fields.len())
        + headers;
    BATCH_HEADER_BYTES + prefixed(body)
}

/// The most that this record adds to a batch of many.
pub(super) fn most_bytes(batch_bytes: usize) -> usize {
    batch_bytes + SPREAD_BYTES - BATCH_HEADER_BYTES
}

/// Whether librdkafka can carry it: a header's name is a C string there.
pub(super) fn is_writable(outgoing: &Outgoing) -> bool {
    outgoing.event.headers.iter().all(|(name, _)| !name.contains('\0'))
}

fn own(name: &str) -> Cow<'_, str> {
    let lower = name.to_ascii_lowercase();
    let reserved = matches!(lower.as_str(), "content-type" | "traceparent" | "tracestate")
        || lower.starts_with("ce_")
        || lower.starts_with("semel_");
    if reserved { format!("semel_header_{name}").into() } else { name.into() }
}

fn prefixed(bytes: usize) -> usize {
    varint_bytes(bytes) + bytes
}

/// How long a length is as a zigzag varint.
fn varint_bytes(value: usize) -> usize {
    let bits = (usize::BITS - (value << 1).leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}
