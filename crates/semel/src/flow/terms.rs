//! What a definition says of a flow beside its function, and what it may say.

use std::time::Duration;

use super::journal::MAX_FLOW_CHARACTERS;
use crate::provider::{self, Provider};
use crate::retention::MAX_RETENTION;
use crate::{OnExpiry, Retention};

/// How long a flow may live before it is undone, unless the definition says otherwise.
const LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// What a definition says of a flow beside its function.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) name: String,
    pub(super) providers: Vec<Provider>,
    pub(super) retain: Option<Duration>,
    pub(super) lives_for: Option<Duration>,
    pub(super) on_expiry: OnExpiry,
}

/// Why flows cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The name cannot be one.
    #[error("the name of a flow must be 1 to {MAX_FLOW_CHARACTERS} visible ASCII characters, not {0:?}")]
    Name(String),
    /// Two flows have one name.
    #[error("two flows are registered as {0:?}; a name is a flow's identity")]
    Twice(String),
    /// A provider's profile cannot work, or flows would be forgotten while the provider still knows their keys (I9).
    #[error("the flow {flow:?} cannot call its provider")]
    Provider {
        /// The flow.
        flow: String,
        /// What is wrong.
        #[source]
        invalid: provider::Invalid,
    },
    /// Two providers of one flow have one name.
    #[error("the flow {flow:?} calls two providers of the name {provider:?}; rows know them by their names")]
    ProviderTwice {
        /// The flow.
        flow: String,
        /// The name.
        provider: String,
    },
    /// Flows would be forgotten while clients may still retry them (I9).
    #[error(
        "the flow {flow:?} would be kept for {} s and clients may retry for {} s (client_retry_horizon): a retry after \
         that would run a second time; retain it for at least as long",
        kept.as_secs_f64(), horizon.as_secs_f64()
    )]
    Forgotten {
        /// The flow.
        flow: String,
        /// How long it would be kept.
        kept: Duration,
        /// How long clients may retry.
        horizon: Duration,
    },
    /// The retention is zero or longer than ten years.
    #[error("the flow {flow:?} must be kept for 1 ms to ten years, not for {} s", kept.as_secs_f64())]
    Retention {
        /// The flow.
        flow: String,
        /// How long it would be kept.
        kept: Duration,
    },
    /// The flow could not live, or would outlive its own row.
    #[error(
        "the flow {flow:?} may live for {} s; that must be above zero and not above the {} s for which it is kept",
        lives_for.as_secs_f64(), kept.as_secs_f64()
    )]
    Life {
        /// The flow.
        flow: String,
        /// How long it may live.
        lives_for: Duration,
        /// How long it is kept.
        kept: Duration,
    },
    /// A setting cannot work.
    #[error("{0}")]
    Settings(String),
}

impl Terms {
    pub(super) fn new(name: String) -> Terms {
        Terms { name, providers: Vec::new(), retain: None, lives_for: None, on_expiry: OnExpiry::Resume }
    }

    /// Settles what was left open, or says what cannot work.
    pub(super) fn checked(mut self, retention: &Retention) -> Result<Terms, Invalid> {
        let flow = self.name.clone();
        if !(1..=MAX_FLOW_CHARACTERS).contains(&flow.len()) || !flow.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Invalid::Name(flow));
        }
        let (kept, horizon) = (self.retain.unwrap_or(retention.keep()), retention.client_retry_horizon());
        if kept < Duration::from_millis(1) || kept > MAX_RETENTION {
            return Err(Invalid::Retention { flow, kept });
        }
        if kept < horizon {
            return Err(Invalid::Forgotten { flow, kept, horizon });
        }
        let lives_for = self.lives_for.unwrap_or(LIFE.min(kept));
        if lives_for.is_zero() || lives_for > kept {
            return Err(Invalid::Life { flow, lives_for, kept });
        }
        for (position, provider) in self.providers.iter().enumerate() {
            if self.providers[..position].iter().any(|other| other.name == provider.name) {
                return Err(Invalid::ProviderTwice { flow, provider: provider.name.clone() });
            }
            let checked = provider.check().and_then(|()| provider.outlived_by(kept));
            checked.map_err(|invalid| Invalid::Provider { flow: flow.clone(), invalid })?;
        }
        (self.retain, self.lives_for) = (Some(kept), Some(lives_for));
        Ok(self)
    }

    /// How long flows are kept after their last change.
    pub(super) fn kept_for(&self) -> Duration {
        self.retain.unwrap_or(LIFE)
    }

    /// How long a flow may live.
    pub(super) fn life(&self) -> Duration {
        self.lives_for.unwrap_or(LIFE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Keys;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    fn terms() -> Terms {
        Terms::new("order".to_owned())
    }

    fn calling(window: Duration) -> Terms {
        Terms { providers: vec![Provider::http("psp", Keys::Kept(window))], ..terms() }
    }

    fn refused(terms: Terms) -> Invalid {
        terms.checked(&Retention::default()).unwrap_err()
    }

    #[test]
    fn a_flow_is_kept_as_keys_are_and_lives_for_a_day_unless_it_says_otherwise() {
        let checked = terms().checked(&Retention::default()).unwrap();
        assert_eq!((checked.kept_for(), checked.life()), (24 * HOUR, 24 * HOUR));
        let short = Retention::new(HOUR, HOUR).unwrap();
        let checked = terms().checked(&short).unwrap();
        assert_eq!((checked.kept_for(), checked.life()), (HOUR, HOUR));
        let long = Terms { retain: Some(48 * HOUR), lives_for: Some(36 * HOUR), ..terms() };
        let checked = long.checked(&short).unwrap();
        assert_eq!((checked.kept_for(), checked.life()), (48 * HOUR, 36 * HOUR));
    }

    #[test]
    fn a_flow_that_is_forgotten_before_its_provider_forgets_is_refused() {
        let invalid = refused(calling(48 * HOUR));
        let Invalid::Provider { flow, invalid } = &invalid else { panic!("{invalid:?}") };
        assert_eq!(flow, "order");
        assert!(matches!(invalid, provider::Invalid::Forgotten { .. }), "{invalid}");
        let kept = Terms { retain: Some(48 * HOUR), ..calling(48 * HOUR) };
        assert!(kept.checked(&Retention::default()).is_ok());
    }

    #[test]
    fn a_flow_that_is_forgotten_while_clients_retry_is_refused() {
        let invalid = refused(Terms { retain: Some(23 * HOUR), ..terms() });
        let (kept, horizon) = (23 * HOUR, 24 * HOUR);
        assert_eq!(invalid, Invalid::Forgotten { flow: "order".to_owned(), kept, horizon });
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        for name in ["", "a b", "é", &"x".repeat(101)] {
            assert_eq!(refused(Terms::new(name.to_owned())), Invalid::Name(name.to_owned()));
        }
        let too_long = Terms { retain: Some(MAX_RETENTION + HOUR), ..terms() };
        assert!(matches!(refused(too_long), Invalid::Retention { .. }));
        for lives_for in [Duration::ZERO, 25 * HOUR] {
            let invalid = refused(Terms { lives_for: Some(lives_for), ..terms() });
            assert!(matches!(invalid, Invalid::Life { .. }), "{invalid}");
        }
        let unusable = Terms { providers: vec![Provider::http("", Keys::None)], ..terms() };
        assert!(matches!(refused(unusable), Invalid::Provider { .. }));
        let psp = Provider::http("psp", Keys::None);
        let twice = Terms { providers: vec![psp.clone(), psp], ..terms() };
        assert!(matches!(refused(twice), Invalid::ProviderTwice { .. }));
    }
}
