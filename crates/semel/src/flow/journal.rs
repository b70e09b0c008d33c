//! What a store keeps of a flow.

use std::time::Duration;

use bytes::Bytes;

use crate::Lease;
use crate::intent::Fault;

/// The longest name of a flow, in characters. The database checks the same bound (I12).
pub const MAX_FLOW_CHARACTERS: usize = 100;

/// The longest name of a step that a service chooses, in characters. The database allows what a compensation's prefix
/// adds to it (I12).
pub const MAX_STEP_CHARACTERS: usize = 80;

/// The most bytes an input, the result of a step or a failure may take. The database leaves room for a seal (I12).
pub const MAX_KEPT_BYTES: usize = 1024 * 1024;

/// The most bytes that the results of all steps of a flow may take together, compensations not counted (I12).
pub const MAX_FLOW_BYTES: usize = 16 * 1024 * 1024;

/// The most steps one flow may record, compensations included (I12).
pub const MAX_STEPS: usize = 1000;

/// What starts the name of the step that undoes another. Names that a service chooses cannot start with it.
pub const UNDO: &str = "~undo.";

/// Bytes as a store keeps them, sealed or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The bytes: JSON, or what it was sealed to.
    pub bytes: Bytes,
    /// The id of the key that they are sealed with, if any.
    pub sealed_by: Option<String>,
}

/// What a flow starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The registered function.
    pub flow: String,
    /// Its input.
    pub input: Kept,
}

/// A flow that this worker may go on with: the right to do so, and all that is recorded of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// The right to work on it.
    pub lease: Lease,
    /// The registered function.
    pub flow: String,
    /// Its input, as it was stored when the flow began.
    pub input: Kept,
    /// How long ago it began, by the database's clock.
    pub age: Duration,
    /// How long its life has lasted: since it began, or since an operator last let it go on.
    pub lived: Duration,
    /// How many runs in a row ended in an error that may pass, or with the loss of their worker.
    pub failures: u32,
    /// Why it is being undone, if it is: a [`crate::flow::Failure`] as JSON.
    pub unwinding: Option<Kept>,
    /// Whether an operator asked for it to be undone.
    pub cancelled: bool,
    /// Whether the database was restored or failed over since the flow began, so that calls may have been made that the
    /// rows do not know of.
    pub restored: bool,
    /// The steps, in the order in which they were first recorded.
    pub entries: Vec<Entry>,
}

/// A step as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub step: String,
    /// What it is.
    pub kind: Kind,
    /// Where it stands.
    pub state: State,
    /// The result of a step that is done, or the failure of one that failed.
    pub result: Option<Kept>,
    /// The intent, for a call.
    pub intent: Option<Intent>,
    /// Whether the database was restored or failed over since the flow began, or since a person last said that the call
    /// did not happen, so that attempts may have been made that this row does not know of.
    pub restored: bool,
}

/// What a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A transaction; the record of it is part of it.
    Commit,
    /// An external call.
    Call,
    /// A pause; the result says until when.
    Sleep,
}

/// Where a step stands. Commits and pauses are recorded when they are done, and a commit that failed for good as
/// failed; a call is recorded before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A call that has no result yet.
    Pending,
    /// It has a result.
    Done,
    /// It did not happen and will not.
    Failed,
    /// Nobody knows whether it happened: a person has to find out.
    Unknown,
}

/// What is recorded of an external call (I8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// The name of the provider's profile.
    pub provider: String,
    /// The derived key, as it was computed when the call was first intended. It is never computed again.
    pub key: String,
    /// What each attempt came to, in their order; `None` for one that nobody lived to record.
    pub attempts: Vec<Option<Fault>>,
    /// How long ago the first attempt was counted, by the database's clock.
    pub age: Duration,
    /// How long ago the last attempt was counted.
    pub since_attempt: Duration,
    /// The last error, for people to read.
    pub cause: Option<String>,
}

/// How a step ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Its name.
    pub step: String,
    /// What it is.
    pub kind: Kind,
    /// [`State::Done`] or [`State::Failed`].
    pub state: State,
    /// Its result, or its failure.
    pub result: Kept,
}

impl Kind {
    /// The name that databases and operators see.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Commit => "commit",
            Kind::Call => "call",
            Kind::Sleep => "sleep",
        }
    }

    /// Reads the name back.
    pub fn parse(name: &str) -> Option<Kind> {
        [Kind::Commit, Kind::Call, Kind::Sleep].into_iter().find(|kind| kind.as_str() == name)
    }
}

impl State {
    /// The name that databases and operators see.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Done => "done",
            State::Failed => "failed",
            State::Unknown => "unknown",
        }
    }

    /// Reads the name back.
    pub fn parse(name: &str) -> Option<State> {
        [State::Pending, State::Done, State::Failed, State::Unknown].into_iter().find(|state| state.as_str() == name)
    }
}

/// One letter for what an attempt came to, as databases keep it: attempts are a text of these, in their order.
pub fn letter_of(outcome: Option<Fault>) -> char {
    match outcome {
        None => '-',
        Some(Fault::Retryable) => 'r',
        Some(Fault::Refused) => 'x',
        Some(Fault::Terminal) => 't',
        Some(Fault::Unknown) => 'u',
        Some(Fault::UnknownForGood) => 'g',
    }
}

/// Reads attempts back. `None` if a letter is not one of ours.
pub fn attempts_of(letters: &str) -> Option<Vec<Option<Fault>>> {
    letters
        .chars()
        .map(|letter| {
            Some(match letter {
                '-' => None,
                'r' => Some(Fault::Retryable),
                'x' => Some(Fault::Refused),
                't' => Some(Fault::Terminal),
                'u' => Some(Fault::Unknown),
                'g' => Some(Fault::UnknownForGood),
                _ => return None,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_read_back_as_they_were_written() {
        let outcomes = [
            None,
            Some(Fault::Retryable),
            Some(Fault::Refused),
            Some(Fault::Terminal),
            Some(Fault::Unknown),
            Some(Fault::UnknownForGood),
        ];
        let letters: String = outcomes.iter().map(|outcome| letter_of(*outcome)).collect();
        assert_eq!(attempts_of(&letters), Some(outcomes.to_vec()));
        assert_eq!(attempts_of("uq"), None);
    }
}
