//! A cluster as the tests see it: topics of their own, events to publish, and what a consumer finds.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use semel::event::{Event, EventId};
use semel::sink::{Lane, Outgoing, Position, Sink};
use semel_brokers::Subscription;
use semel_brokers::kafka::Kafka;
use semel_testkit::kafka as server;
use semel_testkit::poll::until;
use uuid::Uuid;

const PARTITIONS: i32 = 4;
const WAIT: Duration = Duration::from_secs(30);

/// A topic with a name of its own on some cluster.
#[derive(Debug, Clone)]
pub(crate) struct Topic {
    pub(crate) url: String,
    pub(crate) name: String,
}

/// A record as a consumer of committed records gets it.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) key: String,
    pub(crate) payload: Vec<u8>,
    pub(crate) headers: HashMap<String, String>,
}

impl Arrived {
    pub(crate) fn id(&self) -> &str {
        &self.headers["ce_id"]
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.headers["semel_sequence"].parse().unwrap()
    }
}

/// The Kafka of `SEMEL_TEST_KAFKA_URL`, else of `cargo xtask services up`.
pub(crate) fn shared_url() -> String {
    if let Some(url) = std::env::var(server::SERVER_VARIABLE).ok().filter(|url| !url.is_empty()) {
        return url;
    }
    match server::Kafka::running(&server::server_dir()).unwrap() {
        Some(kafka) => {
            let url = kafka.url();
            kafka.keep_running();
            url
        }
        None => panic!("there is no Kafka: run `cargo xtask services up`, or set {}", server::SERVER_VARIABLE),
    }
}

impl Topic {
    /// A new topic with four partitions on the shared server.
    pub(crate) async fn shared(settings: &[(&str, &str)]) -> Topic {
        Topic::on(&shared_url(), settings).await
    }

    /// A new topic with four partitions.
    pub(crate) async fn on(url: &str, settings: &[(&str, &str)]) -> Topic {
        let topic = Topic { url: url.to_owned(), name: format!("semel-test-{}", Uuid::new_v4().simple()) };
        let new = NewTopic::new(&topic.name, PARTITIONS, TopicReplication::Fixed(1));
        let new = settings.iter().fold(new, |new, (name, value)| new.set(name, value));
        let options = AdminOptions::new().operation_timeout(Some(WAIT));
        let admin = topic.admin();
        admin.create_topics([&new], &options).await.unwrap().remove(0).unwrap();
        // The controller has made it before the broker that is asked about it knows.
        until("the broker knows the topic", async || {
            tokio::task::block_in_place(|| {
                let metadata = admin.inner().fetch_metadata(Some(&topic.name), WAIT).unwrap();
                let partitions = metadata.topics().first().map(|topic| topic.partitions()).unwrap_or_default();
                partitions.len() == PARTITIONS as usize && partitions.iter().all(|partition| partition.leader() >= 0)
            })
        })
        .await;
        topic
    }

    /// A sink for this topic's cluster, with further URL parameters.
    pub(crate) async fn sink(&self, parameters: &str) -> Kafka {
        Kafka::connect(&format!("{}?{parameters}", self.url), &self.name).await.unwrap()
    }

    /// Changes one setting of the topic.
    pub(crate) async fn alter(&self, name: &str, value: &str) {
        let change = AlterConfig::new(ResourceSpecifier::Topic(&self.name)).set(name, value);
        let results = self.admin().alter_configs([&change], &AdminOptions::new()).await.unwrap();
        results.into_iter().for_each(|result| drop(result.unwrap()));
    }

    /// The event number `sequence` of this topic, with its own stable id.
    pub(crate) fn event(&self, key: &str, sequence: u64, payload: Vec<u8>) -> Outgoing {
        self.event_for(&self.name, key, sequence, payload)
    }

    /// The same for another topic.
    pub(crate) fn event_for(&self, topic: &str, key: &str, sequence: u64, payload: Vec<u8>) -> Outgoing {
        let mut hasher = DefaultHasher::new();
        (&self.name, topic).hash(&mut hasher);
        let id = Uuid::from_u64_pair(hasher.finish(), sequence);
        Outgoing {
            id: EventId::from(id),
            source: "/semel/tests".into(),
            time_ms: 1_700_000_000_123,
            lane: Lane(3),
            sequence,
            incarnation: "7".into(),
            event: Event::bytes(topic, key, "test.happened", "application/octet-stream", payload).unwrap(),
        }
    }

