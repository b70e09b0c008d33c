//! Keys that were answered here lately.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::claim::LockId;

/// How many are remembered: a mebibyte of them, which is half a minute of a busy process.
const PLACES: usize = 1 << 17;

/// The locks of keys that this process has stored or replayed a reply of, so that a retry looks at the row before it
/// asks for the lock: one statement instead of a transaction.
///
/// It saves work and decides nothing. What is remembered wrongly, or no longer holds, costs one look more; what was
/// forgotten is asked for in the usual way. A place is for the last one that came to it.
pub(crate) struct Recent {
    places: Box<[AtomicI64]>,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { places: (0..PLACES).map(|_| AtomicI64::new(0)).collect() }
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recent")
    }
}

impl Recent {
    pub(crate) fn knows(&self, lock: LockId) -> bool {
        self.place(lock).load(Ordering::Relaxed) == lock.0
    }

    pub(crate) fn remember(&self, lock: LockId) {
        self.place(lock).store(lock.0, Ordering::Relaxed);
    }

    pub(crate) fn forget(&self, lock: LockId) {
        let _ = self.place(lock).compare_exchange(lock.0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Lock ids are bits of a hash, so the lowest of them are as good as any.
    fn place(&self, lock: LockId) -> &AtomicI64 {
        &self.places[lock.0 as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_remembered_until_another_one_takes_its_place_or_it_is_forgotten() {
        let recent = Recent::default();
        let (one, other) = (LockId(-7), LockId(-7 + PLACES as i64));
        assert!(!recent.knows(one));
        recent.remember(one);
        assert!(recent.knows(one) && !recent.knows(other));
        recent.remember(other);
        assert!(!recent.knows(one) && recent.knows(other));
        recent.forget(one);
        assert!(recent.knows(other), "one forgets what it is itself only");
        recent.forget(other);
        assert!(!recent.knows(other));
    }
}
