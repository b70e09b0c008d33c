//! The client libraries without an outbox: what anything in front of them can reach at most.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use async_nats::jetstream::message::PublishMessage;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer};

use crate::case::SinkKind;
use crate::ledger::Ledger;
use crate::load::{Load, Numbered, TOPIC};
use crate::servers::{Servers, Stream};

/// How many messages wait for their acknowledgement at most. More makes neither broker faster.
const WINDOW: usize = 4096;

/// A broker's own client, set up as its users do.
pub(crate) enum Client {
    /// Acknowledges at once.
    Null,
    Nats(Box<Stream>),
    Kafka(FutureProducer),
    KafkaTransactional(FutureProducer, Duration),
}

impl Client {
    pub(crate) async fn connect(servers: &Servers, sink: SinkKind) -> Result<Client> {
        Ok(match sink {
            SinkKind::Null => Client::Null,
            SinkKind::Nats => Client::Nats(Box::new(servers.fresh_stream(false).await?)),
            SinkKind::NatsSynced => Client::Nats(Box::new(servers.fresh_stream(true).await?)),
            SinkKind::Kafka => Client::Kafka(durable(&mut servers.kafka_client()?).create()?),
            SinkKind::KafkaTransactional(interval) => {
                let mut config = servers.kafka_client()?;
                let producer: FutureProducer =
                    durable(&mut config).set("transactional.id", servers.fresh_name()).create()?;
                let initialising = producer.clone();
                blocking(move || initialising.init_transactions(Duration::from_secs(30))).await?;
                Client::KafkaTransactional(producer, interval)
            }
        })
    }

    /// Publishes a batch at once and returns when all of it is acknowledged.
    pub(crate) async fn publish(&self, batch: &[Numbered]) -> Result<()> {
        match self {
            Client::Null => {}
            Client::Nats(stream) => {
                let mut waiting = Vec::with_capacity(batch.len());
                for event in batch {
                    waiting.push(stream.context.send_publish(stream.subject.clone(), message(event)).await?);
                }
                for acknowledgement in waiting {
                    acknowledgement.await?;
                }
            }
            Client::Kafka(producer) => {
                let mut waiting = Vec::with_capacity(batch.len());
                for event in batch {
                    waiting.push(enqueue(producer, event)?.ok_or(KafkaError::Canceled)?);
                }
                for delivery in waiting {
                    delivered(delivery).await?;
                }
            }
            Client::KafkaTransactional(..) => bail!("nobody polls into Kafka transactions"),
        }
        Ok(())
    }

    /// Publishes these events, the first of `load`, until all are acknowledged or the time is over.
    pub(crate) async fn drain(
        &self,
        (load, events): (Load, &[Numbered]),
        ledger: &Ledger,
        one_per_key: bool,
        limit: Duration,
    ) -> Result<()> {
        let until = Instant::now() + limit;
        match self {
            Client::Null => events.iter().for_each(|event| ledger.acknowledge(&event.payload)),
            Client::Nats(stream) if one_per_key => nats_one_per_key(stream, load, events, ledger, until).await?,
            Client::Nats(stream) => nats(stream, events, ledger, until).await?,
            Client::Kafka(producer) => {
                kafka(producer, &mut events.iter(), ledger, until).await?;
            }
            Client::KafkaTransactional(producer, interval) => {
                let mut left = events.iter();
                while left.len() > 0 && Instant::now() < until {
                    producer.begin_transaction()?;
                    let commit_at = until.min(Instant::now() + *interval);
                    let sent = kafka(producer, &mut left, &Ledger::new(load, 0), commit_at).await?;
                    let committing = producer.clone();
                    blocking(move || committing.commit_transaction(Duration::from_secs(30))).await?;
                    ledger.acknowledge_all(sent.iter().map(|event| event.payload.as_ref()));
                }
            }
        }
        Ok(())
    }

    /// Removes what was published where that is kept apart.
    pub(crate) async fn end(self) -> Result<()> {
        match self {
            Client::Nats(stream) => stream.delete().await,
            _ => Ok(()),
        }
    }
}

/// The settings of a producer that loses and reorders nothing, else librdkafka's own.
fn durable(config: &mut ClientConfig) -> &mut ClientConfig {
    config.set("enable.idempotence", "true").set("acks", "all").set("partitioner", "murmur2_random")
}

