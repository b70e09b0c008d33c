//! What goes wrong with a webhook, before there is a sink and at each attempt.

use std::time::Duration;

use semel::sink;

use super::Blocked;

/// Why a webhook sink could not be made. No message repeats a part of the URL that may be secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL is not usable.
    #[error("the URL of the webhook is not usable: {0}")]
    Url(&'static str),
    /// A parameter of the URL is not usable.
    #[error("the parameter {name} of the webhook's URL is not usable: {why}")]
    Parameter {
        /// Which one.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The URL names an address that may not be reached.
    #[error(transparent)]
    Blocked(#[from] Blocked),
    /// A signing secret is not usable.
    #[error("a signing secret of the webhook is not usable: {0}")]
    Secret(&'static str),
    /// The file of signing secrets cannot be read.
    #[error("the file of the webhook's signing secrets cannot be read")]
    SecretFile(#[source] std::io::Error),
    /// TLS has no usable certificate authorities.
    #[error("the certificate authorities for the webhook cannot be loaded")]
    Roots(#[source] sink::Source),
}

/// Why an attempt failed: the source beneath [`sink::Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The receiver answered with a status that is no acknowledgement.
    #[error("the receiver answered {0}")]
    Status(u16),
    /// The receiver answered 401.
    #[error("the receiver answered 401: it does not accept the credentials of the URL")]
    Credentials,
    /// The receiver answered with a redirect.
    #[error("the receiver answered {0}, and redirects are not followed: name the final URL in the sink's")]
    Redirect(u16),
    /// The receiver did not answer in time. It may have applied the event.
    #[error("the receiver did not answer within {0:?}")]
    Timeout(Duration),
    /// The receiver has asked to be left alone for so much longer.
    #[error("the receiver asked to wait {0:?} longer")]
    Waiting(Duration),
    /// The connection could not be made, or broke.
    #[error("the request could not be made")]
    Transport(#[source] sink::Source),
    /// Not tried, because another event of the batch has just found the receiver down.
    #[error("not tried, because the receiver has just been found down")]
    Down,
    /// A header of the event cannot travel over HTTP.
    #[error("the header {0:?} cannot be sent over HTTP")]
    Header(String),
}

impl From<Error> for crate::Error {
    /// Nothing was reached yet, so whatever is wrong is in the URL or in a file that it names.
    fn from(error: Error) -> crate::Error {
        match &error {
            Error::Url(why) => crate::Error::Url((*why).to_owned()),
            Error::SecretFile(source) => crate::Error::Url(format!("{error}: {source}")),
            Error::Roots(source) => crate::Error::Url(format!("{error}: {source}")),
            Error::Parameter { .. } | Error::Blocked(_) | Error::Secret(_) => crate::Error::Url(error.to_string()),
        }
    }
}
