//! Consumers and letters as rows.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::Row;
use semel::inbox::{Offset, Rule, Sequence, Version};
use semel::letter::{ConsumerRecord, Declaration, Letter, LetterId, LetterRecord, LetterState, MAX_CAUSE_BYTES};
use semel::source::Recognition;
use semel::{Error, Message};

use crate::probe::unreadable;

/// What is kept of a message, in bytes: of each of its texts, of its headers as they are stored, and of its payload.
/// The database checks the same bounds (I12).
const MAX_TEXT_BYTES: usize = 64 * 1024;
const MAX_HEADERS_BYTES: usize = 1024 * 1024;
const MAX_PAYLOAD_BYTES: usize = 64 * 1024 * 1024;

/// Refuses a letter that the database could not hold. Everything else is cut, so that nothing keeps a message from
/// being set aside: half a payload would be another message.
pub(super) fn require_size(letter: &Letter) -> Result<(), Error> {
    match letter.message.payload.len() {
        bytes if bytes > MAX_PAYLOAD_BYTES => Err(Error::Settings(format!(
            "a message of {bytes} bytes cannot be set aside: the limit is {MAX_PAYLOAD_BYTES}"
        ))),
        _ => Ok(()),
    }
}

/// A text of a message as it is stored.
pub(super) fn text(text: &str) -> String {
    cut(text, MAX_TEXT_BYTES)
}

/// The cause as it is stored.
pub(super) fn cause(text: &str) -> String {
    cut(text, MAX_CAUSE_BYTES)
}

/// What is too long is cut, and NUL, at which other programs would take the text to end, is replaced.
fn cut(text: &str, most: usize) -> String {
    let mut kept = text.replace('\0', "\u{fffd}");
    kept.truncate(kept.floor_char_boundary(most));
    kept
}

/// Headers as they are stored: a JSON array of names and values. Those that do not fit any more are left out.
pub(super) fn headers_json(headers: &[(String, String)]) -> String {
    let mut json = "[".to_owned();
    for header in headers {
        // A pair of strings is always written.
        let header = serde_json::to_string(header).unwrap_or_default();
        // The comma and the closing bracket.
        if json.len() + header.len() + 2 > MAX_HEADERS_BYTES {
            break;
        }
        json.push_str(if json.len() == 1 { "" } else { "," });
        json.push_str(&header);
    }
    json + "]"
}

/// The name of a rule in the database.
pub(super) fn rule_name(rule: Rule) -> &'static str {
    match rule {
        Rule::Latest => "latest",
        Rule::Each => "each",
    }
}

/// The version that a letter carries: its entity, number and rule in columns 2 to 4.
pub(super) fn version(row: &Row<'_>) -> rusqlite::Result<Option<Version>> {
    let Some(version) = row.get::<_, Option<i64>>(3)? else { return Ok(None) };
    let rule = row.get_ref(4)?.as_str()?;
    let rule = [Rule::Latest, Rule::Each].into_iter().find(|known| rule_name(*known) == rule);
    let rule = rule.ok_or(rusqlite::Error::InvalidQuery)?;
    Ok(Some(Version { entity: row.get(2)?, version: version.unsigned_abs(), rule }))
}

/// A letter.
pub(super) fn letter(row: &Row<'_>) -> rusqlite::Result<LetterRecord> {
    let headers = serde_json::from_str(row.get_ref(14)?.as_str()?).map_err(|error| unreadable(14, error))?;
    let sequence = match row.get::<_, Option<i64>>(18)? {
        None => None,
        Some(sequence) => Some(Sequence {
            incarnation: row.get(15)?,
            topic: row.get(16)?,
            lane: row.get(17)?,
            sequence: sequence.unsigned_abs(),
        }),
    };
    let offset = match row.get(23)? {
        None => None,
        Some(offset) => Some(Offset {
            source: row.get(19)?,
            topic: row.get(20)?,
            partition: row.get(21)?,
            from: row.get(22)?,
            offset,
        }),
    };
    let message = Message {
        id: row.get(8)?,
        topic: row.get(9)?,
        ordering_key: row.get(10)?,
        message_type: row.get(11)?,
        producer: row.get(12)?,
        content_type: row.get(13)?,
        payload: Bytes::from(row.get::<_, Vec<u8>>(24)?),
        headers,
        sequence,
        offset,
    };
    Ok(LetterRecord {
        id: LetterId(row.get(0)?),
        consumer: row.get(1)?,
        generation: row.get(2)?,
        state: state_named(row.get_ref(3)?.as_str()?)?,
        letter: Letter { message, cause: row.get(5)?, attempts: row.get(4)? },
        dead_at_ms: row.get(6)?,
        changed_at_ms: row.get(7)?,
    })
}

fn state_named(name: &str) -> rusqlite::Result<LetterState> {
    let states = [LetterState::Dead, LetterState::Redriven, LetterState::Applied];
    states.into_iter().find(|state| state.as_str() == name).ok_or(rusqlite::Error::InvalidQuery)
}

/// A consumer.
pub(super) fn consumer(row: &Row<'_>) -> rusqlite::Result<ConsumerRecord> {
    let count = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let declared = match (row.get::<_, Option<String>>(2)?, row.get::<_, Option<i64>>(3)?) {
        (Some(recognition), Some(retention_ms)) => Some(Declaration {
            recognition: Recognition::named(&recognition).ok_or(rusqlite::Error::InvalidQuery)?,
            retention: Duration::from_millis(retention_ms.unsigned_abs()),
        }),
        _ => None,
    };
    Ok(ConsumerRecord {
        name: row.get(0)?,
        generation: row.get(1)?,
        declared,
        ids: count(4)?,
        lanes: count(5)?,
        holes: count(6)?,
        partitions: count(7)?,
        dead: count(8)?,
        redriven: count(9)?,
        last_ms: row.get(10)?,
    })
}
