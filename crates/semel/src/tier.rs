//! What may save an inbox work, and never decides.
//!
//! In front of the store there may be something that is faster to ask and that forgets, or errs: a filter in this
//! process, or a cache that several share. It may say *maybe seen*, and no more. Of such messages the store is asked
//! with a read ([`Inbox::seen`](crate::Inbox::seen)), which costs less than a transaction that finds a duplicate; all
//! others are accepted as usual. So the store alone decides (I6): a tier that is flushed, gone, saturated or lying
//! costs time and changes no result.

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::inbox::Consumer;

/// What a tier's method returns: a future, boxed so that tiers can be told apart at run time.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something in front of the store that remembers ids for a while.
///
/// It never fails: whoever cannot answer says `false`, and the store is asked as if there were no tier.
pub trait Tier: fmt::Debug + Send + Sync + 'static {
    /// Of each id, whether it may have been noted. `false` for all in any trouble. As many answers as ids.
    ///
    /// Neither answer settles anything: `true` may be a mistake, and `false` may be forgetfulness.
    fn maybe_seen<'a>(&'a self, consumer: &'a Consumer, ids: &'a [&'a str]) -> Answer<'a, Vec<bool>>;

    /// Notes ids whose effects are committed. Noting one that is not would cost a read, and nothing else.
    fn note<'a>(&'a self, consumer: &'a Consumer, ids: &'a [&'a str]) -> Answer<'a, ()>;
}

/// The most bits that one half of a filter may have (I12): 128 MiB.
const MAX_BITS: usize = 1 << 30;

/// The most bits that one id may set.
const MAX_HASHES: u32 = 16;

/// A filter in this process: two Bloom filters, of which the older is emptied and becomes the newer whenever the newer
/// has taken as many ids as expected.
///
/// It remembers at least the last `expected` ids that it noted, in memory of a fixed size, and nothing after a crash.
/// It never says `false` of an id that it remembers. Of one that it never noted it says `true` now and then, and if it
/// is too small for what it holds, nearly always.
pub struct Filter {
    seeds: [RandomState; 2],
    hashes: u32,
    expected: usize,
    halves: Mutex<Halves>,
}

struct Halves {
    newer: Vec<u64>,
    older: Vec<u64>,
    /// How many ids the newer one has taken.
    taken: usize,
}

impl Filter {
    /// A filter that remembers the last `expected` ids, and takes about the share `mistaken` of all others for one of
    /// them: `Filter::new(1_000_000, 0.01)` uses 2.6 MiB.
    ///
    /// Either is brought within its bounds: at least one id, a share between one in a million and a half, and no more
    /// than 256 MiB.
    pub fn new(expected: usize, mistaken: f64) -> Filter {
        let expected = expected.max(1);
        // An id is looked up in both halves, so each may be mistaken half as often.
        let share = if mistaken.is_nan() { 0.01 } else { mistaken.clamp(0.000_001, 0.5) } / 2.0;
        let bits_per_id = -share.ln() / std::f64::consts::LN_2.powi(2);
        Filter::sized((expected as f64 * bits_per_id).ceil() as usize, expected)
    }

    /// A filter of about this many bytes that takes `expected` ids before it begins to forget: as good as that much
    /// memory allows.
    pub fn within(bytes: usize, expected: usize) -> Filter {
        Filter::sized(bytes.saturating_mul(8) / 2, expected.max(1))
    }

    fn sized(bits: usize, expected: usize) -> Filter {
        let words = bits.min(MAX_BITS).div_ceil(64).max(1);
        let best = (words * 64) as f64 / expected as f64 * std::f64::consts::LN_2;
        let halves = Halves { newer: vec![0; words], older: vec![0; words], taken: 0 };
        Filter {
            seeds: [RandomState::new(), RandomState::new()],
            hashes: (best.round() as u32).clamp(1, MAX_HASHES),
            expected,
            halves: Mutex::new(halves),
        }
    }

    /// How many bytes it uses.
    pub fn bytes(&self) -> usize {
        let halves = self.halves();
        (halves.newer.len() + halves.older.len()) * size_of::<u64>()
    }

    /// The bits of an id, by double hashing. The seeds are this process's own, so that nobody can choose ids that
    /// collide.
    fn bits(&self, consumer: &Consumer, id: &str, words: usize) -> impl Iterator<Item = (usize, u64)> + use<> {
        let [first, step] = [0, 1].map(|seed| self.seeds[seed].hash_one((consumer, id)));
        let bits = words as u64 * 64;
        (0..u64::from(self.hashes)).map(move |nth| {
            let bit = first.wrapping_add(nth.wrapping_mul(step | 1)) % bits;
            (usize::try_from(bit / 64).unwrap_or(0), 1 << (bit % 64))
        })
    }

    fn halves(&self) -> MutexGuard<'_, Halves> {
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tier for Filter {
    fn maybe_seen<'a>(&'a self, consumer: &'a Consumer, ids: &'a [&'a str]) -> Answer<'a, Vec<bool>> {
        let halves = self.halves();
        let has = |half: &[u64], id| self.bits(consumer, id, half.len()).all(|(word, bit)| half[word] & bit != 0);
        let answers = ids.iter().map(|id| has(&halves.newer, id) || has(&halves.older, id)).collect();
        Box::pin(std::future::ready(answers))
    }

    fn note<'a>(&'a self, consumer: &'a Consumer, ids: &'a [&'a str]) -> Answer<'a, ()> {
        let mut halves = self.halves();
        for id in ids {
            if halves.taken >= self.expected {
                let Halves { newer, older, taken } = &mut *halves;
                std::mem::swap(newer, older);
                newer.fill(0);
                *taken = 0;
            }
            let words = halves.newer.len();
            for (word, bit) in self.bits(consumer, id, words) {
                halves.newer[word] |= bit;
            }
            halves.taken += 1;
        }
        Box::pin(std::future::ready(()))
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("expected", &self.expected)
            .field("bytes", &self.bytes())
            .field("hashes", &self.hashes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn ids(range: std::ops::Range<usize>) -> Vec<String> {
        range.map(|number| format!("message {number}")).collect()
    }

    async fn note(tier: &dyn Tier, consumer: &Consumer, ids: &[String]) {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        tier.note(consumer, &ids).await;
    }

    async fn maybe(tier: &dyn Tier, consumer: &Consumer, ids: &[String]) -> usize {
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let answers = tier.maybe_seen(consumer, &ids).await;
        assert_eq!(answers.len(), ids.len());
        answers.into_iter().filter(|seen| *seen).count()
    }

    #[tokio::test]
    async fn a_filter_never_forgets_any_of_the_last_ids_it_was_made_for() {
        let consumer = Consumer::new("c").unwrap();
        let filter = Filter::new(1_000, 0.01);
        let all = ids(0..5_000);
        for (index, part) in all.chunks(250).enumerate() {
            note(&filter, &consumer, part).await;
            let last = &all[((index + 1) * 250).saturating_sub(1_000)..(index + 1) * 250];
            assert_eq!(maybe(&filter, &consumer, last).await, last.len());
        }
    }

    #[tokio::test]
    async fn a_filter_is_mistaken_about_as_often_as_it_was_made_to_be() {
        let consumer = Consumer::new("c").unwrap();
        for share in [0.1, 0.01, 0.001] {
            let filter = Filter::new(20_000, share);
            // Both halves are full now: it cannot get worse.
            note(&filter, &consumer, &ids(0..40_000)).await;
            let mistaken = maybe(&filter, &consumer, &ids(1_000_000..1_100_000)).await as f64 / 100_000.0;
            assert!((share * 0.5..share * 1.5).contains(&mistaken), "{share}: {mistaken}");
        }
    }

    #[tokio::test]
    async fn a_filter_forgets_what_is_older_than_two_rotations_and_does_not_grow() {
        let consumer = Consumer::new("c").unwrap();
        let filter = Filter::new(1_000, 0.01);
        let before = filter.bytes();
        assert!((2_000..4_000).contains(&before), "{before}");
        note(&filter, &consumer, &ids(0..50_000)).await;
        let remembered = maybe(&filter, &consumer, &ids(0..10_000)).await;
        assert!(remembered < 300, "{remembered}");
        assert_eq!(filter.bytes(), before);
    }

    #[tokio::test]
    async fn a_saturated_filter_says_maybe_to_everything() {
        let consumer = Consumer::new("c").unwrap();
        let filter = Filter::within(16, 100_000);
        note(&filter, &consumer, &ids(0..2_000)).await;
        assert_eq!(filter.bytes(), 16);
        assert_eq!(maybe(&filter, &consumer, &ids(5_000..6_000)).await, 1_000);
    }

    #[tokio::test]
    async fn what_one_consumer_or_generation_has_seen_says_nothing_about_another() {
        let tier: Arc<dyn Tier> = Arc::new(Filter::new(1_000, 0.000_001));
        let [one, other] = ["one", "other"].map(|name| Consumer::new(name).unwrap());
        let all = ids(0..100);
        note(&*tier, &one, &all).await;
        assert_eq!(maybe(&*tier, &one, &all).await, 100);
        assert_eq!(maybe(&*tier, &other, &all).await, 0);
        assert_eq!(maybe(&*tier, &one.in_generation(1), &all).await, 0);
    }

    #[test]
    fn no_setting_makes_a_filter_that_cannot_be() {
        for (expected, share) in [(0, 0.0), (1, 2.0), (10, f64::NAN), (10, -1.0), (usize::MAX, 0.5)] {
            let bytes = Filter::new(expected, share).bytes();
            assert!((16..=256 << 20).contains(&bytes), "{expected}, {share}: {bytes}");
        }
        assert_eq!(Filter::within(0, 0).bytes(), 16);
    }
}
