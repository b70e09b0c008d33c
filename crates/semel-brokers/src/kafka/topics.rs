//! What the cluster's topics take, asked before anything is sent.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::admin::ResourceSpecifier;
use rdkafka::error::RDKafkaErrorCode;
use semel::sink::{Error, Outgoing};
use tokio::time::Instant;

use super::context::Client;
use super::failure::{explain, topic_refused};
use super::record;
use super::settings::is_name;
use crate::wave::{refused, unavailable};

/// How long an answer is believed.
const BELIEVED: Duration = Duration::from_secs(60);

/// How long a topic that was just created may be unknown to the broker that is asked.
const PROPAGATION: Duration = Duration::from_millis(500);
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// What a broker takes where it does not say: the default of `message.max.bytes`.
const DEFAULT_LIMIT: usize = 1_048_588;

/// An event that its topic will take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admitted {
    /// What it takes in a batch of its own.
    pub(super) bytes: usize,
    /// The largest batch that the topic takes.
    pub(super) limit: usize,
}

/// Refusing an event before it is sent keeps a refusal from failing the records that share its batch.
#[derive(Debug)]
pub(super) struct Topics {
    client: Client,
    limits: Mutex<HashMap<String, (Instant, usize)>>,
}

impl Topics {
    pub(super) fn new(client: Client) -> Topics {
        Topics { client, limits: Mutex::default() }
    }

    /// Tells for each event whether its topic takes it, without the events of one key looking at each other.
    pub(super) async fn admit(&self, batch: &[Outgoing], deadline: Instant) -> Vec<Result<Admitted, Error>> {
        let mut limits: HashMap<&str, Result<usize, Failure>> = HashMap::new();
        let mut admitted = Vec::with_capacity(batch.len());
        for outgoing in batch {
            let topic = outgoing.event.topic.as_str();
            if !limits.contains_key(topic) {
                limits.insert(topic, self.limit(topic, deadline).await);
            }
            admitted.push(match &limits[topic] {
                Ok(limit) => fits(outgoing, *limit),
                Err(failure) => Err(failure.error()),
            });
        }
        admitted
    }

    /// Asks again next time.
    pub(super) fn forget(&self) {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    async fn limit(&self, topic: &str, deadline: Instant) -> Result<usize, Failure> {
        if !is_name(topic) {
            return Err(Failure::Refused(RDKafkaErrorCode::InvalidTopic, topic.to_owned()));
        }
        let known = self.limits.lock().unwrap_or_else(PoisonError::into_inner).get(topic).copied();
        if let Some((read, limit)) = known
            && read.elapsed() < BELIEVED
        {
            return Ok(limit);
        }
        self.require(topic, deadline).await?;
        let left = deadline.saturating_duration_since(Instant::now());
        let text = self.client.setting(ResourceSpecifier::Topic(topic), "max.message.bytes", left).await;
        let limit = text.and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_LIMIT);
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.insert(topic.to_owned(), (Instant::now(), limit));
        Ok(limit)
    }

    async fn require(&self, topic: &str, deadline: Instant) -> Result<(), Failure> {
        let patience = Instant::now() + PROPAGATION;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let code = match self.client.partitions(topic, left).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(code)) => code,
                Err(error) => return Err(Failure::Unavailable(explain(&error, self.client.context()))),
            };
            let refusal = topic_refused(code, topic).is_some();
            if refusal && (Instant::now() >= patience || code != RDKafkaErrorCode::UnknownTopicOrPartition) {
                return Err(Failure::Refused(code, topic.to_owned()));
            }
            if Instant::now() + ASK_AGAIN >= deadline {
                return Err(Failure::Unavailable(format!("the topic `{topic}` is not ready: {code}")));
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}

/// Why a topic takes nothing: one answer for many events.
enum Failure {
    Refused(RDKafkaErrorCode, String),
    Unavailable(String),
}

impl Failure {
    fn error(&self) -> Error {
        match self {
            Failure::Refused(code, topic) => {
                topic_refused(*code, topic).unwrap_or_else(|| unavailable(format!("`{topic}`: {code}")))
            }
            Failure::Unavailable(reason) => unavailable(reason.as_str()),
        }
    }
}

fn fits(outgoing: &Outgoing, limit: usize) -> Result<Admitted, Error> {
    let bytes = record::batch_bytes(outgoing);
    if !record::is_writable(outgoing) {
        return Err(refused("a header's name holds a zero byte"));
    }
    if bytes > limit {
        return Err(refused(format!(
            "the event takes {bytes} bytes as a record and the topic `{}` takes {limit} (max.message.bytes)",
            outgoing.event.topic
        )));
    }
    Ok(Admitted { bytes, limit })
}
