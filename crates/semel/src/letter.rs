//! Messages that a consumer could not apply, set aside with the cause.

use std::time::Duration;

use crate::source::{Message, Recognition};

/// The most bytes of a cause that are stored (I12).
pub const MAX_CAUSE_BYTES: usize = 1_000;

/// A message that is set aside. The broker's copy is acknowledged; this one is what a redrive applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The message, whole.
    pub message: Message,
    /// Why it was set aside: the last failure, with its causes.
    pub cause: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// Which dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LetterId(pub i64);

/// What became of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LetterState {
    /// It waits for somebody to do something.
    Dead,
    /// Somebody wants it tried again, and its consumer will.
    Redriven,
    /// It was applied after all.
    Applied,
}

impl LetterState {
    /// Its name in the database and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            LetterState::Dead => "dead",
            LetterState::Redriven => "redriven",
            LetterState::Applied => "applied",
        }
    }
}

/// A dead letter as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetterRecord {
    /// Which one.
    pub id: LetterId,
    /// Whose it is.
    pub consumer: String,
    /// In which generation.
    pub generation: u32,
    /// What became of it.
    pub state: LetterState,
    /// The message, why it is here, and how often it was tried.
    pub letter: Letter,
    /// When it was set aside, in milliseconds since the Unix epoch.
    pub dead_at_ms: i64,
    /// When its state last changed.
    pub changed_at_ms: i64,
}

/// Which dead letters an operator means.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LetterFilter {
    /// Only this consumer's.
    pub consumer: Option<String>,
    /// Only this one.
    pub id: Option<LetterId>,
    /// Only those in this state.
    pub state: Option<LetterState>,
}

/// What a consumer says of itself at each start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    /// What it tells messages apart by.
    pub recognition: Recognition,
    /// For how long ids are kept.
    pub retention: Duration,
}

/// A consumer as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerRecord {
    /// Its name.
    pub name: String,
    /// Its generation, counted from zero.
    pub generation: u32,
    /// What it declared; `None` if it never did, as those that call [`crate::Semel::consume`] themselves do not.
    pub declared: Option<Declaration>,
    /// How many messages are kept by their ids, in all its generations.
    pub ids: u64,
    /// How many lanes are kept, in its generation.
    pub lanes: u64,
    /// How many gaps these have: stretches of sequences that have not been seen while later ones were.
    pub holes: u64,
    /// How many partitions are kept, in its generation.
    pub partitions: u64,
    /// How many dead letters wait for somebody.
    pub dead: u64,
    /// How many are to be tried again.
    pub redriven: u64,
    /// When the last id was recorded, in milliseconds since the Unix epoch.
    pub last_ms: Option<i64>,
}