    /// Everything that a consumer of committed records finds, in order within each partition.
    pub(crate) fn read(&self) -> Vec<Arrived> {
        let consumer: BaseConsumer = self
            .client()
            .set("group.id", "semel-tests")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("isolation.level", "read_committed")
            .set("fetch.wait.max.ms", "10")
            .create()
            .unwrap();
        let mut assignment = TopicPartitionList::new();
        for partition in 0..PARTITIONS {
            assignment.add_partition_offset(&self.name, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&assignment).unwrap();
        let mut arrived = Vec::new();
        let mut ended = HashSet::new();
        let deadline = Instant::now() + WAIT;
        while ended.len() < PARTITIONS as usize {
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => arrived.push(read_message(&message)),
                Some(Err(KafkaError::PartitionEOF(partition))) => drop(ended.insert(partition)),
                _ => assert!(Instant::now() < deadline, "only the partitions {ended:?} could be read to their end"),
            }
        }
        arrived
    }

    /// Asks about a consumer's group without being a member of it.
    pub(crate) fn group(&self, consumer: &str) -> BaseConsumer {
        let group = Subscription::new(format!("{}-{consumer}", self.name)).group();
        self.client().set("group.id", group).create().unwrap()
    }

    /// How many records a group would still read if everybody left it now.
    pub(crate) fn unread_by(&self, group: &BaseConsumer) -> usize {
        let mut partitions = TopicPartitionList::new();
        partitions.add_partition_range(&self.name, 0, PARTITIONS - 1);
        tokio::task::block_in_place(|| {
            let committed = group.committed_offsets(partitions, WAIT).unwrap();
            let unread = committed.elements().into_iter().map(|element| {
                let (first, end) = group.fetch_watermarks(&self.name, element.partition(), WAIT).unwrap();
                end - element.offset().to_raw().filter(|offset| *offset >= 0).unwrap_or(first)
            });
            unread.sum::<i64>() as usize
        })
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().unwrap()
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        let bootstrap = self.url.trim_start_matches("kafka://").trim_end_matches('/');
        config.set("bootstrap.servers", bootstrap);
        config
    }
}

fn read_message(message: &impl Message) -> Arrived {
    let headers = message.headers().unwrap();
    let headers = headers
        .iter()
        .map(|header| (header.key.to_owned(), String::from_utf8(header.value.unwrap().to_vec()).unwrap()));
    Arrived {
        key: String::from_utf8(message.key().unwrap().to_vec()).unwrap(),
        payload: message.payload().unwrap_or_default().to_vec(),
        headers: headers.collect(),
    }
}

/// Publishes, and the results as words.
pub(crate) async fn publish(sink: &Kafka, batch: &[Outgoing], position: u64) -> Vec<String> {
    let results = sink.publish(Lane(3), batch, &Position(position.to_be_bytes().to_vec())).await;
    assert_eq!(results.len(), batch.len());
    results.into_iter().map(|result| word(&result)).collect()
}

/// Takes the lane that the tests publish.
pub(crate) async fn take(sink: &Kafka) -> Option<u64> {
    let position = sink.take_lane(Lane(3)).await.unwrap();
    position.map(|position| u64::from_be_bytes(position.0.try_into().unwrap()))
}

fn word(result: &Result<(), semel::sink::Error>) -> String {
    use semel::sink::Error;
    match result {
        Ok(()) => "ok".into(),
        Err(Error::Unavailable(source)) => format!("unavailable: {source}"),
        Err(Error::Refused(source)) => format!("refused: {source}"),
        Err(Error::Behind) => "behind".into(),
        Err(Error::Fenced) => "fenced".into(),
        Err(other) => other.to_string(),
    }
}

/// The sequences of each key, in the order of arrival, each at its first occurrence.
pub(crate) fn first_occurrences(arrived: &[Arrived]) -> HashMap<String, Vec<u64>> {
    let mut keys: HashMap<String, Vec<u64>> = HashMap::new();
    for record in arrived {
        let sequences = keys.entry(record.key.clone()).or_default();
        if !sequences.contains(&record.sequence()) {
            sequences.push(record.sequence());
        }
    }
    keys
}
