//! Reading streams.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::Pipeline;
use futures_util::future::BoxFuture;
use semel::Source;
use semel::source::{self, Received, Redelivery};
use tokio::sync::Mutex;

use super::member::{Member, Reading};
use super::{Connection, Server, described};
use crate::session::{Session, within};
use crate::url::SinkUrl;
use crate::{Error, Subscription};

/// The longest name of a stream, in bytes: its name and the id of an entry make the id of a message that has none.
const MAX_STREAM_BYTES: usize = 200;

/// The most streams of one source (I12).
const MAX_STREAMS: usize = 100;

/// Streams that are read: `redis://user:password@host:6379/0?stream=NAME`.
///
/// | parameter | meaning |
/// |---|---|
/// | `stream` | which one; several may be given |
/// | `claim_after` | after how long what a reader neither acknowledged nor spoke of goes to another, 30s unless given |
/// | `redelivery` | for how long an entry may come again, such as `7d`; without it there is no end to it |
/// | `tls_ca`, `timeout_ms` | as for the sink |
///
/// All who read under one consumer and generation are a consumer group and share the entries. A new group, and so a new
/// generation, begins with the oldest entry that the stream has. What a reader held when it crashed comes to another
/// after `claim_after`; what it gave back, within a second. Neither waits for the order of its key: order holds among
/// first deliveries.
///
/// Nobody keeps entries for a reader that is behind: what `maxlen` of the sink, or anybody else, trims is gone. Redis
/// 6.2 and later; Redis Cluster is not supported.
///
/// Entries that Semel's sink did not write can be applied if they have a field `payload`; without a field `id` they
/// are recognised by `STREAM:ENTRY`.
pub struct RedisSource {
    member: Arc<Member>,
    prolong_every: Duration,
    redelivery: Redelivery,
    /// For everything except reading, which waits for entries and lets no other order pass.
    session: Session<Arc<Connection>>,
    intake: Mutex<Intake>,
    closed: AtomicBool,
}

/// What acknowledges an entry.
#[derive(Debug)]
pub struct Receipt {
    pub(super) stream: usize,
    pub(super) entry: String,
}

/// What a read brought, and where to read on.
type Fetched = (Reading, Result<Vec<Received<Receipt>>, Error>);

struct Intake {
    /// What came and was not handed out yet.
    ready: VecDeque<Received<Receipt>>,
    state: State,
}

enum State {
    Idle(Reading),
    /// A read that is under way. It stays here when whoever waited for it goes away: the entries that it brings are
    /// this member's already.
    Fetching(BoxFuture<'static, Fetched>),
    Ended,
}

impl fmt::Debug for RedisSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisSource({}, streams {:?})", self.member.server.address, self.member.streams)
    }
}

impl RedisSource {
    /// Connects, and makes the group if there is none.
    pub async fn open(url: &str, subscription: &Subscription) -> Result<RedisSource, Error> {
        let (streams, rest) = take_streams(url)?;
        let mut url = SinkUrl::parse(&rest)?;
        // It is taken already, and listed among those there are.
        url.text("stream");
        let claim_after = url.duration("claim_after")?.unwrap_or(Duration::from_secs(30));
        if !(Duration::from_millis(100)..=Duration::from_secs(24 * 3600)).contains(&claim_after) {
            return Err(Error::Url("`claim_after` must be between 100ms and 1day".to_owned()));
        }
        let redelivery = match url.duration("redelivery")? {
            Some(longest) => {
                let because = format!("`redelivery={}` of the source's URL", humantime::format_duration(longest));
                Redelivery::Within { longest, because }
            }
            None => Redelivery::Unlimited {
                because: "Redis delivers an entry of a stream until it is acknowledged, however old it is; \
                          `redelivery=` in the source's URL says for how long entries are kept at most"
                    .to_owned(),
            },
        };
        let server = Server::read(&mut url, None, 0)?;
        let timeout = server.timeout;
        let member = Member::new(server, streams, subscription.group(), claim_after);
        let (connection, reading) = within(timeout, async {
            let connection = member.server.open().await?;
            Ok((connection, Reading::new(Some(member.join().await?), member.streams.len())))
        })
        .await?;
        Ok(RedisSource {
            member: Arc::new(member),
            prolong_every: claim_after / 3,
            redelivery,
            session: Session::new(connection, timeout),
            intake: Mutex::new(Intake { ready: VecDeque::new(), state: State::Idle(reading) }),
            closed: AtomicBool::new(false),
        })
    }

    /// Sends orders, of which each may be repeated: after the loss of a connection once more, over a new one.
    async fn order(&self, orders: Pipeline) -> Result<(), source::Error> {
        if orders.is_empty() {
            return Ok(());
        }
        let mut again = true;
        loop {
            let connection = self.session.get(|_| true, self.member.server.open()).await;
            let connection = connection.map_err(|error| unavailable(error.to_string()))?;
            let Err(error) = orders.exec_async(&mut connection.0.clone()).await else { return Ok(()) };
            self.session.discard(|held| Arc::ptr_eq(held, &connection)).await;
            if !std::mem::take(&mut again) || !error.is_connection_dropped() {
                return Err(unavailable(format!("Redis at {}: {}", self.member.server.address, described(&error))));
            }
        }
    }
}

