//! Why there is no sink.

use semel::sink;

/// Why a sink could not be made from its URL. No message holds the URL's password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL cannot be used: it must be written differently.
    #[error("the sink's URL cannot be used: {0}")]
    Url(String),
    /// The broker is known, but this program was built without it.
    #[error("`{scheme}:` sinks are not in this build: build semel-brokers with the feature `{feature}`")]
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
