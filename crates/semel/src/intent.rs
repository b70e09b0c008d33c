//! An external call: its key, and what to do while its result is not known.
//!
//! A call to somebody else's API cannot be part of a commit. It can be *intended* in one: a row that says what is about
//! to be called, and under which key, is committed before the call leaves. Whoever finds that row without a result, the
//! same worker after a timeout or another one after a crash, knows that the call may have happened and under which key
//! the provider would know it (I8).
//!
//! [`key`] derives the key, [`Standing`] is what is known of such a row, and [`next`] decides, by the provider's
//! [profile](crate::provider::Provider) alone, whether it is sent again under the same key, looked up, or held for a
//! person. None of them touches a database or the network, so a service may use them without flows:
//!
//! ```
//! use std::time::Duration;
//!
//! use semel::intent::{self, Fault, Next, Standing};
//! use semel::provider::{Call, Provider};
//! use semel::{Key, Scope};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let stripe = Provider::stripe();
//! let scope = Scope::new("acme", "POST /orders")?;
//! let key = intent::key(&scope, "order", &Key::new("k-1")?, "charge");
//!
//! // Commit a row with the key and the time, then send `call.key()` in the header `call.header()`.
//! let mut standing = Standing::first();
//! assert_eq!(intent::next(&stripe, &standing), Next::Send);
//! standing.count();
//! let call = Call::new(&stripe, "charge", &key, standing.attempts);
//! assert_eq!((call.header(), call.key().len()), ("Idempotency-Key", intent::KEY_CHARACTERS));
//!
//! // No answer came. Within Stripe's day it is sent again, after a pause; later it is not.
//! standing.end(Fault::Unknown);
//! assert_eq!(intent::next(&stripe, &standing), Next::Pause(Duration::from_millis(200)));
//! standing.pass(Duration::from_hours(25));
//! assert!(matches!(intent::next(&stripe, &standing), Next::Hold(_)));
//! # Ok(())
//! # }
//! ```

mod next;
mod standing;

#[cfg(test)]
mod model;

use sha2::{Digest, Sha256};

pub use next::{Doubt, Next, Reason, next};
pub use standing::{LookedUp, Standing};

use crate::{Key, Scope};

/// How many characters a derived key has. The provider in the profiles with the least room takes 45.
pub const KEY_CHARACTERS: usize = 36;

/// The key under which a step of a flow calls a provider (I8): derived from whose key it is, the flow, the client's key
/// and the step, and from nothing else. Retries, restarts and takeovers carry the same one, and so does a run after the
/// rows were lost: the provider still recognises it.
///
/// Store it with the intent and send what is stored; a deploy that renames a step must not change the key of a call
/// that is under way.
///
/// It is no secret: who knows all five parts can compute it. Client keys that nobody guesses make derived keys that
/// nobody guesses.
///
/// # The exact form
///
/// Other languages that share the tables compute the same: the SHA-256 of the text `semel intent 1`, then tenant,
/// operation, flow and client key, each preceded by its length in bytes as a big-endian integer of eight bytes, then
/// the step; its first 16 bytes as a UUID of version 8, in lower case with hyphens. `acme`, `POST /orders`, `order`,
/// `k-1` and `charge` make `53195d6c-4591-803d-9c61-d698fc980001`.
pub fn key(scope: &Scope, flow: &str, key: &Key, step: &str) -> String {
    let mut hash = Sha256::new();
    hash.update("semel intent 1");
    for part in [scope.tenant(), scope.operation(), flow, key.as_str()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(step);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

/// What an attempt came to, if not to a result.
///
/// What a timeout, a lost connection or a dead worker leave behind is [`Unknown`](Fault::Unknown), never a failure:
/// the provider may have done it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// This attempt did nothing, and a later one may succeed: too many requests, or the key is in use right now.
    Retryable,
    /// This attempt was turned away and the next would be, too: malformed, not authorised. It did nothing, but it says
    /// nothing of an earlier attempt either, because it may have been turned away before its key was looked at.
    Refused,
    /// The provider's answer to the intent itself: it did not happen and under this key it will not. A declined card.
    Terminal,
    /// It may have happened.
    Unknown,
    /// It may have happened, and the provider answers this key with the same error for as long as it keeps it.
    UnknownForGood,
}

impl Fault {
    /// Whether it may have happened.
    pub fn leaves_doubt(self) -> bool {
        matches!(self, Fault::Unknown | Fault::UnknownForGood)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn derived(tenant: &str, operation: &str, flow: &str, client: &str, step: &str) -> String {
        key(&Scope::new(tenant, operation).unwrap(), flow, &Key::new(client).unwrap(), step)
    }

    #[test]
    fn the_derived_key_is_what_other_languages_compute() {
        assert_eq!(derived("acme", "POST /orders", "order", "k-1", "charge"), "53195d6c-4591-803d-9c61-d698fc980001");
    }

    #[test]
    fn every_part_makes_another_key() {
        let keys = [
            derived("acme", "POST /orders", "order", "k-1", "charge"),
            derived("acmf", "POST /orders", "order", "k-1", "charge"),
            derived("acme", "PUT /orders", "order", "k-1", "charge"),
            derived("acme", "POST /orders", "orders", "k-1", "charge"),
            derived("acme", "POST /orders", "order", "k-2", "charge"),
            derived("acme", "POST /orders", "order", "k-1", "~undo.charge"),
        ];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        assert!(keys.iter().all(|key| key.len() == KEY_CHARACTERS && key.is_ascii()));
    }

    proptest! {
        #[test]
        fn moving_a_character_between_the_parts_makes_another_key(
            parts in prop::collection::vec("[a-c]{2,6}", 5), from in 0usize..4,
        ) {
            let of = |parts: &[String]| derived(&parts[0], &parts[1], &parts[2], &parts[3], &parts[4]);
            let mut moved = parts.clone();
            let character = moved[from].pop().unwrap();
            moved[from + 1].insert(0, character);
            prop_assert_ne!(of(&parts), of(&moved));
            prop_assert_eq!(of(&parts), of(&parts.clone()));
        }
    }
}
