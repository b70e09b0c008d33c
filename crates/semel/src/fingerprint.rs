//! What a client asked for, as a hash.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::canonical;

/// How many bytes a fingerprint takes: one for the version, 32 for the hash. The database checks the same bound (I12).
pub const BYTES: usize = 33;

const VERSION: u8 = 1;

/// A versioned hash of what a client asked for. It tells a retry from a key that was reused for another request; it
/// never is the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; BYTES]);

impl Fingerprint {
    /// The fingerprint of an HTTP request: method, target with query, content type and body, each behind its length.
    ///
    /// A JSON body is taken in its canonical form (RFC 8785), so that another order of members or other white space is
    /// the same request. A body with duplicate members, invalid UTF-8, or a number that a double cannot hold exactly
    /// is taken byte by byte, because its canonical form would lose what tells two requests apart.
    pub fn of_request(method: &str, target: &str, content_type: Option<&str>, body: &[u8]) -> Fingerprint {
        let media_type = content_type.unwrap_or("").split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        let is_json = media_type == "application/json" || media_type.ends_with("+json");
        let canonical = if is_json { canonical::json(body) } else { None };
        let (form, body) = match &canonical {
            Some(canonical) => (b"json".as_slice(), canonical.as_slice()),
            None => (b"raw".as_slice(), body),
        };
        Fingerprint::of_fields(&[method.as_bytes(), target.as_bytes(), media_type.as_bytes(), form, body])
    }

    /// The fingerprint of anything else, for callers without HTTP: serialise what makes two intents different.
    pub fn of_bytes(bytes: &[u8]) -> Fingerprint {
        Fingerprint::of_fields(&[b"bytes", bytes])
    }

    /// The version byte and the hash.
    pub fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// Reads back what a store kept.
    pub fn from_bytes(bytes: [u8; BYTES]) -> Fingerprint {
        Fingerprint(bytes)
    }

    fn of_fields(fields: &[&[u8]]) -> Fingerprint {
        let mut hash = Sha256::new();
        for field in fields {
            hash.update((field.len() as u64).to_be_bytes());
            hash.update(field);
        }
        let mut bytes = [VERSION; BYTES];
        bytes[1..].copy_from_slice(&hash.finalize());
        Fingerprint(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}
