//! Where Semel's events go: one module and one cargo feature per broker, each a [`semel::Sink`].
//!
//! [`connect`] makes a sink from a URL; its scheme names the broker.
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
//! **What an acknowledgement means (I4).** `publish` answers `Ok` for an event only after the broker has confirmed it.
//! A crash between the confirmation and the relay's own record repeats the event with the same id and sequence.
//!
//! **How order is kept (I5).** A failure can never let a successor of the same ordering key overtake. NATS, RabbitMQ,
//! Redis and webhooks get the next event of a key only after the one before it is acknowledged, so of each key at most
//! one is unacknowledged; different keys travel together. Kafka gets several events of a key at once, because its
//! idempotent producer keeps a partition's order and appends nothing after a gap. Standard output gets whole batches,
//! one after the other.
//!
//! **Secrets.** Passwords in URLs are held for reconnecting and appear in no error, log line or `Debug` output.
//! Payloads are not logged either, but client libraries would: see [`may_log`].

mod any;
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
mod logs;
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis"))]
mod session;
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
pub use error::Error;
pub use logs::may_log;
