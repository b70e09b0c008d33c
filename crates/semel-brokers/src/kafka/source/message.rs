//! A record of Kafka as a message: what [`super::super::record`] writes, and what others do.

use bytes::Bytes;
use rdkafka::message::{Headers, Message as Record};
use semel::inbox::Offset;
use semel::source::Received;

use crate::incoming::Incoming;

/// The attributes that Semel adds.
const COORDINATES: [&str; 3] = ["lane", "sequence", "incarnation"];

/// The message that a record is, read on from offset `from` in the cluster `source`.
///
/// Its ordering key is the record's key, which is what Kafka keeps in order. Without an id it goes by its place and its
/// timestamp, for a topic that is made anew and one of the same name in another cluster count from zero, too.
pub(in crate::kafka) fn received<R>(record: &impl Record, source: &str, from: i64, receipt: R) -> Received<R> {
    let mut incoming = Incoming::default();
    for header in record.headers().into_iter().flat_map(Headers::iter) {
        let value = String::from_utf8_lossy(header.value.unwrap_or_default());
        take(&mut incoming, header.key, &value);
    }
    match record.key() {
        Some(key) if !key.is_empty() => {
            incoming.attribute("partitionkey", &String::from_utf8_lossy(key));
        }
        _ => {}
    }
    let (topic, partition, offset) = (record.topic(), record.partition(), record.offset());
    let payload = Bytes::copy_from_slice(record.payload().unwrap_or_default());
    let mut place = format!("{topic}/{partition}/{offset}");
    // It is stored with the record, so it is the same at every delivery. Records of Kafka before 0.10 have none.
    if let Some(stored_ms) = record.timestamp().to_millis() {
        place = format!("{place}/{stored_ms}");
    }
    let mut received = incoming.finish(topic, Some(place), payload, receipt);
    received.message.offset =
        Some(Offset { source: source.to_owned(), topic: topic.to_owned(), partition, from, offset });
    received
}

fn take(incoming: &mut Incoming, name: &str, value: &str) {
    let lower = name.to_ascii_lowercase();
    if let Some(own) = lower.strip_prefix("semel_header_") {
        // The name as it was, in its own case.
        incoming.own(&name[name.len() - own.len()..], value);
        return;
    }
    let taken = match (lower.strip_prefix("ce_"), lower.strip_prefix("semel_")) {
        (Some(attribute), _) if !COORDINATES.contains(&attribute) && attribute != "topic" => {
            incoming.attribute(attribute, value)
        }
        (_, Some(coordinate)) if COORDINATES.contains(&coordinate) => incoming.attribute(coordinate, value),
        _ if lower == "content-type" => incoming.attribute("datacontenttype", value),
        _ => false,
    };
    if !taken {
        incoming.own(name, value);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rdkafka::Timestamp;
    use rdkafka::message::{Header, OwnedHeaders, OwnedMessage};
    use semel::event::{Event, EventId};
    use semel::sink::{Lane, Outgoing};

    use super::*;
    use crate::kafka::record;

    fn owned(key: Option<&[u8]>, headers: OwnedHeaders) -> OwnedMessage {
        owned_at(Timestamp::CreateTime(1_700_000_000_123), key, headers)
    }

    fn owned_at(timestamp: Timestamp, key: Option<&[u8]>, headers: OwnedHeaders) -> OwnedMessage {
        let (key, payload) = (key.map(<[u8]>::to_vec), Some(b"paid".to_vec()));
        OwnedMessage::new(payload, key, "charges".to_owned(), timestamp, 3, 41, Some(headers))
    }

    #[test]
    fn what_the_sink_writes_is_read_back() {
        let mut event = Event::bytes("charges", "kü", "charge.created", "text/plain", b"paid".to_vec()).unwrap();
        event.traceparent = Some("00-1-2-03".to_owned());
        event.headers = vec![("tenant".to_owned(), "t".to_owned()), ("ce_Id".to_owned(), "mine".to_owned())];
        let outgoing = Outgoing {
            id: EventId::from(uuid::Uuid::from_u128(7)),
            source: "/semel/tests".to_owned(),
            time_ms: 1_700_000_000_123,
            lane: Lane(5),
            sequence: 12,
            incarnation: "i".to_owned(),
            event,
        };
        let record = owned(Some("kü".as_bytes()), record::headers(&outgoing));
        let received = received(&record, "cluster", 40, ());
        assert_eq!(received.unusable, None);
        let message = received.message;
        assert_eq!((message.id.as_str(), message.topic.as_str()), (outgoing.id.to_string().as_str(), "charges"));
        assert_eq!((message.ordering_key.as_str(), message.message_type.as_str()), ("kü", "charge.created"));
        assert_eq!((message.producer.as_str(), message.content_type.as_str()), ("/semel/tests", "text/plain"));
        assert_eq!((message.header("ce_id"), message.header("tenant")), (Some("mine"), Some("t")));
        assert_eq!((message.header("traceparent"), &message.payload[..]), (Some("00-1-2-03"), &b"paid"[..]));
        let sequence = message.sequence.unwrap();
        assert_eq!((sequence.lane, sequence.sequence, sequence.incarnation.as_str()), (5, 12, "i"));
        let offset = message.offset.unwrap();
        assert_eq!((offset.source.as_str(), offset.partition, offset.from, offset.offset), ("cluster", 3, 40, 41));
    }

    #[test]
    fn a_record_without_headers_goes_by_its_place_and_its_key() {
        let empty = OwnedHeaders::new().insert(Header { key: "raw", value: Some(&[0xff_u8][..]) });
        let message = received(&owned(Some(b"k"), empty.clone()), "cluster", 41, ()).message;
        assert_eq!((message.id.as_str(), message.ordering_key.as_str()), ("charges/3/41/1700000000123", "k"));
        assert_eq!(message.header("raw"), Some("\u{fffd}"));
        let message = received(&owned(None, empty), "cluster", 41, ()).message;
        assert_eq!(message.ordering_key, "charges/3/41/1700000000123");
    }

    #[test]
    fn a_record_at_the_same_place_of_a_topic_made_anew_is_another_message() {
        let id = |timestamp| received(&owned_at(timestamp, None, OwnedHeaders::new()), "cluster", 41, ()).message.id;
        let first = id(Timestamp::LogAppendTime(1_700_000_000_123));
        assert_eq!(first, id(Timestamp::LogAppendTime(1_700_000_000_123)));
        assert_ne!(first, id(Timestamp::LogAppendTime(1_700_000_000_124)));
        assert_eq!(id(Timestamp::NotAvailable), "charges/3/41");
    }
}
