//! What is known of an intent that has no result.

use std::time::Duration;

use super::Fault;
use crate::error::Source;
use crate::provider::Found;

/// What is known of an intent that has no result: what its row says, and what was found out since.
///
/// Ages are measured by one clock, the database's, when the row is read, and grow by elapsed time; no clock is compared
/// with another machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// How many attempts were counted. An attempt is counted, in a commit, before it is made.
    pub attempts: u32,
    /// What the last attempt came to. `None` if that was never recorded, because its worker is gone.
    pub last: Option<Fault>,
    /// Whether it may have happened by something earlier than the last attempt. A later attempt that did nothing does
    /// not settle that.
    pub doubt: bool,
    /// How long ago the first attempt was counted: the provider's window is counted from there, and no later attempt
    /// moves it. The provider may have kept the key since the first, whatever came of it.
    pub age: Duration,
    /// How long ago the last attempt was counted.
    pub since_attempt: Duration,
    /// Whether the pause after the last attempt or look-up is over.
    pub rested: bool,
    /// What the last look-up said, if there was one since the last attempt.
    pub looked_up: Option<LookedUp>,
    /// How many look-ups in a row said the same.
    pub look_ups: u32,
    /// Whether the flow is being undone, so that nothing new is to happen.
    pub unwinding: bool,
}

/// What a look-up said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookedUp {
    /// It happened.
    Done,
    /// It was tried and will not happen.
    Failed,
    /// The provider knows nothing of it.
    Absent {
        /// How long after the last attempt it was asked. Too early, and the attempt may still be on its way.
        after: Duration,
    },
    /// The provider is at work on it.
    UnderWay,
    /// The look-up itself failed.
    Broken,
}

impl LookedUp {
    /// What a look-up said that was begun when the last attempt was `after` ago.
    pub fn of(found: &Result<Found, Source>, after: Duration) -> LookedUp {
        match found {
            Ok(Found::Done(_)) => LookedUp::Done,
            Ok(Found::Failed(_)) => LookedUp::Failed,
            Ok(Found::Absent) => LookedUp::Absent { after },
            Ok(Found::UnderWay) => LookedUp::UnderWay,
            Err(_) => LookedUp::Broken,
        }
    }
}

impl Standing {
    /// Before the first attempt; or when a person found out that none of them did anything.
    pub fn first() -> Standing {
        Standing {
            attempts: 0,
            last: None,
            doubt: false,
            age: Duration::ZERO,
            since_attempt: Duration::ZERO,
            rested: true,
            looked_up: None,
            look_ups: 0,
            unwinding: false,
        }
    }

    /// As the rows tell after a pause or a takeover. `attempts` says in their order what each came to, with `None` for
    /// one that nobody lived to record.
    pub fn recorded(attempts: &[Option<Fault>], age: Duration, since_attempt: Duration) -> Standing {
        let earlier = attempts.len().saturating_sub(1);
        Standing {
            attempts: u32::try_from(attempts.len()).unwrap_or(u32::MAX),
            last: attempts.last().copied().flatten(),
            doubt: attempts[..earlier].iter().any(|came_to| came_to.is_none_or(Fault::leaves_doubt)),
            age,
            since_attempt,
            ..Standing::first()
        }
    }

    /// As the rows tell in a database that was restored or failed over since the flow began. Attempts may have been
    /// made that they do not know of, so it may have happened whatever they say. An intent that has no row counts as
    /// attempted when the flow began: its `age` is the flow's, and its first attempt is recorded with that time. When
    /// the last attempt was made is not known either; that counts from now.
    #[must_use]
    pub fn restored(mut self) -> Standing {
        self.doubt = true;
        self.since_attempt = Duration::ZERO;
        self
    }

    /// Whether it may have happened.
    pub fn in_doubt(&self) -> bool {
        self.doubt || self.last.map_or(self.attempts > 0, Fault::leaves_doubt)
    }

    /// One more attempt is counted. Commit that before it is made.
    pub fn count(&mut self) {
        self.doubt = self.in_doubt();
        self.attempts = self.attempts.saturating_add(1);
        self.last = None;
        self.since_attempt = Duration::ZERO;
        self.rested = false;
        self.looked_up = None;
        self.look_ups = 0;
    }

    /// The attempt came to this.
    pub fn end(&mut self, fault: Fault) {
        self.last = Some(fault);
        self.rested = false;
    }

    /// A look-up said this.
    pub fn look(&mut self, said: LookedUp) {
        let same = |before: LookedUp| std::mem::discriminant(&before) == std::mem::discriminant(&said);
        self.look_ups = if self.looked_up.is_some_and(same) { self.look_ups.saturating_add(1) } else { 1 };
        self.looked_up = Some(said);
        self.rested = false;
    }

    /// Time passes.
    pub fn pass(&mut self, time: Duration) {
        self.age = self.age.saturating_add(time);
        self.since_attempt = self.since_attempt.saturating_add(time);
    }
}