fn message(event: &Numbered) -> PublishMessage {
    // The id for the stream's deduplication, which is what the sink asks of it, too.
    PublishMessage::build().payload(event.payload.clone()).message_id(format!("{:032x}", event.number))
}

async fn nats(stream: &Stream, events: &[Numbered], ledger: &Ledger, until: Instant) -> Result<()> {
    let mut waiting = VecDeque::with_capacity(WINDOW);
    for event in events {
        if Instant::now() >= until {
            break;
        }
        if waiting.len() >= WINDOW {
            settle(waiting.pop_front(), ledger).await?;
        }
        let acknowledgement = stream.context.send_publish(stream.subject.clone(), message(event)).await?;
        waiting.push_back((event, acknowledgement));
    }
    while let Some(first) = waiting.pop_front() {
        settle(Some(first), ledger).await?;
    }
    Ok(())
}

type Waiting<'a> = (&'a Numbered, async_nats::jetstream::context::PublishAckFuture);

async fn settle(waiting: Option<Waiting<'_>>, ledger: &Ledger) -> Result<()> {
    if let Some((event, acknowledgement)) = waiting {
        acknowledgement.await?;
        ledger.acknowledge(&event.payload);
    }
    Ok(())
}

async fn nats_one_per_key(
    stream: &Stream,
    load: Load,
    events: &[Numbered],
    ledger: &Ledger,
    until: Instant,
) -> Result<()> {
    let mut by_key: Vec<VecDeque<&Numbered>> = vec![VecDeque::new(); load.keys as usize];
    for event in events {
        by_key[load.key(event.number) as usize].push_back(event);
    }
    let send = |queue| send_first(stream, queue, ledger);
    let mut in_flight: FuturesUnordered<_> = by_key.into_iter().map(send).collect();
    while let Some(queue) = in_flight.next().await {
        let queue = queue?;
        if !queue.is_empty() && Instant::now() < until {
            in_flight.push(send(queue));
        }
    }
    Ok(())
}

/// Sends the first of a key's events and returns the others when it is acknowledged.
async fn send_first<'a>(
    stream: &Stream,
    mut queue: VecDeque<&'a Numbered>,
    ledger: &Ledger,
) -> Result<VecDeque<&'a Numbered>> {
    if let Some(event) = queue.pop_front() {
        stream.context.send_publish(stream.subject.clone(), message(event)).await?.await?;
        ledger.acknowledge(&event.payload);
    }
    Ok(queue)
}

/// Sends events until they or the time are at an end, waits for them, and returns those that were sent.
async fn kafka<'a>(
    producer: &FutureProducer,
    events: &mut std::slice::Iter<'a, Numbered>,
    ledger: &Ledger,
    until: Instant,
) -> Result<Vec<&'a Numbered>> {
    let mut waiting: VecDeque<(&Numbered, DeliveryFuture)> = VecDeque::with_capacity(WINDOW);
    let mut sent = Vec::new();
    loop {
        let next = if Instant::now() < until { events.as_slice().first() } else { None };
        let enqueued = match next {
            Some(event) if waiting.len() < WINDOW * 4 => enqueue(producer, event)?.map(|delivery| (event, delivery)),
            _ => None,
        };
        if let Some(enqueued) = enqueued {
            waiting.push_back(enqueued);
            events.next();
            continue;
        }
        let Some((event, delivery)) = waiting.pop_front() else { return Ok(sent) };
        delivered(delivery).await?;
        ledger.acknowledge(&event.payload);
        sent.push(event);
    }
}

/// Hands a message to librdkafka; `None` if its queue is full.
fn enqueue(producer: &FutureProducer, event: &Numbered) -> Result<Option<DeliveryFuture>> {
    let record = FutureRecord::to(TOPIC).key(&event.key).payload(event.payload.as_ref());
    match producer.send_result(record) {
        Ok(delivery) => Ok(Some(delivery)),
        Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => Ok(None),
        Err((error, _)) => Err(error.into()),
    }
}

async fn delivered(delivery: DeliveryFuture) -> Result<()> {
    match delivery.await? {
        Ok(_) => Ok(()),
        Err((error, _)) => Err(error.into()),
    }
}

async fn blocking<T: Send + 'static>(call: impl FnOnce() -> Result<T, KafkaError> + Send + 'static) -> Result<T> {
    Ok(tokio::task::spawn_blocking(call).await??)
}
