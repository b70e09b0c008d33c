//! Where Semel's events go and where messages come from: one module and one cargo feature per broker, each a
//! [`semel::Sink`] and a [`semel::Source`].
//!
//! [`connect`] makes a sink from a URL, and [`open`] a source; the scheme names the broker.
//!
//! | URL | sink | guarantee |
//! |---|---|---|
//! | `nats://user:password@host:4222/?stream=NAME` | NATS JetStream | deduplicated within the stream's window |
//! | `amqp://user:password@host:5672/vhost?exchange=NAME` | RabbitMQ | at least once |
//! | `redis://user:password@host:6379/0` | Redis Streams | at least once |
//! | `kafka://user:password@host:9092,host:9092/` | Apache Kafka | at least once, or transactional by `mode` |
//! | `https://user:password@host/path` | a webhook | at least once |
//! | `stdout:` | standard output, as JSON lines | at least once |
//!
//! | URL | source | what is kept for a consumer |
//! |---|---|---|
//! | `nats://user:password@host:4222/?stream=NAME` | NATS JetStream | a durable consumer of the stream |
//! | `amqp://user:password@host:5672/vhost?queue=NAME` | RabbitMQ | the queue |
//! | `redis://user:password@host:6379/0?stream=NAME` | Redis Streams | a consumer group of the stream |
//! | `kafka://user:password@host:9092/?topic=NAME` | Apache Kafka | a consumer group, or offsets in the inbox |
//! | `http://127.0.0.1:7700/path?secret=whsec_…` | webhooks that are sent there | nothing: senders try again |
//!
//! **What an acknowledgement means (I4).** `publish` answers `Ok` for an event only after the broker has confirmed it.
//! A crash between the confirmation and the relay's own record repeats the event with the same id and sequence.
//!
//! **How order is kept (I5).** A failure can never let a successor of the same ordering key overtake. NATS, RabbitMQ,
//! Redis and webhooks get the next event of a key only after the one before it is acknowledged, so of each key at most
//! one is unacknowledged; different keys travel together. Kafka gets several events of a key at once, because its
//! idempotent producer keeps a partition's order and appends nothing after a gap. Standard output gets whole batches,
//! one after the other.
//!
//! **What comes again (I6).** A source never acknowledges by itself. Whatever was not acknowledged when its process
//! dies is delivered again, and is a duplicate if its effect was committed.
//!
//! **Secrets.** Passwords and signing secrets in URLs are held in memory and appear in no error, log line or `Debug`
//! output. Payloads are not logged either, but client libraries would: see [`may_log`].

mod any;
mod any_source;
#[cfg(any(
    feature = "http",
    feature = "kafka",
    feature = "nats",
    feature = "rabbitmq",
    feature = "redis",
    feature = "stdout"
))]
mod cloud_event;
mod error;
#[cfg(any(feature = "http", feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod incoming;
mod logs;
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod session;
mod subscription;
mod tier;
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod tls;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod url;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod wave;

#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "stdout")]
pub mod stdout;

pub use any::{AnySink, connect};
pub use any_source::{AnyReceipt, AnySource, open};
pub use error::Error;
pub use logs::may_log;
pub use subscription::{Resume, Subscription};
pub use tier::open_tier;
