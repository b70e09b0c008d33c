//! The key a client chooses.

use std::fmt;
use std::sync::Arc;

/// The longest key, in characters. The database checks the same bound (I12).
pub const MAX_CHARACTERS: usize = 255;

/// An idempotency key: chosen by the client, the same on every retry of one intent, another one for another intent.
///
/// It is 1 to 255 visible ASCII characters. The server never makes it: a key that differs on each attempt protects
/// nothing.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

/// Why a key was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The key has no characters.
    #[error("the key is empty; send 1 to {MAX_CHARACTERS} visible ASCII characters, for example a UUID")]
    Empty,
    /// The key is longer than [`MAX_CHARACTERS`].
    #[error("the key has {0} characters; the limit is {MAX_CHARACTERS}")]
    TooLong(usize),
    /// The key holds a space, a control character or something outside ASCII.
    #[error("the key has a character outside visible ASCII at position {0}")]
    NotVisible(usize),
}

impl Key {
    /// Takes a key as a client sent it.
    pub fn new(text: impl AsRef<str>) -> Result<Key, Invalid> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(Invalid::Empty);
        }
        if let Some(position) = text.chars().position(|c| !c.is_ascii_graphic()) {
            return Err(Invalid::NotVisible(position));
        }
        if text.len() > MAX_CHARACTERS {
            return Err(Invalid::TooLong(text.len()));
        }
        Ok(Key(text.into()))
    }

    /// A new key for a new intent, for *clients*: mint it before the first attempt and keep it for every retry.
    ///
    /// It is a UUID of version 7: 74 random bits, which nobody guesses, behind a time stamp, which keeps neighbouring
    /// keys in neighbouring index pages of the server.
    pub fn random() -> Key {
        Key(uuid::Uuid::now_v7().to_string().into())
    }

    /// A key derived from something that has an identity already.
    pub(crate) fn derived(from: uuid::Uuid) -> Key {
        Key(from.to_string().into())
    }

    /// The key's characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Key {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Key, Invalid> {
        Key::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_1_to_255_visible_ascii_characters() {
        assert_eq!(Key::new(""), Err(Invalid::Empty));
        assert_eq!(Key::new("a b"), Err(Invalid::NotVisible(1)));
        assert_eq!(Key::new("a\u{7f}"), Err(Invalid::NotVisible(1)));
        assert_eq!(Key::new("é"), Err(Invalid::NotVisible(0)));
        assert_eq!(Key::new("x".repeat(256)), Err(Invalid::TooLong(256)));
        assert!(Key::new("x".repeat(255)).is_ok());
        assert!(Key::new("!~\"\\").is_ok());
    }

    #[test]
    fn two_random_keys_differ() {
        assert_ne!(Key::random(), Key::random());
    }
}
