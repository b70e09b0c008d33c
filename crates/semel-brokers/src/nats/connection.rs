//! Where a NATS server is, and a connection to it.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{ConnectErrorKind, ConnectOptions, Event};
use tokio::sync::watch;

use crate::Error;
use crate::url::SinkUrl;

/// A server, and who asks. `Debug` shows the address only.
pub(super) struct Server {
    pub(super) address: String,
    user: Option<String>,
    password: Option<String>,
    tls: bool,
    tls_ca: Option<PathBuf>,
    pub(super) timeout: Duration,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "nats://{}", self.address)
    }
}

/// A connection, and whether it is lost.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) context: Context,
    pub(super) lost: watch::Receiver<bool>,
}

impl Line {
    /// Whether it is still the connection that was opened: not lost, nor given up by the client.
    pub(super) fn holds(&self) -> bool {
        self.lost.has_changed().is_ok() && !*self.lost.borrow()
    }
}

impl Server {
    /// Takes what concerns the connection out of a URL.
    pub(super) fn of(url: &mut SinkUrl) -> Result<Server, Error> {
        if !url.path().is_empty() {
            return Err(Error::Url("a nats: URL has no path; name the stream by `?stream=NAME`".to_owned()));
        }
        let (user, password) = url.credentials()?;
        Ok(Server {
            address: url.authority(4222),
            user,
            password,
            tls: url.flag("tls")?,
            tls_ca: url.text("tls_ca").map(PathBuf::from),
            timeout: url.timeout()?,
        })
    }

    /// Connects. A lost connection is not revived by the client but replaced by the session: what the old one still
    /// held is never sent behind its back.
    pub(super) async fn open(&self) -> Result<Line, Error> {
        let (losing, lost) = watch::channel(false);
        let mut options = ConnectOptions::new()
            .name("semel")
            .connection_timeout(self.timeout)
            .request_timeout(Some(self.timeout))
            .max_reconnects(1)
            .event_callback(move |event| {
                if matches!(event, Event::Disconnected | Event::Closed) {
                    losing.send_replace(true);
                }
                std::future::ready(())
            })
            .require_tls(self.tls);
        options = match (&self.user, &self.password) {
            (Some(user), Some(password)) => options.user_and_password(user.clone(), password.clone()),
            (Some(token), None) => options.token(token.clone()),
            _ => options,
        };
        if let Some(path) = &self.tls_ca {
            options = options.add_root_certificates(path.clone());
        }
        let client = options.connect(format!("nats://{}", self.address)).await.map_err(|error| match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                Error::Refused(format!("NATS at {} refuses the user name and password of the URL", self.address))
            }
            ConnectErrorKind::Tls => Error::Refused(format!("no TLS connection to NATS at {}: {error}", self.address)),
            _ => Error::Unavailable(format!("NATS at {}: {error}", self.address)),
        })?;
        Ok(Line { context: ContextBuilder::new().timeout(self.timeout).build(client), lost })
    }
}

/// Refuses what is no name of a stream.
pub(super) fn check_stream(stream: &str) -> Result<(), Error> {
    if stream.is_empty() || stream.contains(|c: char| c.is_whitespace() || ".*>/\\".contains(c)) {
        return Err(Error::Url("`?stream=NAME` must name a stream: no spaces, dots, wildcards, slashes".to_owned()));
    }
    Ok(())
}
