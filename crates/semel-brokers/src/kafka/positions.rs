//! How far each lane has been published, kept in Kafka itself.
//!
//! Positions are records in a compacted topic of their own, `<prefix>.<installation>.positions`, not offsets of a
//! consumer group: Kafka forgets the offsets of a group without members after `offsets.retention.minutes` (a week by
//! default), and a lane that was quiet for longer would start over and publish twice. A compacted topic keeps the last
//! record of each key for good.
//!
//! Each lane has a partition of its own. A reader of committed records sees nothing past the first open transaction of
//! a partition; if lanes shared one, a lane could be read only while no other was publishing. So, once taking the lane
//! has ended its own last transaction, the partition's end is settled, and the last record there is the position.

use std::time::Duration;

use rdkafka::admin::{AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use semel::sink::{Error, Lane, Position};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::context::{Client, Context, blocking};
use super::failure::explain;
use super::settings::Settings;
use crate::wave::{refused, unavailable};

/// How many offsets before the end are read at first. Aborted transactions leave gaps, so it may take more.
const FIRST_SPAN: i64 = 64;
const POLL: Duration = Duration::from_millis(100);
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The first byte of every record: the version of what follows.
const VERSION: u8 = 1;

/// The topic of positions.
#[derive(Debug)]
pub(super) struct Positions {
    settings: Settings,
    client: Client,
    topic: String,
    /// Whether this process has seen to the topic's existence.
    made: OnceCell<()>,
}

impl Positions {
    pub(super) fn new(settings: Settings, client: Client, installation: &str) -> Positions {
        let topic = format!("{}.{installation}.positions", settings.prefix());
        Positions { settings, client, topic, made: OnceCell::new() }
    }

    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    /// What is written for a position.
    pub(super) fn encode(position: &Position) -> Vec<u8> {
        [&[VERSION], position.0.as_slice()].concat()
    }

    /// Creates the topic if it is missing, and checks that the lane has its partition.
    pub(super) async fn require(&self, lane: Lane, deadline: Instant) -> Result<(), Error> {
        // Before anybody asks for it: where brokers create topics that are asked for, it would come with one partition
        // and be forgotten after a while. Somebody who may not create topics finds out below whether it is there.
        self.made
            .get_or_init(|| async {
                let left = deadline.saturating_duration_since(Instant::now());
                let _ = self.create(left).await;
            })
            .await;
        let mut created = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.client.partitions(&self.topic, left).await {
                Ok(Ok(partitions)) if usize::from(lane.0) < partitions => return Ok(()),
                Ok(Ok(partitions)) => {
                    return Err(refused(format!(
                        "the topic `{}` has {partitions} partitions and lane {} needs one more than its number: add \
                         partitions",
                        self.topic, lane.0
                    )));
                }
                Ok(Err(RDKafkaErrorCode::UnknownTopicOrPartition)) if !created => {
                    self.create(left).await?;
                    created = true;
                }
                Ok(Err(code)) if Instant::now() >= deadline => {
                    return Err(unavailable(format!("the topic `{}` is not ready: {code}", self.topic)));
                }
                // A topic that was just created takes a moment until every broker knows it.
                Ok(Err(_)) => tokio::time::sleep(ASK_AGAIN).await,
                Err(error) => return Err(unavailable(explain(&error, self.client.context()))),
            }
        }
    }

    /// The position that was committed last. To be called when no transaction of the lane is open.
    pub(super) async fn read(&self, lane: Lane, deadline: Instant) -> Result<Option<Position>, Error> {
        let (config, context) = (self.settings.consumer(), self.client.context().clone());
        let (topic, partition) = (self.topic.clone(), i32::from(lane.0));
        let read = blocking(move || {
            let consumer = BaseConsumer::from_config_and_context(&config, context)?;
            last(&consumer, &topic, partition, deadline)
        });
        let payload = read.await.map_err(|error| unavailable(explain(&error, self.client.context())))?;
        match payload.as_deref() {
            None => Ok(None),
            Some([VERSION, position @ ..]) => Ok(Some(Position(position.to_vec()))),
            Some(_) => Err(refused(format!(
                "the last record of partition {partition} of `{}` is not a position of this version of Semel",
                self.topic
            ))),
        }
    }

    async fn create(&self, timeout: Duration) -> Result<(), Error> {
        let topic = NewTopic::new(&self.topic, i32::from(self.settings.lanes()), TopicReplication::Fixed(-1))
            .set("cleanup.policy", "compact")
            .set("segment.bytes", "8388608");
        let options = AdminOptions::new().request_timeout(Some(timeout)).operation_timeout(Some(timeout));
        let created = self.client.admin().create_topics([&topic], &options).await;
        let created = created.map_err(|error| unavailable(explain(&error, self.client.context())))?;
        match created.into_iter().next() {
            None | Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(()),
            Some(Err((name, code))) => Err(refused(format!(
                "the topic `{name}` could not be created ({code}): create it with {} partitions and \
                 cleanup.policy=compact",
                self.settings.lanes()
            ))),
        }
    }
}

fn last(
    consumer: &BaseConsumer<Context>,
    topic: &str,
    partition: i32,
    deadline: Instant,
) -> Result<Option<Vec<u8>>, KafkaError> {
    let (low, high) = watermarks(consumer, topic, partition, deadline)?;
    let mut span = FIRST_SPAN;
    loop {
        let from = low.max(high.saturating_sub(span));
        if from >= high {
            return Ok(None);
        }
        let mut assignment = TopicPartitionList::new();
        assignment.add_partition_offset(topic, partition, Offset::Offset(from))?;
        consumer.assign(&assignment)?;
        let found = read_to_end(consumer, deadline)?;
        if found.is_some() || from == low {
            return Ok(found);
        }
        span = span.saturating_mul(8);
    }
}

/// Where the partition begins, and where its settled records end. A partition that was just created has no leader yet.
fn watermarks(
    consumer: &BaseConsumer<Context>,
    topic: &str,
    partition: i32,
    deadline: Instant,
) -> Result<(i64, i64), KafkaError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match consumer.fetch_watermarks(topic, partition, left) {
            Err(_) if Instant::now() + ASK_AGAIN < deadline => std::thread::sleep(ASK_AGAIN),
            answer => return answer,
        }
    }
}

fn read_to_end(consumer: &BaseConsumer<Context>, deadline: Instant) -> Result<Option<Vec<u8>>, KafkaError> {
    let mut found = None;
    loop {
        match consumer.poll(POLL) {
            Some(Ok(message)) => found = message.payload().map(<[u8]>::to_vec).or(found),
            Some(Err(KafkaError::PartitionEOF(_))) => return Ok(found),
            Some(Err(error)) if Instant::now() >= deadline => return Err(error),
            None if Instant::now() >= deadline => {
                return Err(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut));
            }
            // librdkafka reports a lost connection and keeps trying.
            Some(Err(_)) | None => {}
        }
    }
}
