//! Consumers and letters as rows.

use std::time::Duration;

use bytes::Bytes;
use semel::inbox::{Delivery, Offset, Rule, Sequence};
use semel::letter::{ConsumerRecord, Declaration, Letter, LetterId, LetterRecord, LetterState, MAX_CAUSE_BYTES};
use semel::source::Recognition;
use semel::{Error, Message};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::error::classify;

/// The most bytes of each text of a message that are kept (I12).
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// The most bytes of a message's headers that are kept, as JSON (I12).
const MAX_HEADERS_BYTES: usize = 1024 * 1024;

/// The largest payload that a letter can hold (I12). No broker takes larger ones by itself.
const MAX_PAYLOAD_BYTES: usize = 64 * 1024 * 1024;

/// A place among Semel's own events, as it is stored.
pub(super) struct Place {
    pub(super) incarnation: String,
    pub(super) topic: String,
    pub(super) lane: i32,
    pub(super) sequence: i64,
}

impl Place {
    /// `None` if it is beyond what the database can count to: no event has such a place.
    pub(super) fn of(place: &Sequence) -> Option<Place> {
        let sequence = i64::try_from(place.sequence).ok()?;
        let (incarnation, topic) = (text(&place.incarnation), text(&place.topic));
        Some(Place { incarnation, topic, lane: place.lane.into(), sequence })
    }
}

/// A place in a partition of Kafka, as it is stored.
pub(super) struct Record {
    pub(super) source: String,
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) from: i64,
    pub(super) offset: i64,
}

impl Record {
    pub(super) fn of(place: &Offset) -> Record {
        let (source, topic) = (text(&place.source), text(&place.topic));
        Record { source, topic, partition: place.partition, from: place.from, offset: place.offset }
    }
}

/// Refuses a letter that the database could not hold. Everything else is cut, so that nothing keeps a message from
/// being set aside.
pub(super) fn require_size(letter: &Letter) -> Result<(), Error> {
    match letter.message.payload.len() {
        bytes if bytes > MAX_PAYLOAD_BYTES => Err(Error::Settings(format!(
            "a message of {bytes} bytes cannot be set aside: the limit is {MAX_PAYLOAD_BYTES}"
        ))),
        _ => Ok(()),
    }
}

/// A text of a message as the database takes it: cut, and with a mark in place of the character that it does not know.
pub(super) fn text(text: &str) -> String {
    cut(text, MAX_TEXT_BYTES)
}

/// The cause as it is stored.
pub(super) fn cause(text: &str) -> String {
    cut(text, MAX_CAUSE_BYTES)
}

fn cut(text: &str, most: usize) -> String {
    let mut kept = String::with_capacity(text.len().min(most));
    for letter in text.chars().map(|letter| if letter == '\0' { char::REPLACEMENT_CHARACTER } else { letter }) {
        if kept.len() + letter.len_utf8() > most {
            break;
        }
        kept.push(letter);
    }
    kept
}

/// Headers as they are stored: a JSON array of names and values, or nothing. Those that do not fit are left out.
pub(super) fn headers_json(headers: &[(String, String)]) -> Option<String> {
    let mut json = String::new();
    for (name, value) in headers {
        let header = serde_json::json!([name, value]).to_string();
        // Both brackets, or the comma and the closing one.
        if json.len() + header.len() + 2 > MAX_HEADERS_BYTES {
            break;
        }
        json.push(if json.is_empty() { '[' } else { ',' });
        json.push_str(&header);
    }
    (!json.is_empty()).then(|| json + "]")
}

/// The version that a message carries: the entity, the number, and whether each follows the one before.
pub(super) fn version(delivery: &Delivery) -> Option<(&str, i64, bool)> {
    let version = delivery.version.as_ref()?;
    let number = i64::try_from(version.version).ok()?;
    Some((version.entity.as_str(), number, version.rule == Rule::Each))
}

/// A letter.
pub(super) fn letter(row: &Row) -> Result<LetterRecord, Error> {
    let headers = match get::<Option<&str>>(row, "headers")? {
        Some(json) => serde_json::from_str(json)
            .map_err(|error| Error::Statement(format!("the headers of a letter cannot be read: {error}").into()))?,
        None => Vec::new(),
    };
    let state: &str = get(row, "state")?;
    let states = [LetterState::Dead, LetterState::Redriven, LetterState::Applied];
    let message = Message {
        id: get(row, "message_id")?,
        topic: get(row, "topic")?,
        ordering_key: get(row, "ordering_key")?,
        message_type: get(row, "message_type")?,
        producer: get(row, "producer")?,
        content_type: get(row, "content_type")?,
        payload: Bytes::copy_from_slice(get(row, "payload")?),
        headers,
        sequence: place(row)?,
        offset: record(row)?,
    };
    Ok(LetterRecord {
        id: LetterId(get(row, "id")?),
        consumer: get(row, "consumer")?,
        generation: get::<i32>(row, "generation")?.unsigned_abs(),
        state: states
            .into_iter()
            .find(|known| known.as_str() == state)
            .ok_or_else(|| Error::Schema(format!("a letter is {state:?}: run `semel migrate`")))?,
        letter: Letter { message, cause: get(row, "cause")?, attempts: get::<i32>(row, "attempts")?.unsigned_abs() },
        dead_at_ms: get(row, "dead_at_ms")?,
        changed_at_ms: get(row, "changed_at_ms")?,
    })
}

fn place(row: &Row) -> Result<Option<Sequence>, Error> {
    let Some(incarnation) = get(row, "incarnation")? else { return Ok(None) };
    Ok(Some(Sequence {
        incarnation,
        topic: get(row, "sequence_topic")?,
        lane: u16::try_from(get::<i32>(row, "lane")?).unwrap_or(u16::MAX),
        sequence: count(row, "sequence")?,
    }))
}

fn record(row: &Row) -> Result<Option<Offset>, Error> {
    let Some(source) = get(row, "source")? else { return Ok(None) };
    Ok(Some(Offset {
        source,
        topic: get(row, "record_topic")?,
        partition: get(row, "partition")?,
        from: get(row, "read_from")?,
        offset: get(row, "record_offset")?,
    }))
}

/// A consumer.
pub(super) fn consumer(row: &Row) -> Result<ConsumerRecord, Error> {
    let recognition = get::<Option<&str>>(row, "recognition")?.and_then(Recognition::named);
    let retention: Option<i64> = get(row, "retention_ms")?;
    let declared = recognition.zip(retention).map(|(recognition, ms)| Declaration {
        recognition,
        retention: Duration::from_millis(u64::try_from(ms).unwrap_or(0)),
    });
    Ok(ConsumerRecord {
        name: get(row, "name")?,
        generation: get::<i32>(row, "generation")?.unsigned_abs(),
        declared,
        ids: count(row, "ids")?,
        lanes: count(row, "lanes")?,
        holes: count(row, "holes")?,
        partitions: count(row, "partitions")?,
        dead: count(row, "dead")?,
        redriven: count(row, "redriven")?,
        last_ms: get(row, "last_ms")?,
    })
}

/// Reads a column.
fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, Error> {
    row.try_get(column).map_err(classify)
}

/// Reads a count, which is never negative.
fn count(row: &Row, column: &str) -> Result<u64, Error> {
    Ok(u64::try_from(get::<i64>(row, column)?).unwrap_or(0))
}
