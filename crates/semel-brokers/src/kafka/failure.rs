//! What Kafka's errors mean to a relay.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{FutureProducer, Producer as _};
use semel::sink::Error;

use super::context::Context;
use crate::wave::{refused, unavailable};

/// The reason in words, with what was last heard about the connection.
pub(super) fn explain(error: &KafkaError, context: &Context) -> String {
    let base = match error {
        KafkaError::Transaction(error) => error.string(),
        KafkaError::ClientConfig(_, reason, key, _) => format!("{key}: {reason}"),
        other => other.to_string(),
    };
    let at = context.bootstrap();
    match context.heard() {
        Some((_, heard)) => format!("{base} ({at}: {heard})"),
        None => format!("{base} ({at})"),
    }
}

/// What a failed call means: fenced, or not now.
pub(super) fn failed_call(error: &KafkaError, producer: &FutureProducer<Context>, context: &Context) -> Error {
    if error.rdkafka_error_code().is_some_and(is_fence) || is_fenced(producer) {
        return Error::Fenced;
    }
    unavailable(explain(error, context))
}

/// What a failed delivery means. A record that the broker calls too large is not refused for it: a batch is judged as a
/// whole, and the next attempt reads the topic's limit again and tells which record it was.
pub(super) fn failed_delivery(error: &KafkaError, topic: &str, context: &Context) -> Error {
    match error.rdkafka_error_code() {
        Some(code) if is_fence(code) => Error::Fenced,
        Some(code) => topic_refused(code, topic).unwrap_or_else(|| unavailable(explain(error, context))),
        None => unavailable(explain(error, context)),
    }
}

/// The error for a topic that will not take events, if that is what the code says.
pub(super) fn topic_refused(code: RDKafkaErrorCode, topic: &str) -> Option<Error> {
    let reason = match code {
        RDKafkaErrorCode::UnknownTopic
        | RDKafkaErrorCode::UnknownTopicOrPartition
        | RDKafkaErrorCode::UnknownPartition => {
            format!("there is no topic `{topic}`: create it, or let the broker create topics")
        }
        RDKafkaErrorCode::InvalidTopic => format!("`{topic}` cannot be the name of a topic"),
        RDKafkaErrorCode::TopicAuthorizationFailed => format!("this user may not write to the topic `{topic}`"),
        RDKafkaErrorCode::InvalidRecord | RDKafkaErrorCode::PolicyViolation => {
            format!("the topic `{topic}` does not take this record: {code}")
        }
        _ => return None,
    };
    Some(refused(reason))
}

/// Whether a newer producer has taken this one's transactional id.
pub(super) fn is_fenced(producer: &FutureProducer<Context>) -> bool {
    producer.client().fatal_error().is_some_and(|(code, _)| is_fence(code))
}

fn is_fence(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced | RDKafkaErrorCode::InvalidProducerEpoch)
}
