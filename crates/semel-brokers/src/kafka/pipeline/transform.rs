//! What a pipeline makes of a message.

use std::future::Future;

use bytes::Bytes;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::FutureRecord;
use semel::source::Message;

/// What a pipeline makes of a message: a function, or an implementation of its own where it has to wait for something.
///
/// It may be run more than once for one message, and of these runs at most one is committed. Whatever it does besides
/// returning records is outside the transaction: it may happen again, or for nothing.
pub trait Transform: Send + Sync {
    /// The records to write for this message, in this order. None at all is fine.
    fn transform(&self, message: &Message) -> impl Future<Output = Result<Vec<Out>, Failure>> + Send;
}

impl<F> Transform for F
where
    F: Fn(&Message) -> Result<Vec<Out>, Failure> + Send + Sync,
{
    fn transform(&self, message: &Message) -> impl Future<Output = Result<Vec<Out>, Failure>> + Send {
        std::future::ready(self(message))
    }
}

/// Why a message could not be transformed.
#[derive(Debug)]
pub struct Failure {
    pub(super) cause: Box<dyn std::error::Error + Send + Sync>,
    pub(super) hopeless: bool,
}

impl Failure {
    /// It will fail however often it is tried.
    pub fn hopeless(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
        Failure { cause: cause.into(), hopeless: true }
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Failure {
    fn from(cause: E) -> Failure {
        Failure { cause: cause.into(), hopeless: false }
    }
}

/// A record to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Out {
    topic: String,
    key: Option<Bytes>,
    payload: Option<Bytes>,
    headers: Vec<(String, Vec<u8>)>,
}

impl Out {
    /// A record for this topic. Its key chooses the partition, by murmur2 as Kafka's Java clients do.
    pub fn new(topic: impl Into<String>, key: impl Into<Bytes>, payload: impl Into<Bytes>) -> Out {
        Out { topic: topic.into(), key: Some(key.into()), payload: Some(payload.into()), headers: Vec::new() }
    }

    /// The same without a payload: a tombstone, after which compaction forgets the key.
    #[must_use]
    pub fn without_payload(mut self) -> Out {
        self.payload = None;
        self
    }

    /// The same without a key: any partition will do.
    #[must_use]
    pub fn without_key(mut self) -> Out {
        self.key = None;
        self
    }

    /// The same with one header more.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Out {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Where it goes.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    pub(super) fn record(&self) -> FutureRecord<'_, [u8], [u8]> {
        let mut record = FutureRecord::to(&self.topic);
        if let Some(key) = &self.key {
            record = record.key(&key[..]);
        }
        if let Some(payload) = &self.payload {
            record = record.payload(&payload[..]);
        }
        if self.headers.is_empty() {
            return record;
        }
        let headers = OwnedHeaders::new_with_capacity(self.headers.len());
        record.headers(
            self.headers
                .iter()
                .fold(headers, |headers, (name, value)| headers.insert(Header { key: name, value: Some(value) })),
        )
    }
}
