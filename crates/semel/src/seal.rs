//! Encryption at rest of stored replies, and of what flows store, with keys that rotate.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};

use crate::store::Stored;
use crate::{Ask, Execution, Key, Scope};

/// The longest id of a sealing key, in characters. The database checks the same bound (I12).
pub const MAX_ID_CHARACTERS: usize = 64;

const NONCE_BYTES: usize = 24;

/// A key that seals stored replies, with the id that is stored beside what it sealed.
#[derive(Clone)]
pub struct SealingKey {
    id: String,
    cipher: XChaCha20Poly1305,
}

/// The sealing keys a process knows: the first seals, all of them open.
///
/// To rotate, put a new key first and leave the old one behind it until no row needs it: a process that lacks a key
/// which live rows need refuses to start.
#[derive(Debug, Clone)]
pub struct Keyring {
    keys: Arc<[SealingKey]>,
}

/// Why sealing or opening failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A keyring needs a key.
    #[error("a keyring needs at least one key")]
    Empty,
    /// The id is not 1 to 64 visible ASCII characters without `:` and `,`.
    #[error(
        "the id of a sealing key must be 1 to {MAX_ID_CHARACTERS} visible ASCII characters without ':' and ',', \
         not {0:?}"
    )]
    Id(String),
    /// Two keys share an id.
    #[error("two sealing keys have the id {0:?}")]
    Twice(String),
    /// The key that a reply is sealed with is not in the keyring.
    #[error("a stored reply is sealed with key {0:?}, which is not in the keyring; put it back behind the first key")]
    Missing(String),
    /// The bytes were changed, belong to another row, or were sealed with another key of the same id.
    #[error(
        "a stored reply does not open with key {0:?}: it was changed, moved, or sealed with another key of that id"
    )]
    Broken(String),
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes for a nonce")]
    NoRandomness,
}

/// Where bytes of a flow belong. They open only there, so that no row can be swapped for another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// Whose key it is.
    pub(crate) scope: &'a Scope,
    /// The key.
    pub(crate) key: &'a Key,
    /// The run, if it was known when they were sealed.
    pub(crate) execution: Option<Execution>,
    /// What they are.
    pub(crate) label: &'a str,
}

impl SealingKey {
    /// A key of 32 secret bytes under an id.
    pub fn new(id: impl Into<String>, secret: [u8; 32]) -> Result<SealingKey, Error> {
        let id = id.into();
        let fits = (1..=MAX_ID_CHARACTERS).contains(&id.len());
        if !fits || !id.bytes().all(|b| b.is_ascii_graphic() && b != b':' && b != b',') {
            return Err(Error::Id(id));
        }
        Ok(SealingKey { id, cipher: XChaCha20Poly1305::new(&secret.into()) })
    }

    /// Seals bytes, bound to `aad`: a random nonce, then what it was sealed to.
    fn encrypt(&self, aad: &[u8], bytes: &[u8]) -> Result<Bytes, Error> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| Error::NoRandomness)?;
        let sealed = self
            .cipher
            .encrypt(&XNonce::from(nonce), Payload { msg: bytes, aad })
            .map_err(|_| Error::Broken(self.id.clone()))?;
        Ok(Bytes::from([nonce.as_slice(), &sealed].concat()))
    }

    /// Opens what [`SealingKey::encrypt`] made with the same `aad`.
    fn decrypt(&self, aad: &[u8], sealed: &[u8]) -> Result<Bytes, Error> {
        let broken = || Error::Broken(self.id.clone());
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or_else(broken)?;
        let opened = self.cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad });
        opened.map(Bytes::from).map_err(|_| broken())
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKey({})", self.id)
    }
}

impl Keyring {
    /// Makes a keyring; the first key seals.
    pub fn new(keys: impl IntoIterator<Item = SealingKey>) -> Result<Keyring, Error> {
        let keys: Arc<[SealingKey]> = keys.into_iter().collect();
        if keys.is_empty() {
            return Err(Error::Empty);
        }
        for (position, key) in keys.iter().enumerate() {
            if keys[..position].iter().any(|other| other.id == key.id) {
                return Err(Error::Twice(key.id.clone()));
            }
        }
        Ok(Keyring { keys })
    }

    /// The ids of all keys.
    pub fn ids(&self) -> Vec<String> {
        self.keys.iter().map(|key| key.id.clone()).collect()
    }

    /// Seals headers and body with the first key, bound to scope, key and execution so that a row cannot be swapped
    /// for another.
    pub(crate) fn seal(&self, ask: &Ask, plain: &Stored) -> Result<Stored, Error> {
        let key = &self.keys[0];
        let seal = |part: &'static str, bytes: &[u8]| key.encrypt(&bound_to(ask, plain, part), bytes);
        Ok(Stored {
            execution: plain.execution,
            status: plain.status,
            headers: seal("headers", &plain.headers)?,
            body: seal("body", &plain.body)?,
            sealed_by: Some(key.id.clone()),
        })
    }

    /// Opens headers and body with whichever key sealed them.
    pub(crate) fn open(&self, ask: &Ask, stored: &Stored) -> Result<(Bytes, Bytes), Error> {
        let key = self.find(stored.sealed_by.as_deref().unwrap_or_default())?;
        let open = |part: &'static str, sealed: &[u8]| key.decrypt(&bound_to(ask, stored, part), sealed);
        Ok((open("headers", &stored.headers)?, open("body", &stored.body)?))
    }

