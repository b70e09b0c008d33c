//! How long a key is remembered.

use std::time::Duration;

/// How long a completed key is remembered, and how long clients may still retry it.
///
/// A key forgotten while a client still retries would run twice, so a retention shorter than the declared horizon
/// cannot be configured (I9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    keep: Duration,
    horizon: Duration,
}

/// The longest retention: ten years.
pub const MAX_RETENTION: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// Why a retention was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// Clients may retry for longer than keys are kept.
    #[error(
        "clients may retry for {} s (client_retry_horizon) but keys are kept for {} s (key_retention): a retry after \
         that would run a second time; raise key_retention or lower client_retry_horizon",
        horizon.as_secs_f64(), keep.as_secs_f64()
    )]
    ShorterThanHorizon {
        /// How long keys would be kept.
        keep: Duration,
        /// How long clients may retry.
        horizon: Duration,
    },
    /// The retention is zero or longer than [`MAX_RETENTION`].
    #[error("key_retention must be between 1 ms and ten years, not {} s", .0.as_secs_f64())]
    OutOfBounds(Duration),
}

impl Retention {
    /// Keeps keys for `keep` after completion, for clients that retry for up to `client_retry_horizon`.
    pub fn new(keep: Duration, client_retry_horizon: Duration) -> Result<Retention, Invalid> {
        if keep < Duration::from_millis(1) || keep > MAX_RETENTION {
            return Err(Invalid::OutOfBounds(keep));
        }
        if client_retry_horizon > keep {
            return Err(Invalid::ShorterThanHorizon { keep, horizon: client_retry_horizon });
        }
        Ok(Retention { keep, horizon: client_retry_horizon })
    }

    /// How long a completed key is kept.
    pub fn keep(&self) -> Duration {
        self.keep
    }

    /// How long clients may retry.
    pub fn client_retry_horizon(&self) -> Duration {
        self.horizon
    }
}

impl Default for Retention {
    /// Twenty-four hours of both.
    fn default() -> Retention {
        let day = Duration::from_secs(24 * 60 * 60);
        Retention { keep: day, horizon: day }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_horizon_beyond_the_retention_is_refused() {
        let hour = Duration::from_secs(3600);
        let refused = Retention::new(hour, hour + Duration::from_secs(1)).unwrap_err();
        assert!(refused.to_string().contains("client_retry_horizon"), "{refused}");
        assert!(Retention::new(hour, hour).is_ok());
        assert!(Retention::new(Duration::ZERO, Duration::ZERO).is_err());
    }
}
