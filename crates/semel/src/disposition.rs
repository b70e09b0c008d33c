//! Which replies are stored, and what becomes of the effect.

/// What happens to the effect and to the reply once the work has answered.
///
/// | answer | effect | reply |
/// |---|---|---|
/// | 2xx, 3xx | committed | stored |
/// | 4xx before the first statement | none | not stored |
/// | 4xx after it | rolled back to the claim | stored |
/// | 4xx marked *keep* | committed | stored |
/// | 408, 409, 425, 429 | rolled back | not stored |
/// | 5xx | rolled back | not stored |
/// | 5xx marked *terminal* | rolled back to the claim | stored, as failed |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Effect and reply commit together.
    Commit,
    /// The effect is rolled back to the claim and the reply is committed alone: a retry gets the same answer.
    StoreOnly {
        /// Whether the key's state is *failed* rather than *completed*.
        failed: bool,
    },
    /// All is rolled back and the key stays new: a retry runs.
    Forget,
}

/// What the handler says beyond the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mark {
    /// The table's default.
    #[default]
    None,
    /// A 4xx whose effect is to be committed.
    Keep,
    /// A 5xx that will not get better: stored, so that a retry gets it again.
    Terminal,
}

impl Disposition {
    /// Looks the answer up in the table. `begun` tells whether a statement ran in the transaction.
    pub fn of(status: u16, mark: Mark, begun: bool) -> Disposition {
        match (status, mark) {
            (200..=399, _) => Disposition::Commit,
            (408 | 409 | 425 | 429, _) => Disposition::Forget,
            (400..=499, Mark::Keep) => Disposition::Commit,
            (400..=499, _) if begun => Disposition::StoreOnly { failed: false },
            (500..=599, Mark::Terminal) => Disposition::StoreOnly { failed: true },
            _ => Disposition::Forget,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds() {
        let of = Disposition::of;
        assert_eq!(of(201, Mark::None, true), Disposition::Commit);
        assert_eq!(of(303, Mark::None, false), Disposition::Commit);
        assert_eq!(of(402, Mark::None, false), Disposition::Forget);
        assert_eq!(of(402, Mark::None, true), Disposition::StoreOnly { failed: false });
        assert_eq!(of(402, Mark::Keep, true), Disposition::Commit);
        assert_eq!(of(500, Mark::None, true), Disposition::Forget);
        assert_eq!(of(500, Mark::Terminal, true), Disposition::StoreOnly { failed: true });
        for status in [408, 409, 425, 429] {
            assert_eq!(of(status, Mark::Keep, true), Disposition::Forget);
        }
    }
}