impl Source for RedisSource {
    type Receipt = Receipt;

    async fn receive(&self, most: usize) -> Result<Vec<Received<Receipt>>, source::Error> {
        let most = most.max(1);
        let mut intake = self.intake.lock().await;
        while intake.ready.is_empty() {
            if self.closed.load(Ordering::Relaxed) {
                return Err(unavailable("the source is closed".to_owned()));
            }
            let Intake { ready, state } = &mut *intake;
            let (reading, fetched) = state.fetching(&self.member, most).await;
            *state = State::Idle(reading);
            // However it fails, somebody may mend it meanwhile.
            ready.extend(fetched.map_err(|error| unavailable(error.to_string()))?);
        }
        let count = intake.ready.len().min(most);
        Ok(intake.ready.drain(..count).collect())
    }

    async fn acknowledge(&self, receipts: &[&Receipt]) -> Result<(), source::Error> {
        self.order(self.member.acknowledge(receipts)).await
    }

    async fn give_back(&self, receipts: &[&Receipt]) -> Result<(), source::Error> {
        self.order(self.member.give_back(receipts)).await
    }

    async fn prolong(&self, receipts: &[&Receipt]) -> Result<(), source::Error> {
        self.order(self.member.prolong(receipts)).await
    }

    fn prolong_every(&self) -> Option<Duration> {
        Some(self.prolong_every)
    }

    async fn redelivery(&self) -> Result<Redelivery, source::Error> {
        Ok(self.redelivery.clone())
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        if let Ok(mut intake) = self.intake.try_lock() {
            // The connection that may be reading goes with it.
            *intake = Intake { ready: VecDeque::new(), state: State::Ended };
        }
        let connection = self.session.close().await;
        let Some(connection) = connection else { return };
        let (leave, mut connection) = (self.member.leave(), connection.0.clone());
        let leaving = leave.exec_async(&mut connection);
        match tokio::time::timeout(self.member.server.timeout, leaving).await {
            Ok(Ok(())) => {}
            // What it holds comes to others after `claim_after`.
            Ok(Err(error)) => tracing::debug!(error = described(&error), "the group was not left in good order"),
            Err(_) => tracing::debug!("the group was not left in good order: no answer"),
        }
    }
}

impl State {
    /// The read that is under way, else a new one.
    async fn fetching(&mut self, member: &Arc<Member>, most: usize) -> Fetched {
        if let State::Idle(_) | State::Ended = self {
            let streams = member.streams.len();
            let mut reading = match std::mem::replace(self, State::Ended) {
                State::Idle(reading) => reading,
                _ => Reading::new(None, streams),
            };
            let member = Arc::clone(member);
            *self = State::Fetching(Box::pin(async move {
                let fetched = member.fetch(&mut reading, most).await;
                // After a failure the connection is made anew, and with it the group, which may be gone as well.
                let reading = if fetched.is_ok() { reading } else { Reading::new(None, streams) };
                (reading, fetched)
            }));
        }
        match self {
            State::Fetching(fetching) => fetching.await,
            State::Idle(_) | State::Ended => (Reading::new(None, member.streams.len()), Ok(Vec::new())),
        }
    }
}

/// The streams that a URL names, and the URL without them.
fn take_streams(text: &str) -> Result<(Vec<String>, String), Error> {
    let mut url = ::url::Url::parse(text).map_err(|error| Error::Url(error.to_string()))?;
    let mut streams: Vec<String> = Vec::new();
    let mut others: Vec<(String, String)> = Vec::new();
    for (name, value) in url.query_pairs() {
        if name == "stream" {
            streams.push(value.into_owned());
        } else {
            others.push((name.into_owned(), value.into_owned()));
        }
    }
    if streams.is_empty() || streams.iter().any(String::is_empty) {
        return Err(Error::Url("it names no stream: `stream=NAME`".to_owned()));
    }
    if let Some(long) = streams.iter().find(|name| name.len() > MAX_STREAM_BYTES) {
        return Err(Error::Url(format!("`stream={long}` is longer than {MAX_STREAM_BYTES} bytes")));
    }
    if streams.len() > MAX_STREAMS {
        return Err(Error::Url(format!("it names more than {MAX_STREAMS} streams")));
    }
    if let Some(twice) = (1..streams.len()).find(|place| streams[..*place].contains(&streams[*place])) {
        return Err(Error::Url(format!("`stream={}` is given twice", streams[twice])));
    }
    url.set_query(None);
    if !others.is_empty() {
        url.query_pairs_mut().extend_pairs(others);
    }
    Ok((streams, url.into()))
}

fn unavailable(reason: String) -> source::Error {
    source::Error::Unavailable(reason.into())
}
