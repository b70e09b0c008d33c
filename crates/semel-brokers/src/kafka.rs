//! Apache Kafka.
//!
//! `kafka://[user:password@]host:port[,host:port]/?…` with these parameters:
//!
//! | parameter | meaning |
//! |---|---|
//! | `mode` | `idempotent` (default): at least once. `transactional`: events and the lane's position commit together |
//! | `timeout_ms` | how long one `publish` or `take_lane` may take, 10000 unless given |
//! | `transaction_timeout_ms` | after how long the broker gives up on an open transaction, 60000 unless given |
//! | `lanes` | how many lanes may be taken, 64 unless given: the positions topic gets a partition for each |
//! | `prefix` | what transactional ids and the positions topic start with, `semel` unless given |
//! | `acks` | `all`, and nothing else: fewer would let an acknowledged event be lost |
//! | `tls`, `ca` | `tls=true` encrypts; `ca` is a file of certificates to trust instead of the system's |
//! | `sasl` | `PLAIN` (default where a user is named), `SCRAM-SHA-256` or `SCRAM-SHA-512` |
//!
//! TLS and SCRAM need librdkafka with OpenSSL, which is the cargo feature `kafka-tls`.
//!
//! An event's ordering key is the record's key, partitioned by murmur2 as Kafka's Java clients do, its payload the
//! value, and its attributes are headers by the CloudEvents Kafka binding in binary mode (`ce_id`, `ce_type`, …,
//! `content-type`), with `semel_lane`, `semel_sequence`, `semel_incarnation`, `traceparent` and `tracestate` beside
//! them. More partitions for a topic move keys between partitions, and Kafka orders nothing across those: add none
//! while a consumer relies on order.
//!
//! **What an acknowledgement means (I4).** Every replica in sync has the record, as the topic's `min.insync.replicas`
//! demands; in transactional mode, the transaction that holds it is committed.
//!
//! **How order is kept (I5).** The producer is idempotent and *gapless*: when the broker refuses a record, what was
//! sent after it to that partition is not appended either. Records of one key and topic travel together; before a key
//! changes its topic, all it sent is acknowledged. What takes longer than `timeout_ms` is taken back out of the
//! client's queues, so that nothing is sent behind the relay's back later.

mod context;
mod failure;
mod idempotent;
pub mod pipeline;
mod positions;
mod record;
mod send;
mod settings;
pub mod source;
mod topics;
mod transactional;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel::sink::{Error, Guarantee, Lane, Outgoing, Position, Sink};
use tokio::time::Instant;

pub use self::source::KafkaSource;

use self::context::{Client, Context};
use self::idempotent::Idempotent;
use self::settings::{Mode, Settings};
use self::topics::Topics;
use self::transactional::Transactional;
use crate::wave::{self, unavailable};

/// A Kafka cluster as a sink.
#[derive(Debug)]
pub struct Kafka {
    timeout: Duration,
    topics: Topics,
    publisher: Publisher,
    closed: AtomicBool,
}

#[derive(Debug)]
enum Publisher {
    Idempotent(Idempotent),
    Transactional(Box<Transactional>),
}

impl Kafka {
    /// Connects by URL. `installation` names the database whose events these are, the same on every start: it is part
    /// of the transactional ids, so that the relays of one installation fence each other and nobody else's.
    ///
    /// Wrong credentials, and a transaction timeout above what the broker allows, are refused here; a broker that
    /// cannot be reached is [`crate::Error::Unavailable`].
    pub async fn connect(url: &str, installation: &str) -> Result<Kafka, crate::Error> {
        let settings = Settings::parse(url)?;
        let context = Context::new(settings.bootstrap());
        let client = Client::new(&settings, &context)?;
        let brokers = client.brokers(settings.timeout()).await?;
        let publisher = match settings.mode() {
            Mode::Idempotent => Publisher::Idempotent(Idempotent::new(settings.clone(), context)),
            Mode::Transactional => {
                client.require_transaction_timeout(&settings, &brokers).await?;
                let lanes = Transactional::new(settings.clone(), context, client.clone(), installation)?;
                Publisher::Transactional(Box::new(lanes))
            }
        };
        Ok(Kafka {
            timeout: settings.timeout(),
            topics: Topics::new(client),
            publisher,
            closed: AtomicBool::new(false),
        })
    }
}

impl Sink for Kafka {
    fn guarantee(&self) -> Guarantee {
        match &self.publisher {
            Publisher::Idempotent(_) => Guarantee::AtLeastOnce,
            Publisher::Transactional(_) => Guarantee::Transactional,
        }
    }

    /// In transactional mode this fences whoever published the lane before, at the broker: their open transaction is
    /// aborted, and their next call is [`Error::Fenced`].
    async fn take_lane(&self, lane: Lane) -> Result<Option<Position>, Error> {
        match &self.publisher {
            Publisher::Idempotent(_) => Ok(None),
            Publisher::Transactional(_) if self.is_closed() => Err(unavailable("the sink is closed")),
            Publisher::Transactional(transactional) => transactional.take_lane(lane, self.deadline()).await,
        }
    }

    /// In transactional mode a batch that holds a refused event is not published: that event is [`Error::Refused`], all
    /// others are [`Error::Behind`], and the lane stays. After [`Error::Unavailable`] or [`Error::Fenced`] the lane is
    /// given up and has to be taken again: only the position that then comes back tells whether the batch was
    /// committed.
    async fn publish(&self, lane: Lane, batch: &[Outgoing], position: &Position) -> Vec<Result<(), Error>> {
        if self.is_closed() {
            return wave::fail(batch, crate::Error::Unavailable("the sink is closed".to_owned())).await;
        }
        let deadline = self.deadline();
        let admitted = self.topics.admit(batch, deadline).await;
        let results = match &self.publisher {
            Publisher::Idempotent(idempotent) => idempotent.publish(batch, admitted, deadline).await,
            Publisher::Transactional(transactional) => {
                transactional.publish(lane, batch, admitted, position, deadline).await
            }
        };
        // What went wrong may be because a topic is no longer what it was.
        if results.iter().any(Result::is_err) {
            self.topics.forget();
        }
        results
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        match &self.publisher {
            Publisher::Idempotent(idempotent) => idempotent.close(self.timeout).await,
            Publisher::Transactional(transactional) => transactional.close(),
        }
    }
}

impl Kafka {
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }
}
