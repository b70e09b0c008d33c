//! Why there is no sink, or no source.

use semel::{sink, source};

/// Why a sink or a source could not be made from its URL. No message holds the URL's password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL cannot be used: it must be written differently.
    #[error("the URL cannot be used: {0}")]
    Url(String),
    /// The broker is known, but this program was built without it.
    #[error("`{scheme}:` is not in this build: build semel-brokers with the feature `{feature}`")]
    NotBuilt {
        /// The URL's scheme.
        scheme: String,
        /// The cargo feature that brings it.
        feature: &'static str,
    },
    /// The broker was reached and refuses: wrong credentials, or something is missing there. The message says what.
    #[error("{0}")]
    Refused(String),
    /// The broker cannot be reached: try again later.
    #[error("the broker cannot be reached: {0}")]
    Unavailable(String),
}

impl From<Error> for sink::Error {
    /// What goes wrong while connecting is no event's fault, so the events wait.
    fn from(error: Error) -> sink::Error {
        sink::Error::Unavailable(error.into())
    }
}

impl From<Error> for source::Error {
    /// A broker that is away comes back; anything else stays wrong until somebody does something.
    fn from(error: Error) -> source::Error {
        match error {
            Error::Unavailable(_) => source::Error::Unavailable(error.into()),
            Error::Url(_) | Error::NotBuilt { .. } | Error::Refused(_) => source::Error::Refused(error.into()),
        }
    }
}
