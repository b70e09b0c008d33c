//! What a profile may say.

use std::time::Duration;

use super::retry::{MAX_ATTEMPTS, MAX_PAUSE};
use super::{Keys, Provider};
use crate::retention::MAX_RETENTION;

/// The longest name, in characters. The database checks the same bound (I12).
pub const MAX_NAME_CHARACTERS: usize = 100;

/// The longest timeout of a call.
pub const MAX_TIMEOUT: Duration = Duration::from_hours(1);

/// Why a profile was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The name of the provider, or of what carries the key, cannot be one.
    #[error("the {what} of a provider must be 1 to {MAX_NAME_CHARACTERS} visible ASCII characters, not {name:?}")]
    Name {
        /// Whose name.
        what: &'static str,
        /// What it is.
        name: String,
    },
    /// A setting is out of its bounds.
    #[error("{what} of the provider {provider} must be {bounds}")]
    OutOfBounds {
        /// Whose.
        provider: String,
        /// Which one.
        what: &'static str,
        /// What it may be.
        bounds: &'static str,
    },
    /// Keys would be forgotten here while the provider still knows what was derived from them.
    #[error(
        "flows are kept for {} s but {provider} recognises keys for {} s: a client's retry in between would run again \
         and be answered by the old call; keep flows for at least as long", kept.as_secs_f64(), window.as_secs_f64()
    )]
    Forgotten {
        /// Which provider.
        provider: String,
        /// How long flows would be kept.
        kept: Duration,
        /// How long the provider recognises keys.
        window: Duration,
    },
}

impl Provider {
    /// Says what cannot work (I12).
    pub fn check(&self) -> Result<(), Invalid> {
        for (what, name) in [("name", self.name.as_str()), ("carrier", self.carrier.name())] {
            let fits = (1..=MAX_NAME_CHARACTERS).contains(&name.len());
            if !fits || !name.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(Invalid::Name { what, name: name.to_owned() });
            }
        }
        let window = match self.keys {
            Keys::Kept(window) => window,
            Keys::None | Keys::Forever => MAX_RETENTION,
        };
        let retry = &self.retry;
        let least_fits = !retry.least.is_zero() && retry.least <= retry.most;
        let rules = [
            ("the window", !window.is_zero() && window <= MAX_RETENTION, "above zero and ten years at most"),
            ("the timeout", !self.timeout.is_zero() && self.timeout <= MAX_TIMEOUT, "above zero and an hour at most"),
            ("the settling time", self.settles_after <= MAX_RETENTION, "ten years at most"),
            ("attempts", (1..=MAX_ATTEMPTS).contains(&retry.attempts), "1 to 100"),
            ("the least pause", least_fits, "above zero and not above the longest"),
            ("the longest pause", retry.most <= MAX_PAUSE, "a day at most"),
        ];
        match rules.into_iter().find(|(_, holds, _)| !holds) {
            None => Ok(()),
            Some((what, _, bounds)) => Err(Invalid::OutOfBounds { provider: self.name.clone(), what, bounds }),
        }
    }

    /// Refuses to keep flows for less than the provider recognises keys (I9). One that recognises them without end
    /// cannot be outlived: a key that runs again after it was forgotten here is answered there as the first time.
    pub fn outlived_by(&self, kept: Duration) -> Result<(), Invalid> {
        match self.keys {
            Keys::Kept(window) if kept < window => {
                Err(Invalid::Forgotten { provider: self.name.clone(), kept, window })
            }
            _ => Ok(()),
        }
    }
}
