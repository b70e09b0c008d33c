//! Redis Streams: `redis://user:password@host:6379/0`, or `rediss://` for TLS.
//!
//! Each event is an `XADD` to the stream that its topic names. Redis 7 cannot recognise a repeated id, so delivery is
//! at least once: readers drop what they have seen by the field `id`.
//!
//! | parameter | meaning |
//! |---|---|
//! | `maxlen` | keep about this many entries per stream (`MAXLEN ~`); unlimited unless given |
//! | `wait_replicas` | count as published only what this many replicas have (`WAIT`); 0 unless given |
//! | `tls_ca` | a PEM file with the authorities to trust instead of the system's |
//! | `timeout_ms` | how long the server may take to answer, 10000 unless given |
//!
//! An acknowledged event survives a crash of the server as far as its `appendfsync` setting goes: `always` keeps all.
//! Redis Cluster is not supported.
//!
//! Fields, in order: `specversion`, `id`, `source`, `type`, `time`, `key` (the ordering key), `content_type`, `lane`,
//! `sequence`, `incarnation`, `traceparent` and `tracestate` where there is one, the event's own headers as
//! `header:NAME`, and `payload`.

mod entry;
mod member;
mod source;
mod tier;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, ErrorKind, Pipeline, RedisError, TlsCertificates, Value};
use semel::Sink;
use semel::sink::{self, Guarantee, Lane, Outgoing, Position};

pub use source::{Receipt, RedisSource};
pub use tier::RedisTier;

use crate::session::{Session, within};
use crate::url::SinkUrl;
use crate::wave::{self, refused, unavailable};
use crate::{Error, cloud_event, tls};

/// The most events of one batch that are unacknowledged at a time.
const WAVE: usize = 512;

/// A Redis server whose streams take events.
#[derive(Debug)]
pub struct Redis {
    server: Server,
    session: Session<Arc<Connection>>,
}

struct Server {
    client: Client,
    address: String,
    maxlen: Option<u64>,
    wait_replicas: u64,
    timeout: Duration,
}

struct Connection(MultiplexedConnection);

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "redis://{}", self.address)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Redis {
    /// Connects and asks the server whether it lets us in.
    pub async fn connect(url: &str) -> Result<Redis, Error> {
        let mut url = SinkUrl::parse(url)?;
        let maxlen = url.number("maxlen")?;
        let wait_replicas = url.number("wait_replicas")?.unwrap_or(0);
        let server = Server::read(&mut url, maxlen, wait_replicas)?;
        let timeout = server.timeout;
        let connection = within(timeout, server.open()).await?;
        Ok(Redis { session: Session::new(connection, timeout), server })
    }

    async fn send(&self, connection: &Arc<Connection>, wave: Vec<&Outgoing>) -> Vec<Result<(), sink::Error>> {
        let mut pipeline = Pipeline::with_capacity(wave.len() + 1);
        for outgoing in &wave {
            self.server.append(&mut pipeline, outgoing);
        }
        if self.server.wait_replicas > 0 {
            // Half the time we wait ourselves: the answer has to arrive before we give up on it.
            let milliseconds = (self.server.timeout.as_millis() / 2).max(1) as u64;
            pipeline.cmd("WAIT").arg(self.server.wait_replicas).arg(milliseconds);
        }
        let mut replies = match connection.0.clone().send_packed_commands(&pipeline, 0, pipeline.len()).await {
            Ok(replies) => replies,
            Err(error) => {
                // What was sent may or may not be in the streams. The connection goes, so that nothing queued in it
                // follows later; the relay sends these events again.
                self.session.discard(|held| Arc::ptr_eq(held, connection)).await;
                let reason = format!("Redis at {}: {}", self.server.address, described(&error));
                return wave.iter().map(|_| Err(unavailable(&reason))).collect();
            }
        };
        let replicated = match self.server.wait_replicas {
            0 => Ok(()),
            wanted => match replies.pop() {
                Some(Value::Int(have)) if have.unsigned_abs() >= wanted => Ok(()),
                _ => Err(format!("fewer than {wanted} replicas have the event (`wait_replicas={wanted}`)")),
            },
        };
        let verdict = |reply| answer(reply).and_then(|()| replicated.clone().map_err(unavailable));
        let verdicts: Vec<_> = replies.into_iter().map(verdict).collect();
        if verdicts.iter().any(|verdict| matches!(verdict, Err(sink::Error::Unavailable(_)))) {
            // A server that has become a replica goes on answering; its address may lead to another one by now.
            self.session.discard(|held| Arc::ptr_eq(held, connection)).await;
        }
        verdicts
    }
}

