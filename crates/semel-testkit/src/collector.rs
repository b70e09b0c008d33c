//! What arrived at a broker, as a consumer finds it, and whether it is what was committed.
//!
//! A [`Collector`] has two topics of its own on a server, says how a relay's sink reaches them, and reads everything
//! that is there. [`check`] holds that against what a test committed.

mod check;
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod lines;
mod nats;
mod rabbitmq;
mod redis;

use uuid::Uuid;

pub use self::check::{Committed, Tally, check, check_dense};
pub use self::http::Receiver;
#[cfg(feature = "kafka")]
pub use self::kafka::{KafkaTopics, Mode};
pub use self::lines::Lines;
pub use self::nats::NatsStream;
pub use self::rabbitmq::RabbitMqQueue;
pub use self::redis::RedisStreams;

/// An event as a consumer finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The CloudEvents attribute `id`.
    pub id: String,
    /// Where it was published.
    pub topic: String,
    /// The CloudEvents attribute `type`.
    pub event_type: String,
    /// The ordering key.
    pub ordering_key: String,
    /// The lane.
    pub lane: u16,
    /// The sequence number.
    pub sequence: u64,
    /// The producer's incarnation.
    pub incarnation: String,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Arrival {
    /// Whether it only stands for an event whose key is parked.
    pub fn is_placeholder(&self) -> bool {
        self.event_type == semel::event::PLACEHOLDER
    }

    /// The number in the payload, which tests count per ordering key.
    pub fn number(&self) -> u64 {
        let payload: Option<serde_json::Value> = serde_json::from_slice(&self.payload).ok();
        payload.and_then(|payload| payload["n"].as_u64()).unwrap_or_else(|| panic!("no number in {self:?}"))
    }
}

/// Two topics on a broker and everything that arrives there.
#[derive(Debug)]
pub enum Collector {
    /// A webhook's receiver.
    Http(Receiver),
    /// A file that lines are appended to.
    Lines(Lines),
    /// A stream of NATS JetStream.
    Nats(NatsStream),
    /// Streams of Redis.
    Redis(RedisStreams),
    /// A queue of RabbitMQ.
    RabbitMq(Box<RabbitMqQueue>),
    /// Topics of Kafka.
    #[cfg(feature = "kafka")]
    Kafka(KafkaTopics),
}

impl Collector {
    /// How a sink publishes to these topics. For [`Lines`] it is `file:PATH`, for a process that appends what it would
    /// write to its standard output.
    pub fn sink_url(&self) -> String {
        match self {
            Collector::Http(receiver) => receiver.sink_url(),
            Collector::Lines(lines) => lines.sink_url(),
            Collector::Nats(stream) => stream.sink_url(),
            Collector::Redis(streams) => streams.sink_url(),
            Collector::RabbitMq(queue) => queue.sink_url(),
            #[cfg(feature = "kafka")]
            Collector::Kafka(topics) => topics.sink_url(),
        }
    }

    /// The topics.
    pub fn topics(&self) -> &[String; 2] {
        match self {
            Collector::Http(receiver) => receiver.topics(),
            Collector::Lines(lines) => lines.topics(),
            Collector::Nats(stream) => stream.topics(),
            Collector::Redis(streams) => streams.topics(),
            Collector::RabbitMq(queue) => queue.topics(),
            #[cfg(feature = "kafka")]
            Collector::Kafka(topics) => topics.topics(),
        }
    }

    /// Everything that has arrived since the collector was made, in order within each ordering key.
    pub async fn arrived(&self) -> Vec<Arrival> {
        match self {
            Collector::Http(receiver) => receiver.arrived(),
            Collector::Lines(lines) => lines.arrived(),
            Collector::Nats(stream) => stream.arrived().await,
            Collector::Redis(streams) => streams.arrived().await,
            Collector::RabbitMq(queue) => queue.arrived().await,
            #[cfg(feature = "kafka")]
            Collector::Kafka(topics) => topics.arrived().await,
        }
    }

    /// Whether a consumer of this broker sees each event once, however often a relay sends it.
    pub fn drops_duplicates(&self) -> bool {
        match self {
            Collector::Nats(_) => true,
            #[cfg(feature = "kafka")]
            Collector::Kafka(topics) => topics.mode() == Mode::Transactional,
            _ => false,
        }
    }
}

/// A name that nobody else has, made of letters, digits and a dash.
fn unique() -> String {
    format!("test-{}", Uuid::new_v4().simple())
}

/// The two topics of a collector with this name.
fn topics_of(name: &str) -> [String; 2] {
    [format!("{name}-even"), format!("{name}-odd")]
}
