//! Which keys are being worked on.
//!
//! This is in memory on purpose. What is under way has committed nothing, so after a crash none of it happened, and
//! none of its keys is in use.

use std::sync::{Arc, Mutex, PoisonError};

use crate::kind::Kind;

/// The keys of the requests that are being worked on, a key as often as there are requests with it.
#[derive(Debug, Default)]
pub(crate) struct UnderWay(Mutex<Vec<(Kind, String)>>);

/// Says that a request is being worked on, until it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    under_way: Arc<UnderWay>,
    kind: Kind,
    key: String,
}

impl UnderWay {
    /// Notes that a request with this key is being worked on. `None` if it must be `alone` and another one is there.
    pub(crate) fn enter(self: &Arc<UnderWay>, kind: Kind, key: &str, alone: bool) -> Option<Entry> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if alone && entries.iter().any(|(other, used)| other.desk() == kind.desk() && used == key) {
            return None;
        }
        entries.push((kind, key.to_owned()));
        Some(Entry { under_way: Arc::clone(self), kind, key: key.to_owned() })
    }

    /// Whether a request with this key, and of this kind if one is named, is being worked on.
    pub(crate) fn holds(&self, kind: Option<Kind>, key: &str) -> bool {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().any(|(other, used)| kind.is_none_or(|kind| kind == *other) && used == key)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut entries = self.under_way.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = entries.iter().position(|(kind, key)| *kind == self.kind && *key == self.key) {
            entries.swap_remove(at);
        }
    }
}
