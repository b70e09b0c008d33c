//! Messages from webhooks: `http://127.0.0.1:7700/path?secret=whsec_…` listens there.
//!
//! Each POST is a message, known by its `webhook-id`. It is answered 204 after its effect is committed, which is the
//! acknowledgement; 503 with `Retry-After` if it was given back, or cannot be taken now. If this process dies first,
//! the sender gets no answer and sends it again.
//!
//! | parameter | meaning |
//! |---|---|
//! | `secret` | what messages are signed with by Standard Webhooks: `whsec_…`, or a public key `whpk_…`; may repeat |
//! | `secret_file` | a file of these, one per line; may repeat |
//! | `unsigned` | `true` listens without a secret on addresses other than loopback |
//! | `tolerance` | how far a signature's time may be from now, `5m` unless given |
//! | `redelivery` | for how long the sender tries again, `4d` unless given |
//! | `wait` | how long a sender is kept waiting for its answer, `30s` unless given |
//!
//! The signature covers id, time and body. Other headers, such as `ce-type`, `ce-partitionkey` and `semel-sequence`,
//! are as trustworthy as the connection. TLS ends in a proxy before it.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use semel::source::{self, Received, Redelivery, Source};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use url::{Host, Url};

use super::Error;
use super::gate::Gate;
use super::target::parsed;
use super::verify::Trusted;
use super::waiting::{Answer, Receipt};
use crate::subscription::Subscription;

/// The most connections at once (I12). Each has at most one message in hand.
const MAX_CONNECTIONS: usize = 1024;

/// The most bytes of a request's head.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// How long a connection may be silent, and how long its end is waited for.
const IDLE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(5);

/// A port that webhooks are sent to.
pub struct HttpSource {
    address: SocketAddr,
    redelivery: Redelivery,
    incoming: Mutex<mpsc::Receiver<Received<Receipt>>>,
    closing: watch::Sender<bool>,
    server: Mutex<Option<JoinHandle<()>>>,
    abort: tokio::task::AbortHandle,
}

/// What the URL says.
struct Settings {
    host: Host<String>,
    port: u16,
    path: String,
    trusted: Vec<Trusted>,
    unsigned: bool,
    tolerance: Duration,
    wait: Duration,
    redelivery: Option<Duration>,
}

