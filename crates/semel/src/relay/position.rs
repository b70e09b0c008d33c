//! What a transactional sink commits with a batch.

use serde::{Deserialize, Serialize};

use crate::outbox::{Cursor, HeldEvent};
use crate::sink::Position;

/// A lane's position as the sink keeps it: how far the lane has come, in which incarnation of the database, and which
/// held event was the last to go out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    #[serde(rename = "i")]
    pub(super) incarnation: String,
    #[serde(rename = "t")]
    pub(super) tick: i64,
    #[serde(rename = "s")]
    pub(super) seq: i64,
    #[serde(rename = "h", skip_serializing_if = "Option::is_none", default)]
    pub(super) held: Option<HeldMark>,
    /// The last placeholder, if it was placeholders that went out: it tells their commit from the one before.
    #[serde(rename = "g", skip_serializing_if = "Option::is_none", default)]
    pub(super) gap: Option<String>,
}

/// The last held event that was committed at the sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeldMark {
    #[serde(rename = "k")]
    pub(super) ordering_key: String,
    #[serde(rename = "s")]
    pub(super) seq: i64,
    /// Redriving gives an event another sequence: then it has not gone out as what it is now.
    #[serde(rename = "n")]
    pub(super) sequence: u64,
}

impl Mark {
    pub(super) fn new(incarnation: &str, cursor: Cursor) -> Mark {
        Mark { incarnation: incarnation.to_owned(), tick: cursor.tick, seq: cursor.seq, held: None, gap: None }
    }

    pub(super) fn with_held(mut self, last: &HeldEvent) -> Mark {
        self.held = Some(HeldMark {
            ordering_key: last.written.event.ordering_key.clone(),
            seq: last.written.cursor.seq,
            sequence: last.sequence,
        });
        self
    }

    pub(super) fn with_gap(mut self, last: &HeldEvent) -> Mark {
        self.gap = Some(last.written.id.to_string());
        self
    }

    pub(super) fn cursor(&self) -> Cursor {
        Cursor { tick: self.tick, seq: self.seq }
    }

    pub(super) fn encode(&self) -> Position {
        // Strings and numbers always have a JSON form.
        Position(serde_json::to_vec(self).unwrap_or_default())
    }

    pub(super) fn decode(position: &Position) -> Option<Mark> {
        serde_json::from_slice(&position.0).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back_as_it_was_written() {
        let mut mark = Mark::new("7a-1", Cursor { tick: 7, seq: 9 });
        assert_eq!(Mark::decode(&mark.encode()), Some(mark.clone()));
        mark.held = Some(HeldMark { ordering_key: "k".repeat(255), seq: i64::MAX, sequence: u64::MAX });
        assert_eq!(Mark::decode(&mark.encode()), Some(mark.clone()));
        assert!(mark.encode().0.len() < 1024);
    }
}
