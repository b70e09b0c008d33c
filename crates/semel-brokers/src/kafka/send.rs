//! Sending a batch so that no key's events overtake each other.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer as _, PurgeConfig};
use semel::sink::{Error, Outgoing};
use tokio::time::{Instant, Sleep};

use super::context::Context;
use super::failure::{explain, failed_delivery};
use super::record;
use super::settings::BATCH_BYTES;
use super::topics::Admitted;
use crate::wave::unavailable;

/// What became of a batch.
pub(super) struct Sent {
    /// One result per event.
    pub(super) results: Vec<Result<(), Error>>,
    /// Whether records may still be in the producer's queues: it must be discarded.
    pub(super) unsettled: bool,
}

/// Sends what was admitted and waits until the broker has answered for each, or the deadline.
///
/// Events of one key go to one topic one after the other without waiting, because they share a partition and the
/// producer keeps their order there; before a key changes its topic, everything sent is acknowledged. A topic that
/// takes less than a full batch gets no more at once than it takes.
pub(super) async fn send(
    producer: &FutureProducer<Context>,
    context: &Context,
    batch: &[Outgoing],
    admitted: Vec<Result<Admitted, Error>>,
    deadline: Instant,
) -> Sent {
    let mut results: Vec<Result<(), Error>> = Vec::with_capacity(batch.len());
    let mut waiting: Vec<(usize, Admitted)> = Vec::with_capacity(batch.len());
    let mut refused: HashSet<&str> = HashSet::new();
    for (index, (outgoing, admitted)) in batch.iter().zip(admitted).enumerate() {
        let key = outgoing.event.ordering_key.as_str();
        results.push(match admitted {
            Ok(admitted) if !refused.contains(key) => {
                waiting.push((index, admitted));
                Ok(())
            }
            Ok(_) => Err(Error::Behind),
            Err(error) => {
                refused.insert(key);
                Err(error)
            }
        });
    }

    let mut unsettled = false;
    let mut late = std::pin::pin!(tokio::time::sleep_until(deadline));
    let mut failed: HashSet<&str> = HashSet::new();
    while !waiting.is_empty() {
        let (wave, later) = next_wave(batch, waiting);
        let enqueued: Vec<(usize, Result<DeliveryFuture, KafkaError>)> =
            wave.into_iter().map(|index| (index, enqueue(producer, &batch[index]))).collect();
        for (index, delivery) in enqueued {
            let outgoing = &batch[index];
            results[index] = match delivery {
                Ok(delivery) => acknowledged(delivery, late.as_mut(), &mut unsettled, outgoing, context).await,
                Err(error) => Err(failed_delivery(&error, &outgoing.event.topic, context)),
            };
            if results[index].is_err() {
                failed.insert(&outgoing.event.ordering_key);
                give_up_if_fatal(producer);
            }
        }
        // What is not sent because of a failure is behind it, and is marked so below.
        waiting = later;
        waiting.retain(|(index, _)| !failed.contains(batch[*index].event.ordering_key.as_str()));
    }
    Sent { results: only_first_failures(batch, results), unsettled }
}

/// Leaves each key its first failure, and puts everything after it behind. An acknowledgement behind a failure is not
/// counted either: the event is sent again in its turn, with the same id.
pub(super) fn only_first_failures(batch: &[Outgoing], results: Vec<Result<(), Error>>) -> Vec<Result<(), Error>> {
    let mut failed: HashSet<&str> = HashSet::new();
    let results = batch.iter().zip(results).map(|(outgoing, result)| {
        let key = outgoing.event.ordering_key.as_str();
        match result {
            _ if failed.contains(key) => Err(Error::Behind),
            Err(error) => {
                failed.insert(key);
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    });
    results.collect()
}

/// Splits what waits into what can go now and what goes after that is acknowledged.
fn next_wave(batch: &[Outgoing], waiting: Vec<(usize, Admitted)>) -> (Vec<usize>, Vec<(usize, Admitted)>) {
    let mut wave = Vec::with_capacity(waiting.len());
    let mut later = Vec::new();
    let mut topics: HashMap<&str, &str> = HashMap::new();
    let mut held: HashSet<&str> = HashSet::new();
    let mut bytes: HashMap<&str, usize> = HashMap::new();
    for (index, admitted) in waiting {
        let event = &batch[index].event;
        let (key, topic) = (event.ordering_key.as_str(), event.topic.as_str());
        let same_topic = *topics.entry(key).or_insert(topic) == topic;
        let total = bytes.get(topic).copied().unwrap_or(0);
        let fits =
            admitted.limit >= BATCH_BYTES || total == 0 || total + record::most_bytes(admitted.bytes) <= admitted.limit;
        if same_topic && fits && !held.contains(key) {
            bytes.insert(topic, total + if total == 0 { admitted.bytes } else { record::most_bytes(admitted.bytes) });
            wave.push(index);
        } else {
            held.insert(key);
            later.push((index, admitted));
        }
    }
    (wave, later)
}

fn enqueue(producer: &FutureProducer<Context>, outgoing: &Outgoing) -> Result<DeliveryFuture, KafkaError> {
    let event = &outgoing.event;
    let record = FutureRecord::to(&event.topic)
        .key(event.ordering_key.as_str())
        .payload(event.payload.as_ref())
        .headers(record::headers(outgoing));
    producer.send_result(record).map_err(|(error, _)| error)
}

/// A producer with a fatal error, as after a refused record (gapless), sends nothing more and keeps what it holds. What
/// waits in it is failed now rather than at the deadline.
fn give_up_if_fatal(producer: &FutureProducer<Context>) {
    if producer.client().fatal_error().is_some() {
        producer.purge(PurgeConfig::default().queue().inflight());
    }
}

async fn acknowledged(
    delivery: DeliveryFuture,
    late: Pin<&mut Sleep>,
    unsettled: &mut bool,
    outgoing: &Outgoing,
    context: &Context,
) -> Result<(), Error> {
    tokio::select! {
        biased;
        delivered = delivery => match delivered {
            Ok(Ok(_)) => Ok(()),
            Ok(Err((error, _))) => Err(failed_delivery(&error, &outgoing.event.topic, context)),
            Err(_) => Err(unavailable("the producer was discarded")),
        },
        () = late => {
            *unsettled = true;
            let timeout = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
            Err(unavailable(explain(&timeout, context)))
        }
    }
}
