//! How consumers and dead letters look to an operator, as text and as JSON.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use semel::letter::{ConsumerRecord, LetterRecord};
use serde_json::{Value, json};

use crate::commands::text::{self, age, line, time};

/// The most characters of a cause that a line shows; `--json` has all of it.
const CAUSE_SHOWN: usize = 160;

/// The most characters of an id that a line shows.
const ID_SHOWN: usize = 64;

/// A consumer as a JSON object.
pub(crate) fn consumer_to_json(consumer: &ConsumerRecord) -> Value {
    let declared = consumer.declared.as_ref();
    json!({
        "consumer": consumer.name,
        "generation": consumer.generation,
        "by": declared.map(|declared| declared.recognition.as_str()),
        "retention_seconds": declared.map(|declared| declared.retention.as_secs()),
        "ids": consumer.ids,
        "lanes": consumer.lanes,
        "holes": consumer.holes,
        "partitions": consumer.partitions,
        "dead": consumer.dead,
        "redriven": consumer.redriven,
        "last_at": consumer.last_ms.map(time),
    })
}

/// A consumer as cells under [`CONSUMER_HEADING`].
pub(crate) fn consumer_to_row(consumer: &ConsumerRecord) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let declared = consumer.declared.as_ref();
    vec![
        line(&consumer.name, ID_SHOWN),
        consumer.generation.to_string(),
        or_dash(declared.map(|declared| declared.recognition.as_str().to_owned())),
        or_dash(declared.map(|declared| humantime::format_duration(declared.retention).to_string())),
        consumer.ids.to_string(),
        consumer.lanes.to_string(),
        consumer.holes.to_string(),
        consumer.partitions.to_string(),
        consumer.dead.to_string(),
        consumer.redriven.to_string(),
        or_dash(consumer.last_ms.map(time)),
    ]
}

/// What the cells of [`consumer_to_row`] hold.
pub(crate) const CONSUMER_HEADING: [&str; 11] =
    ["CONSUMER", "GENERATION", "BY", "RETENTION", "IDS", "LANES", "HOLES", "PARTITIONS", "DEAD", "REDRIVEN", "LAST"];

/// A dead letter as a JSON object. The payload is left out unless asked for: it is the tenant's.
pub(crate) fn letter_to_json(record: &LetterRecord, with_payload: bool) -> Value {
    let message = &record.letter.message;
    let mut object = json!({
        "id": record.id.0,
        "consumer": record.consumer,
        "generation": record.generation,
        "state": record.state.as_str(),
        "cause": record.letter.cause,
        "attempts": record.letter.attempts,
        "dead_at": time(record.dead_at_ms),
        "changed_at": time(record.changed_at_ms),
        "message": {
            "id": message.id,
            "topic": message.topic,
            "ordering_key": message.ordering_key,
            "type": message.message_type,
            "producer": message.producer,
            "content_type": message.content_type,
            "headers": message.headers,
            "payload_bytes": message.payload.len(),
        },
    });
    if let Some(sequence) = &message.sequence {
        object["message"]["sequence"] = json!({ "incarnation": sequence.incarnation, "topic": sequence.topic,
            "lane": sequence.lane, "sequence": sequence.sequence });
    }
    if let Some(offset) = &message.offset {
        object["message"]["offset"] = json!({ "source": offset.source, "topic": offset.topic,
            "partition": offset.partition, "offset": offset.offset });
    }
    if with_payload {
        match text::json(&message.payload) {
            Some(text) => object["message"]["payload"] = text.into(),
            None => object["message"]["payload_base64"] = BASE64_STANDARD.encode(&message.payload).into(),
        }
    }
    object
}

/// A dead letter as cells under [`LETTER_HEADING`].
pub(crate) fn letter_to_row(record: &LetterRecord, now_ms: i64) -> Vec<String> {
    let message = &record.letter.message;
    vec![
        record.id.0.to_string(),
        line(&record.consumer, ID_SHOWN),
        record.generation.to_string(),
        record.state.as_str().to_owned(),
        line(&message.id, ID_SHOWN),
        line(&message.message_type, ID_SHOWN),
        record.letter.attempts.to_string(),
        age(record.dead_at_ms, now_ms),
        line(&record.letter.cause, CAUSE_SHOWN),
    ]
}

/// What the cells of [`letter_to_row`] hold.
pub(crate) const LETTER_HEADING: [&str; 9] =
    ["ID", "CONSUMER", "GENERATION", "STATE", "MESSAGE", "TYPE", "ATTEMPTS", "AGE", "CAUSE"];

/// The payload of a letter, on a line under its id.
pub(crate) fn payload_to_text(record: &LetterRecord) -> String {
    let payload = &record.letter.message.payload;
    match text::json(payload) {
        Some(text) => format!("\n{}  {}\n", record.id.0, line(text, usize::MAX)),
        None => format!("\n{}  base64 {}\n", record.id.0, BASE64_STANDARD.encode(payload)),
    }
}
