//! Topics of Kafka.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{Client, DefaultClientContext};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::{Arrival, topics_of, unique};
use crate::kafka::{Kafka, SERVER_VARIABLE, server_dir};
use crate::poll::PATIENCE;

const PARTITIONS: i32 = 4;

/// How a relay publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// At least once, in order.
    Idempotent,
    /// Together with each lane's position.
    Transactional,
}

/// Two topics with names of their own, read by a consumer of committed records.
#[derive(Debug)]
pub struct KafkaTopics {
    url: String,
    mode: Mode,
    topics: [String; 2],
}

impl KafkaTopics {
    /// Two new topics with four partitions each on the shared server.
    pub async fn create(mode: Mode) -> KafkaTopics {
        let topics = KafkaTopics { url: shared_url(), mode, topics: topics_of(&unique()) };
        let admin: AdminClient<DefaultClientContext> = topics.client().create().unwrap();
        let new = topics.topics.each_ref().map(|topic| NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(1)));
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        admin.create_topics(&new, &options).await.unwrap().into_iter().for_each(|created| drop(created.unwrap()));
        tokio::task::block_in_place(|| topics.wait_until_known(admin.inner()));
        topics
    }

    /// The controller has made them before the broker that is asked about them knows.
    fn wait_until_known(&self, client: &Client<DefaultClientContext>) {
        let gives_up = Instant::now() + PATIENCE;
        for topic in &self.topics {
            let known = || {
                let metadata = client.fetch_metadata(Some(topic), PATIENCE).unwrap();
                let partitions = metadata.topics().first().map(|topic| topic.partitions()).unwrap_or_default();
                partitions.len() == PARTITIONS as usize && partitions.iter().all(|partition| partition.leader() >= 0)
            };
            while !known() {
                assert!(Instant::now() < gives_up, "{topic} was made and nobody knows it");
            }
        }
    }

    /// How the relay publishes.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub(super) fn sink_url(&self) -> String {
        match self.mode {
            Mode::Idempotent => self.url.clone(),
            Mode::Transactional => format!("{}?mode=transactional", self.url),
        }
    }

    pub(super) fn topics(&self) -> &[String; 2] {
        &self.topics
    }

    pub(super) async fn arrived(&self) -> Vec<Arrival> {
        tokio::task::block_in_place(|| self.read())
    }

    fn read(&self) -> Vec<Arrival> {
        let consumer: BaseConsumer = self
            .client()
            .set("group.id", "semel-collector")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("isolation.level", "read_committed")
            .set("fetch.wait.max.ms", "10")
            .create()
            .unwrap();
        let mut arrived = Vec::new();
        for topic in &self.topics {
            let mut assignment = TopicPartitionList::new();
            for partition in 0..PARTITIONS {
                assignment.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
            }
            consumer.assign(&assignment).unwrap();
            let mut ended = HashSet::new();
            let gives_up = Instant::now() + PATIENCE;
            while ended.len() < PARTITIONS as usize {
                match consumer.poll(Duration::from_millis(100)) {
                    Some(Ok(message)) => arrived.push(arrival(&message)),
                    Some(Err(KafkaError::PartitionEOF(partition))) => drop(ended.insert(partition)),
                    _ => assert!(Instant::now() < gives_up, "only {ended:?} of {topic} could be read to their end"),
                }
            }
        }
        arrived
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.url.trim_start_matches("kafka://").trim_end_matches('/'));
        config
    }
}

/// The Kafka of `SEMEL_TEST_KAFKA_URL`, else of `cargo xtask services up`.
fn shared_url() -> String {
    if let Some(url) = std::env::var(SERVER_VARIABLE).ok().filter(|url| !url.is_empty()) {
        return url;
    }
    match Kafka::running(&server_dir()).unwrap() {
        Some(kafka) => {
            let url = kafka.url();
            kafka.keep_running();
            url
        }
        None => panic!("there is no Kafka: run `cargo xtask services up`, or set {SERVER_VARIABLE}"),
    }
}

fn arrival(message: &impl Message) -> Arrival {
    let headers = message.headers().unwrap().iter();
    let headers: HashMap<&str, String> = headers
        .map(|header| (header.key, String::from_utf8(header.value.unwrap_or_default().to_vec()).unwrap()))
        .collect();
    let text = |name: &str| headers.get(name).unwrap_or_else(|| panic!("no header {name}")).clone();
    Arrival {
        id: text("ce_id"),
        topic: message.topic().to_owned(),
        event_type: text("ce_type"),
        ordering_key: text("ce_partitionkey"),
        lane: text("semel_lane").parse().unwrap(),
        sequence: text("semel_sequence").parse().unwrap(),
        incarnation: text("semel_incarnation"),
        payload: message.payload().unwrap_or_default().to_vec(),
    }
}