    /// Seals bytes of a flow with the first key, bound to their place, and says which key it was.
    pub(crate) fn seal_bytes(&self, place: &Place<'_>, bytes: &[u8]) -> Result<(Bytes, String), Error> {
        let key = &self.keys[0];
        Ok((key.encrypt(&place.bytes(), bytes)?, key.id.clone()))
    }

    /// Opens bytes of a flow in their place, with the key of this id.
    pub(crate) fn open_bytes(&self, place: &Place<'_>, id: &str, sealed: &[u8]) -> Result<Bytes, Error> {
        self.find(id)?.decrypt(&place.bytes(), sealed)
    }

    fn find(&self, id: &str) -> Result<&SealingKey, Error> {
        self.keys.iter().find(|key| key.id == id).ok_or_else(|| Error::Missing(id.to_owned()))
    }
}

impl Place<'_> {
    /// What the bytes are bound to. A run that is not known is empty, which no run that is known can be.
    fn bytes(&self) -> Vec<u8> {
        let execution = self.execution.map(|execution| execution.as_uuid());
        let run: &[u8] = match &execution {
            Some(execution) => execution.as_bytes(),
            None => &[],
        };
        framed(
            b"semel flow 1",
            &[
                self.scope.tenant().as_bytes(),
                self.scope.operation().as_bytes(),
                self.key.as_str().as_bytes(),
                run,
                self.label.as_bytes(),
            ],
        )
    }
}

/// What a sealed part of a reply is bound to.
fn bound_to(ask: &Ask, stored: &Stored, part: &str) -> Vec<u8> {
    let status = stored.status.to_be_bytes();
    let execution = stored.execution.as_uuid();
    framed(
        b"semel reply 1",
        &[
            ask.scope.tenant().as_bytes(),
            ask.scope.operation().as_bytes(),
            ask.key.as_str().as_bytes(),
            execution.as_bytes(),
            &status,
            part.as_bytes(),
        ],
    )
}

/// A label, then each field behind its length.
fn framed(label: &[u8], fields: &[&[u8]]) -> Vec<u8> {
    let mut bytes = label.to_vec();
    for field in fields {
        bytes.extend_from_slice(&(field.len() as u64).to_be_bytes());
        bytes.extend_from_slice(field);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fingerprint;

    fn ask(key: &str) -> Ask {
        let scope = Scope::new("a", "charge").unwrap();
        Ask::new(&scope, &Key::new(key).unwrap(), &Fingerprint::of_bytes(b"x"))
    }

    fn plain() -> Stored {
        Stored {
            execution: Execution::mint(),
            status: 201,
            headers: Bytes::from_static(b"a: b\r\n"),
            body: Bytes::from_static(b"secret"),
            sealed_by: None,
        }
    }

    fn ring(ids: &[(&str, u8)]) -> Keyring {
        Keyring::new(ids.iter().map(|(id, byte)| SealingKey::new(*id, [*byte; 32]).unwrap())).unwrap()
    }

    #[test]
    fn old_replies_stay_readable_after_rotation() {
        let (old, new) = (ring(&[("k1", 1)]), ring(&[("k2", 2), ("k1", 1)]));
        let sealed = old.seal(&ask("k"), &plain()).unwrap();
        assert!(!sealed.body.windows(6).any(|window| window == b"secret"));
        assert_eq!(new.open(&ask("k"), &sealed).unwrap().1, "secret");
        assert_eq!(new.seal(&ask("k"), &plain()).unwrap().sealed_by.as_deref(), Some("k2"));
    }

    #[test]
    fn a_reply_moved_to_another_row_does_not_open() {
        let ring = ring(&[("k1", 1)]);
        let sealed = ring.seal(&ask("k"), &plain()).unwrap();
        assert_eq!(ring.open(&ask("other"), &sealed), Err(Error::Broken("k1".to_owned())));
        let mut swapped = sealed.clone();
        std::mem::swap(&mut swapped.headers, &mut swapped.body);
        assert!(ring.open(&ask("k"), &swapped).is_err());
    }

    #[test]
    fn a_missing_key_is_named() {
        let sealed = ring(&[("k1", 1)]).seal(&ask("k"), &plain()).unwrap();
        assert_eq!(ring(&[("k2", 2)]).open(&ask("k"), &sealed), Err(Error::Missing("k1".to_owned())));
    }

    #[test]
    fn what_a_flow_stores_opens_in_its_place_only() {
        let (ring, ask, run) = (ring(&[("k1", 1)]), ask("k"), Execution::mint());
        let place = Place { scope: &ask.scope, key: &ask.key, execution: Some(run), label: "step:charge" };
        let (sealed, id) = ring.seal_bytes(&place, b"secret").unwrap();
        assert_eq!(ring.open_bytes(&place, &id, &sealed).unwrap(), "secret");
        assert_eq!(sealed.len(), "secret".len() + 40);
        for other in [
            Place { label: "step:refund", ..place },
            Place { execution: Some(Execution::mint()), ..place },
            Place { execution: None, ..place },
            Place { key: &Key::new("other").unwrap(), ..place },
        ] {
            assert_eq!(ring.open_bytes(&other, &id, &sealed), Err(Error::Broken("k1".to_owned())), "{other:?}");
        }
        assert_eq!(ring.open_bytes(&place, "k2", &sealed), Err(Error::Missing("k2".to_owned())));
    }
}