impl HttpSource {
    /// Listens. Port 0 chooses a free one; see [`HttpSource::local_addr`].
    ///
    /// Without a secret it listens on a loopback address only, unless the URL says `unsigned=true`.
    pub async fn open(url: &str, _: &Subscription) -> Result<HttpSource, crate::Error> {
        let settings = Settings::parse(url)?;
        let bound = match &settings.host {
            Host::Domain(name) => TcpListener::bind((name.as_str(), settings.port)).await,
            Host::Ipv4(address) => TcpListener::bind((*address, settings.port)).await,
            Host::Ipv6(address) => TcpListener::bind((*address, settings.port)).await,
        };
        let failed = |error: std::io::Error| {
            let why = format!("cannot listen on {}:{}: {error}", settings.host, settings.port);
            match error.kind() {
                std::io::ErrorKind::PermissionDenied => crate::Error::Refused(why),
                _ => crate::Error::Unavailable(why),
            }
        };
        let listener = bound.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if settings.trusted.is_empty() && !settings.unsigned && !address.ip().is_loopback() {
            return Err(crate::Error::Url(format!(
                "anybody could send messages to {address}: give the sender's `secret`, or say `unsigned=true`"
            )));
        }
        let (queue, incoming) = mpsc::channel(MAX_CONNECTIONS);
        let redelivery = settings.redelivery();
        let gate = Gate::new(settings.path, settings.trusted, settings.tolerance, settings.wait, queue);
        let (closing, closed) = watch::channel(false);
        let server = tokio::spawn(serve(listener, Arc::new(gate), closed));
        let abort = server.abort_handle();
        let (incoming, server) = (Mutex::new(incoming), Mutex::new(Some(server)));
        Ok(HttpSource { address, redelivery, incoming, closing, server, abort })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Source for HttpSource {
    type Receipt = Receipt;

    async fn receive(&self, most: usize) -> Result<Vec<Received<Receipt>>, source::Error> {
        let mut incoming = self.incoming.lock().await;
        let mut received = Vec::new();
        let mut closing = self.closing.subscribe();
        let taken = tokio::select! {
            // Dropping it takes nothing out.
            taken = incoming.recv_many(&mut received, most.max(1)) => taken,
            () = closed(&mut closing) => 0,
        };
        if taken > 0 {
            return Ok(received);
        }
        Err(crate::Error::Unavailable("the source is closed".to_owned()).into())
    }

    async fn acknowledge(&self, receipts: &[&Receipt]) -> Result<(), source::Error> {
        receipts.iter().for_each(|receipt| receipt.settle(Answer::Applied));
        Ok(())
    }

    async fn give_back(&self, receipts: &[&Receipt]) -> Result<(), source::Error> {
        receipts.iter().for_each(|receipt| receipt.settle(Answer::Later));
        Ok(())
    }

    async fn redelivery(&self) -> Result<Redelivery, source::Error> {
        Ok(self.redelivery.clone())
    }

    /// Takes no more requests, and answers those there are: what was not received is to be sent again.
    async fn close(&self) {
        self.closing.send_replace(true);
        let mut incoming = self.incoming.lock().await;
        incoming.close();
        while incoming.try_recv().is_ok() {}
        if let Some(server) = self.server.lock().await.take() {
            let _ = server.await;
        }
    }
}

impl Drop for HttpSource {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

impl fmt::Debug for HttpSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A path may hold a token.
        write!(f, "http://{}", self.address)
    }
}

/// Waits until it is told to close, or gone.
async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Accepts connections until it is told to close, then waits for those there are. Dropping it ends them at once.
async fn serve(listener: TcpListener, gate: Arc<Gate>, mut closing: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(converse(stream, Arc::clone(&gate), closing.clone()));
                }
                Err(error) => {
                    // A sender that is gone already, or no more file descriptors.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = closed(&mut closing) => break,
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(PATIENCE, ended).await;
}

/// Answers the requests of one connection.
async fn converse(stream: TcpStream, gate: Arc<Gate>, mut closing: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let gate = Arc::clone(&gate);
        async move { Ok::<_, Infallible>(gate.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // A sender that breaks off sends its message again: there is nothing to tell.
    tokio::select! {
        _ = &mut connection => {}
        () = closed(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

impl Settings {
    fn parse(url: &str) -> Result<Settings, Error> {
        let url = parsed(url)?;
        if url.scheme() != "http" {
            return Err(Error::Url("a source listens on http:, and TLS ends in a proxy before it"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::Url("a source has no user name and password: messages are signed, see `secret`"));
        }
        let mut settings = Settings {
            host: url.host().ok_or(Error::Url("it names no host"))?.to_owned(),
            port: url.port_or_known_default().ok_or(Error::Url("it names no port"))?,
            path: url.path().to_owned(),
            trusted: Vec::new(),
            unsigned: false,
            tolerance: Duration::from_secs(5 * 60),
            wait: Duration::from_secs(30),
            redelivery: None,
        };
        settings.read(&url)?;
        Ok(settings)
    }

    fn read(&mut self, url: &Url) -> Result<(), Error> {
        for part in url.query().unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let wrong = |why: &str| Error::Parameter { name: name.to_owned(), why: why.to_owned() };
            // A plus stays a plus: secrets are base64.
            let value = percent_decode_str(value).decode_utf8().map_err(|_| wrong("its value is not UTF-8"))?;
            let duration = || match humantime::parse_duration(&value) {
                Ok(duration) if !duration.is_zero() => Ok(duration),
                _ => Err(wrong("it is a length of time, such as 30s or 7d")),
            };
            match name {
                "secret" => self.trusted.push(Trusted::parse(&value)?),
                "secret_file" => {
                    let lines =
                        std::fs::read_to_string(&*value).map_err(|source| Error::SecretFile(source.kind().into()))?;
                    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
                        self.trusted.push(Trusted::parse(line)?);
                    }
                }
                "unsigned" => self.unsigned = value.parse().map_err(|_| wrong("it is true or false"))?,
                "tolerance" => self.tolerance = duration()?,
                "redelivery" => self.redelivery = Some(duration()?),
                "wait" => self.wait = duration()?,
                _ => {
                    let known = "secret, secret_file, unsigned, tolerance, redelivery, wait";
                    return Err(wrong(&format!("there is none of that name; they have: {known}")));
                }
            }
        }
        Ok(())
    }

    fn redelivery(&self) -> Redelivery {
        match self.redelivery {
            Some(longest) => Redelivery::Within {
                longest,
                because: format!(
                    "redelivery={} of the source's URL",
                    humantime::format_duration(longest).to_string().replace(' ', "")
                ),
            },
            None => Redelivery::Within {
                longest: Duration::from_secs(4 * 24 * 60 * 60),
                because:
                    "the retry schedule of Standard Webhooks ends after 75h35m; `redelivery=` in the source's URL \
                          says otherwise"
                        .to_owned(),
            },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_and_what_cannot_be_meant_is_refused_without_telling_secrets() {
        let settings = Settings::parse(
            "http://127.0.0.1:7700/in?secret=whsec_MfKQ9r8+KYqrTwjUPD8ILPZIo2LaLaSw&tolerance=1m&redelivery=7d&wait=2s",
        );
        let settings = settings.unwrap();
        assert_eq!((settings.port, settings.path.as_str(), settings.trusted.len()), (7700, "/in", 1));
        assert_eq!((settings.tolerance, settings.wait), (Duration::from_secs(60), Duration::from_secs(2)));
        for (url, told) in [
            ("https://127.0.0.1/", "proxy"),
            ("http://u:hidden@127.0.0.1/", "user name"),
            ("http://127.0.0.1/?secret=hidden", "whsec_"),
            ("http://127.0.0.1/?secret=whsec_hidden", "base64"),
            ("http://127.0.0.1/?none=hidden", "secret, secret_file"),
            ("http://127.0.0.1/?tolerance=hidden", "length of time"),
            ("http://127.0.0.1/?unsigned=hidden", "true or false"),
        ] {
            let error = Settings::parse(url).err().unwrap().to_string();
            assert!(error.contains(told) && !error.contains("hidden"), "{error}");
        }
    }
}
