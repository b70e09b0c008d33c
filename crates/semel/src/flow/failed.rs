//! What an attempt at a call came to, if not to a result.

use super::error::cut;
use crate::error::Source;
use crate::intent::Fault;
use crate::provider::Provider;

/// What an attempt at a call came to, if not to a result: what that means for the intent, and the text for people.
///
/// Any other error turns into [`Fault::Unknown`] by `?`: a connection that broke, an answer that cannot be read. That
/// is the safe reading, because the provider may have done what it was asked. Say something better only where the
/// provider itself said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    fault: Fault,
    text: String,
}

impl Failed {
    /// The attempt came to this.
    pub fn new(fault: Fault, text: impl Into<String>) -> Failed {
        Failed { fault, text: cut(text.into()) }
    }

    /// This attempt did nothing, and a later one may succeed.
    pub fn retryable(text: impl Into<String>) -> Failed {
        Failed::new(Fault::Retryable, text)
    }

    /// This attempt was turned away, and the next would be, too.
    pub fn refused(text: impl Into<String>) -> Failed {
        Failed::new(Fault::Refused, text)
    }

    /// The provider's answer to the intent itself: it will not happen.
    pub fn terminal(text: impl Into<String>) -> Failed {
        Failed::new(Fault::Terminal, text)
    }

    /// It may have happened.
    pub fn unknown(text: impl Into<String>) -> Failed {
        Failed::new(Fault::Unknown, text)
    }

    /// What this HTTP status means to this provider. A success whose body cannot be used is unknown: it happened, and
    /// its result is missing.
    pub fn status(provider: &Provider, status: u16, text: impl Into<String>) -> Failed {
        Failed::new(provider.fault(status).unwrap_or(Fault::Unknown), text)
    }

    /// What it means for the intent.
    pub fn fault(&self) -> Fault {
        self.fault
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl<E: Into<Source>> From<E> for Failed {
    fn from(error: E) -> Failed {
        let error: Source = error.into();
        Failed::new(Fault::Unknown, crate::error::told(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Keys;

    #[test]
    fn an_error_that_says_nothing_of_the_intent_is_unknown() {
        let failed: Failed = std::io::Error::other("the connection broke").into();
        assert_eq!((failed.fault(), failed.text()), (Fault::Unknown, "the connection broke"));
    }

    #[test]
    fn a_status_means_what_the_profile_says() {
        let provider = Provider::http("psp", Keys::None);
        let cases = [(402, Fault::Terminal), (429, Fault::Retryable), (400, Fault::Refused), (503, Fault::Unknown)];
        for (status, fault) in cases {
            assert_eq!(Failed::status(&provider, status, "no").fault(), fault, "{status}");
        }
        assert_eq!(Failed::status(&provider, 200, "the body was cut").fault(), Fault::Unknown);
    }
}
