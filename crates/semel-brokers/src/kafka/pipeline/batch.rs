//! Records that are transformed and committed together.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message as Record, OwnedMessage};
use rdkafka::{Offset, TopicPartitionList};
use semel::source::Message;

use super::transform::Out;
use crate::kafka::context::Context;
use crate::kafka::source::received;

/// Counts how often partitions went, so that nothing of theirs is committed.
pub(super) struct Membership {
    pub(super) context: Context,
    revocations: AtomicU64,
}

impl Membership {
    pub(super) fn new(context: Context) -> Membership {
        Membership { context, revocations: AtomicU64::new(0) }
    }

    pub(super) fn revocations(&self) -> u64 {
        self.revocations.load(Ordering::Acquire)
    }
}

impl ClientContext for Membership {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.context.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.context.error(error, reason);
    }
}

impl ConsumerContext for Membership {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if !matches!(rebalance, Rebalance::Assign(_)) {
            self.revocations.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// What was read, in order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) items: Vec<Item>,
    /// After how many revocations it was read.
    pub(super) revocations: u64,
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) message: Message,
    partition: i32,
    pub(super) offset: i64,
    topic: String,
    /// The record as it was, for those who set it aside.
    record: Option<OwnedMessage>,
}

impl Item {
    pub(super) fn new(record: &BorrowedMessage<'_>, cluster: &str, keep_record: bool) -> Item {
        let (topic, partition, offset) = (record.topic().to_owned(), record.partition(), record.offset());
        let message = received(record, cluster, offset, ()).message;
        Item { message, partition, offset, topic, record: keep_record.then(|| record.detach()) }
    }

    /// Where it was, as people write it.
    pub(super) fn place(&self) -> String {
        format!("{}/{}/{}", self.topic, self.partition, self.offset)
    }

    /// The record for a topic of dead letters: as it was, with the cause beside it.
    pub(super) fn dead_letter(&self, topic: &str, cause: &str, attempts: u32) -> Option<Out> {
        let record = self.record.as_ref()?;
        let (key, payload) = (record.key(), record.payload());
        let mut out = Out::new(topic, key.unwrap_or_default().to_vec(), payload.unwrap_or_default().to_vec());
        if key.is_none() {
            out = out.without_key();
        }
        if payload.is_none() {
            out = out.without_payload();
        }
        for header in record.headers().into_iter().flat_map(Headers::iter) {
            out = out.with_header(header.key, header.value.unwrap_or_default());
        }
        let out = out.with_header("semel_dead_place", self.place());
        Some(out.with_header("semel_dead_cause", cause).with_header("semel_dead_attempts", attempts.to_string()))
    }
}

impl Batch {
    /// Drops what was read before partitions went, if they did.
    pub(super) fn keep_current(&mut self, revocations: u64) {
        if self.revocations != revocations {
            self.items.clear();
            self.revocations = revocations;
        }
    }

    /// Where the group reads on if this is committed: behind the last record of each partition.
    pub(super) fn ends(&self) -> TopicPartitionList {
        let mut ends: HashMap<(&str, i32), i64> = HashMap::new();
        for item in &self.items {
            ends.insert((&item.topic, item.partition), item.offset + 1);
        }
        list(ends)
    }

    /// Where it has to be read again if this is not committed: at the first record of each partition.
    pub(super) fn starts(&self) -> TopicPartitionList {
        let mut starts: HashMap<(&str, i32), i64> = HashMap::new();
        for item in &self.items {
            starts.entry((&item.topic, item.partition)).or_insert(item.offset);
        }
        list(starts)
    }
}

fn list(offsets: HashMap<(&str, i32), i64>) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(offsets.len());
    for ((topic, partition), offset) in offsets {
        // Only an offset that Kafka cannot have is refused here.
        let _ = list.add_partition_offset(topic, partition, Offset::Offset(offset));
    }
    list
}
