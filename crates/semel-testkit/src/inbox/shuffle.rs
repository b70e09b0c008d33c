//! Orders that a test tries, the same in every run.

/// The same things in another order, which the seed decides.
pub(super) fn shuffled<T>(mut things: Vec<T>, seed: u64) -> Vec<T> {
    let mut chance = Chance::new(seed);
    for last in (1..things.len()).rev() {
        things.swap(last, chance.below(last + 1));
    }
    things
}

/// A small generator of numbers (xorshift64*).
#[derive(Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(mixed % bound as u64).unwrap_or_default()
    }
}