impl Sink for Redis {
    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    async fn take_lane(&self, _lane: Lane) -> Result<Option<Position>, sink::Error> {
        Ok(None)
    }

    async fn publish(&self, _: Lane, batch: &[Outgoing], _: &Position) -> Vec<Result<(), sink::Error>> {
        match self.session.get(|_| true, self.server.open()).await {
            Ok(connection) => {
                let connection = &connection;
                wave::publish(batch, WAVE, |wave| self.send(connection, wave)).await
            }
            Err(error) => wave::fail(batch, error).await,
        }
    }

    async fn close(&self) {
        // Every acknowledged event is in its stream already.
        self.session.close().await;
    }
}

impl Server {
    /// What sinks and sources have in common. It takes the last parameters of the URL, and refuses those left.
    fn read(url: &mut SinkUrl, maxlen: Option<u64>, wait_replicas: u64) -> Result<Server, Error> {
        let root_cert = match url.text("tls_ca") {
            Some(path) => Some(std::fs::read(&path).map_err(|error| Error::Url(format!("`tls_ca={path}`: {error}")))?),
            None => None,
        };
        let timeout = url.timeout()?;
        url.finish()?;
        tls::choose_cryptography();
        let unusable = |error: RedisError| Error::Url(described(&error));
        let client = match root_cert {
            Some(pem) if url.scheme() == "rediss" => {
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem) };
                Client::build_with_tls(url.with_secrets(), certificates).map_err(unusable)?
            }
            Some(_) => return Err(Error::Url("`tls_ca` needs a rediss: URL".to_owned())),
            None => Client::open(url.with_secrets()).map_err(unusable)?,
        };
        Ok(Server { client, address: url.authority(6379), maxlen, wait_replicas, timeout })
    }

    async fn open(&self) -> Result<Arc<Connection>, Error> {
        Ok(Arc::new(Connection(self.open_for(self.timeout).await?)))
    }

    /// A connection whose every order is answered within `longest`, or it is lost.
    async fn open_for(&self, longest: Duration) -> Result<MultiplexedConnection, Error> {
        let settings =
            AsyncConnectionConfig::new().set_connection_timeout(Some(self.timeout)).set_response_timeout(Some(longest));
        let failed = |error: RedisError| self.failed(&error);
        let mut connection =
            self.client.get_multiplexed_async_connection_with_config(&settings).await.map_err(failed)?;
        ::redis::cmd("PING").exec_async(&mut connection).await.map_err(failed)?;
        Ok(connection)
    }

    fn failed(&self, error: &RedisError) -> Error {
        let refuses = matches!(error.kind(), ErrorKind::AuthenticationFailed)
            || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
        if refuses {
            Error::Refused(format!("Redis at {} refuses the user name and password of the URL", self.address))
        } else {
            Error::Unavailable(format!("Redis at {}: {}", self.address, described(error)))
        }
    }

    fn append(&self, pipeline: &mut Pipeline, outgoing: &Outgoing) {
        let event = &outgoing.event;
        let xadd = pipeline.cmd("XADD").arg(&event.topic);
        if let Some(maxlen) = self.maxlen {
            xadd.arg("MAXLEN").arg("~").arg(maxlen);
        }
        xadd.arg("*");
        for (name, value) in cloud_event::attributes(outgoing) {
            xadd.arg(if name == "partitionkey" { "key" } else { name }).arg(value.as_ref());
        }
        xadd.arg("content_type").arg(&event.content_type);
        for (name, value) in cloud_event::coordinates(outgoing) {
            xadd.arg(name.trim_start_matches("semel-")).arg(value.as_ref());
        }
        for (name, value) in cloud_event::trace_context(outgoing) {
            xadd.arg(name).arg(value);
        }
        for (name, value) in &event.headers {
            xadd.arg(format!("header:{name}")).arg(value);
        }
        xadd.arg("payload").arg(event.payload.as_ref());
    }
}

/// Tells whose fault a refusal is: the event's, if its topic is no stream or not ours to write, or its size is out of
/// bounds; else the server's (out of memory, read-only, loading).
fn answer(reply: Value) -> Result<(), sink::Error> {
    let Value::ServerError(error) = reply else { return Ok(()) };
    let reason = format!("{} {}", error.code(), error.details().unwrap_or_default());
    match error.code() {
        "WRONGTYPE" | "NOPERM" | "ERR" => Err(refused(reason)),
        _ => Err(unavailable(reason)),
    }
}

/// The error in words that hold nothing of the URL.
fn described(error: &RedisError) -> String {
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    let code = error.code().map(|code| format!("{code} ")).unwrap_or_default();
    let io = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{code}{}{detail}{io}", error.category())
}
