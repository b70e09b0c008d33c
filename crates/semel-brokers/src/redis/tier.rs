//! Ids that consumers have seen, in Redis, for all processes that share it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use ::redis::{Pipeline, Value};
use semel::Consumer;
use semel::tier::{Answer, Tier};

use super::{Server, described};
use crate::Error;
use crate::session::within;
use crate::url::SinkUrl;

/// How long a new connection may take. Nobody waits for it, except at the start.
const CONNECTS_WITHIN: Duration = Duration::from_secs(2);

/// For how long nobody asks after trouble: a server that is gone costs one timeout per pause, not one per batch.
const PAUSE: Duration = Duration::from_secs(1);

/// How often trouble is logged at most.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// A [`Tier`] in Redis: `redis://user:password@host:6379/0?ttl=1h`.
///
/// | parameter | meaning |
/// |---|---|
/// | `ttl` | for how long an id is remembered, 1h unless given |
/// | `prefix` | what its keys begin with, `semel:seen` unless given |
/// | `answer_ms` | how long an answer is waited for, 50 unless given |
/// | `tls_ca`, `timeout_ms` | as for the sink |
///
/// It may only say *maybe*: the store decides (I6). Redis may be flushed, may evict, may lose what it acknowledged, may
/// hold keys that somebody else wrote, and may be gone: then it says `false` to everything, or `true` for no reason,
/// and every message is applied once all the same. Each id is one key, so that `maxmemory` with an eviction policy
/// bounds it.
pub struct RedisTier {
    shared: Arc<Shared>,
}

struct Shared {
    server: Server,
    prefix: String,
    ttl_s: u64,
    answers_within: Duration,
    line: Mutex<Line>,
    troubles: AtomicU64,
}

struct Line {
    connection: Option<MultiplexedConnection>,
    opening: bool,
    quiet_until: Option<Instant>,
    logged: Option<Instant>,
}

impl fmt::Debug for RedisTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisTier({}, prefix {:?})", self.shared.server.address, self.shared.prefix)
    }
}

impl RedisTier {
    /// Connects. A server that cannot be reached is no error: it is tried again, and until then nothing is *maybe*.
    pub async fn connect(url: &str) -> Result<RedisTier, Error> {
        let mut url = SinkUrl::parse(url)?;
        let ttl_s = match url.duration("ttl")?.unwrap_or(Duration::from_secs(3600)).as_secs() {
            seconds @ 1..=31_622_400 => seconds,
            _ => return Err(Error::Url("`ttl` must be between 1s and 366days".to_owned())),
        };
        let prefix = url.text("prefix").unwrap_or_else(|| "semel:seen".to_owned());
        let answers_within = match url.number("answer_ms")?.unwrap_or(50) {
            milliseconds @ 1..=10_000 => Duration::from_millis(milliseconds),
            other => return Err(Error::Url(format!("`answer_ms={other}` must be between 1 and 10000"))),
        };
        let mut server = Server::read(&mut url, None, 0)?;
        server.timeout = server.timeout.min(CONNECTS_WITHIN);
        let line = Line { connection: None, opening: false, quiet_until: None, logged: None };
        let shared =
            Shared { server, prefix, ttl_s, answers_within, line: Mutex::new(line), troubles: AtomicU64::new(0) };
        shared.open().await;
        Ok(RedisTier { shared: Arc::new(shared) })
    }

    /// How often it could not answer, or not in time.
    pub fn troubles(&self) -> u64 {
        self.shared.troubles.load(Ordering::Relaxed)
    }

    fn keys(&self, consumer: &Consumer, ids: &[&str]) -> Vec<String> {
        let (prefix, name, generation) = (&self.shared.prefix, consumer.name(), consumer.generation());
        // The length keeps one consumer's name and id from reading as another's.
        ids.iter().map(|id| format!("{prefix}:{generation}:{}:{name}:{id}", name.len())).collect()
    }

    /// Whether each of these keys is there; `None` in trouble.
    async fn there(&self, keys: &[String]) -> Option<Vec<bool>> {
        let mut ask = Pipeline::with_capacity(1);
        ask.cmd("MGET").arg(keys);
        match self.shared.ask(&ask).await?.pop()? {
            Value::Array(values) if values.len() == keys.len() => {
                Some(values.iter().map(|value| !matches!(value, Value::Nil)).collect())
            }
            _ => None,
        }
    }
}

impl Tier for RedisTier {
    fn maybe_seen<'a>(&'a self, consumer: &'a Consumer, ids: &'a [&'a str]) -> Answer<'a, Vec<bool>> {
        Box::pin(async move {
            if ids.is_empty() {
                return Vec::new();
            }
            let there = self.there(&self.keys(consumer, ids)).await;
            there.unwrap_or_else(|| vec![false; ids.len()])
        })
    }

    fn note<'a>(&'a self, consumer: &'a Consumer, ids: &'a [&'a str]) -> Answer<'a, ()> {
        Box::pin(async move {
            if ids.is_empty() {
                return;
            }
            let mut note = Pipeline::with_capacity(ids.len());
            for key in self.keys(consumer, ids) {
                note.cmd("SET").arg(key).arg(1).arg("EX").arg(self.shared.ttl_s);
            }
            self.shared.ask(&note).await;
        })
    }
}

impl Shared {
    /// The answers, if they come in time.
    async fn ask(self: &Arc<Self>, orders: &Pipeline) -> Option<Vec<Value>> {
        let mut connection = self.connection()?;
        let asking = connection.send_packed_commands(orders, 0, orders.len());
        let why = match tokio::time::timeout(self.answers_within, asking).await {
            Ok(Ok(answers)) => match answers.iter().find_map(refusal) {
                None => return Some(answers),
                Some(why) => why,
            },
            Ok(Err(error)) => described(&error),
            Err(_) => format!("no answer within {} ms", self.answers_within.as_millis()),
        };
        self.trouble(&why);
        None
    }

    /// The connection there is. If there is none, one is opened in the background, unless there was trouble just now.
    fn connection(self: &Arc<Self>) -> Option<MultiplexedConnection> {
        let mut line = self.line();
        let quiet = line.quiet_until.is_some_and(|until| Instant::now() < until);
        if line.connection.is_none() && !line.opening && !quiet {
            line.opening = true;
            let shared = Arc::clone(self);
            tokio::spawn(async move { shared.open().await });
        }
        line.connection.clone().filter(|_| !quiet)
    }

    async fn open(&self) {
        let opened = within(self.server.timeout, self.server.open_for(self.answers_within.max(PAUSE))).await;
        match opened {
            Ok(connection) => {
                let mut line = self.line();
                (line.connection, line.quiet_until, line.opening) = (Some(connection), None, false);
            }
            Err(error) => {
                self.trouble(&error.to_string());
                self.line().opening = false;
            }
        }
    }

    fn trouble(&self, why: &str) {
        let troubles = self.troubles.fetch_add(1, Ordering::Relaxed) + 1;
        let mut line = self.line();
        let now = Instant::now();
        (line.connection, line.quiet_until) = (None, Some(now + PAUSE));
        if line.logged.is_none_or(|logged| now.duration_since(logged) >= LOG_EVERY) {
            line.logged = Some(now);
            let address = &self.server.address;
            tracing::warn!(address, why, troubles, "the tier in Redis cannot be asked; the store is asked instead");
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(answer: &Value) -> Option<String> {
    let Value::ServerError(error) = answer else { return None };
    Some(format!("{} {}", error.code(), error.details().unwrap_or_default()))
}
