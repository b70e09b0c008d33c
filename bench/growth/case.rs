//! What is measured, and on how large a table.

use std::fmt;

use anyhow::Result;
use semel::Key;
use uuid::Uuid;

/// How many keys a small table has.
const FEW: u64 = 10_000;

/// Which keys clients choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// UUIDs of version 4, which go anywhere in an index.
    Random,
    /// UUIDs of version 7, which begin with the time.
    ByTime,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// A claim of a random key that nobody has used, among so many that are stored. It is rolled back.
    Claim { among: u64 },
    /// `once` with one statement, under a key that nobody has used.
    Once { keys: Keys, among: u64 },
    /// `once` at a steady pace while so many expired keys are reaped.
    Reaping { expired: u64 },
}

impl Keys {
    /// A key that nobody has used.
    pub(crate) fn fresh(self) -> Result<Key> {
        Ok(match self {
            Keys::Random => Key::new(Uuid::new_v4().to_string())?,
            Keys::ByTime => Key::random(),
        })
    }
}

impl Case {
    /// A claim on the small table and on the large one.
    pub(crate) fn claims(many: u64) -> [Case; 2] {
        [FEW, many].map(|among| Case::Claim { among })
    }

    /// An operation on the small table and on the large one.
    pub(crate) fn operations(keys: Keys, many: u64) -> [Case; 2] {
        [FEW, many].map(|among| Case::Once { keys, among })
    }

    /// Everything.
    pub(crate) fn all(many: u64, expired: u64) -> Vec<Case> {
        let mut all = Case::claims(many).to_vec();
        all.extend(Case::operations(Keys::Random, many));
        all.extend(Case::operations(Keys::ByTime, many));
        all.push(Case::Reaping { expired });
        all
    }

    /// How many keys its table is filled with.
    pub(crate) fn filled(self) -> u64 {
        match self {
            Case::Claim { among } | Case::Once { among, .. } => among,
            Case::Reaping { expired } => expired,
        }
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Keys::Random => "random keys",
            Keys::ByTime => "v7 keys",
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Case::Claim { among } => write!(f, "claim among {}", rounded(*among)),
            Case::Once { keys, among } => write!(f, "once, {keys}, among {}", rounded(*among)),
            Case::Reaping { expired } => write!(f, "reaping {}", rounded(*expired)),
        }
    }
}

fn rounded(keys: u64) -> String {
    match keys {
        millions if millions % 1_000_000 == 0 => format!("{} million", millions / 1_000_000),
        thousands if thousands % 1_000 == 0 => format!("{} thousand", thousands / 1_000),
        others => others.to_string(),
    }
}
