//! Who publishes what to whom.

use std::fmt;
use std::time::Duration;

/// Where events go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SinkKind {
    /// Acknowledges at once.
    Null,
    /// NATS JetStream with the server's defaults.
    Nats,
    /// NATS JetStream that syncs before it acknowledges.
    NatsSynced,
    /// Kafka by an idempotent producer.
    Kafka,
    /// Kafka by transactions that are committed this often.
    KafkaTransactional(Duration),
}

impl fmt::Display for SinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SinkKind::Null => f.write_str("null"),
            SinkKind::Nats => f.write_str("nats"),
            SinkKind::NatsSynced => f.write_str("nats synced"),
            SinkKind::Kafka => f.write_str("kafka"),
            SinkKind::KafkaTransactional(interval) => write!(f, "kafka transactional {} ms", interval.as_millis()),
        }
    }
}

/// Who publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Publisher {
    /// Semel's relay.
    Semel,
    /// Semel's sink from memory, without a store.
    SinkAlone,
    /// The client library from memory, as fast as it takes messages.
    Bare,
    /// The client library from memory, with at most one unacknowledged message per key.
    BareOnePerKey,
    /// `FOR UPDATE SKIP LOCKED` and UPDATE, in this many loops.
    Polling(u16),
}

impl fmt::Display for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Publisher::Semel => f.write_str("semel"),
            Publisher::SinkAlone => f.write_str("semel's sink alone"),
            Publisher::Bare => f.write_str("bare client"),
            Publisher::BareOnePerKey => f.write_str("bare client, one per key"),
            Publisher::Polling(1) => f.write_str("skip locked"),
            Publisher::Polling(loops) => write!(f, "skip locked, {loops} loops"),
        }
    }
}

/// One thing to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) publisher: Publisher,
    pub(crate) sink: SinkKind,
    /// Whether another session holds a transaction open all the while, and with it the database's `xmin`.
    pub(crate) held: bool,
}

impl Case {
    pub(crate) const fn new(publisher: Publisher, sink: SinkKind) -> Case {
        Case { publisher, sink, held: false }
    }

    pub(crate) const fn held(mut self) -> Case {
        self.held = true;
        self
    }

    /// Everything there is to drain, with these pauses between Kafka's commits.
    pub(crate) fn all(commits: &[Duration]) -> Vec<Case> {
        use Publisher::{Bare, BareOnePerKey, Polling, Semel, SinkAlone};
        use SinkKind::{Kafka, KafkaTransactional, Nats, NatsSynced, Null};
        let mut cases = vec![
            Case::new(Semel, Null),
            Case::new(Semel, Null).held(),
            Case::new(Polling(1), Null),
            Case::new(Polling(1), Null).held(),
            Case::new(Polling(4), Null),
            Case::new(Semel, Nats),
            Case::new(SinkAlone, Nats),
            Case::new(Bare, Nats),
            Case::new(BareOnePerKey, Nats),
            Case::new(Polling(1), Nats),
            Case::new(Polling(4), Nats),
            Case::new(Semel, NatsSynced),
            Case::new(Bare, NatsSynced),
            Case::new(BareOnePerKey, NatsSynced),
            Case::new(Polling(1), NatsSynced),
            Case::new(Semel, Kafka),
            Case::new(SinkAlone, Kafka),
            Case::new(Bare, Kafka),
            Case::new(Polling(1), Kafka),
            Case::new(Polling(4), Kafka),
        ];
        for commit in commits {
            cases.push(Case::new(Semel, KafkaTransactional(*commit)));
            cases.push(Case::new(Bare, KafkaTransactional(*commit)));
        }
        cases
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { publisher, sink, held } = self;
        write!(f, "{publisher} to {sink}{}", if *held { ", xmin held" } else { "" })
    }
}
