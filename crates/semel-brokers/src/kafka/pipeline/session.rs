//! A member of the group and its producer, from their start to the first trouble that only a new start mends.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::admin::ResourceSpecifier;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{CommitMode, Consumer, ConsumerGroupMetadata, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{DeliveryFuture, FutureProducer, Producer as _};
use tokio::time::Instant;

use super::batch::{Batch, Item, Membership};
use super::transform::Out;
use super::{Error, Guarantee, Options};
use crate::kafka::context::{Client, Context, Producer, blocking};
use crate::kafka::failure::{explain, topic_refused};
use crate::kafka::settings::Settings;
use crate::kafka::source::{SESSION, group_consumer, unusable};

/// How long a producer whose queue is full is left alone.
const QUEUE_FULL: Duration = Duration::from_millis(5);

/// How long the reports of an ended transaction's records are waited for.
const REPORTS: Duration = Duration::from_secs(1);

/// Why nothing goes on as it is.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The transaction was aborted and its records will be read again.
    Aborted {
        reason: String,
        /// Whether Kafka refused a record, and will again.
        refused: bool,
        /// The topic that called something too large. It judges what travels together, so each record may be fine.
        oversized: Option<String>,
        /// Whether only a new start can go on.
        anew: bool,
    },
    /// A new consumer and a new producer will find out what was committed.
    Anew {
        reason: String,
        /// Whether somebody else runs under the same ids.
        fenced: bool,
    },
    /// Somebody has to do something first.
    Ended(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Ended(error)
    }
}

pub(super) struct Session {
    consumer: Option<Arc<StreamConsumer<Membership>>>,
    producer: Producer,
    context: Context,
    cluster: String,
    transactional: bool,
    timeout: Duration,
}

impl Session {
    /// Starts a producer, which ends whatever its predecessor under the same id left open, and then joins the group:
    /// so it reads on at offsets that are final.
    pub(super) async fn start(
        settings: &Settings,
        options: &Options,
        topics: &[String],
        group: &str,
        transactional_id: &str,
        batch_bytes: usize,
    ) -> Result<Session, Trouble> {
        let context = Context::new(settings.bootstrap());
        let (transactional, timeout) = (options.guarantee == Guarantee::ExactlyOnce, settings.timeout());
        let mut config = match transactional {
            true => settings.transactional_producer(transactional_id),
            false => settings.producer(),
        };
        config.set("batch.size", batch_bytes.to_string());
        let producer = Producer::new(&config, &context).map_err(Error::from)?;
        let handle = producer.get().ok_or_else(|| anew("the producer is closed"))?;
        let cluster = blocking(move || {
            if transactional {
                handle.init_transactions(timeout)?;
            }
            Ok(handle.client().fetch_cluster_id(timeout))
        });
        let cluster = cluster.await.map_err(|error| started(&error, &context, transactional_id))?;
        let instance = options.instance.as_deref();
        let consumer = group_consumer(settings, group, instance, SESSION);
        let consumer = StreamConsumer::from_config_and_context(&consumer, Membership::new(context.clone()));
        let consumer: StreamConsumer<Membership> = consumer.map_err(|error| Error::from(unusable(&error)))?;
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        consumer.subscribe(&names).map_err(|error| Error::from(unusable(&error)))?;
        let (consumer, cluster) = (Some(Arc::new(consumer)), cluster.unwrap_or_default());
        Ok(Session { consumer, producer, context, cluster, transactional, timeout })
    }

    /// Waits for records and returns at least one. Partitions that go meanwhile take theirs along.
    pub(super) async fn read(&self, options: &Options) -> Result<Batch, Trouble> {
        let consumer = self.consumer()?;
        let mut batch = Batch { revocations: consumer.context().revocations(), ..Batch::default() };
        let mut due: Option<Instant> = None;
        loop {
            let next = match due {
                None => Ok(consumer.recv().await),
                Some(due) => tokio::time::timeout_at(due, consumer.recv()).await,
            };
            batch.keep_current(consumer.context().revocations());
            match next {
                Ok(Ok(record)) => {
                    let keep_record = options.dead_letters.is_some();
                    batch.items.push(Item::new(&record, &self.cluster, keep_record));
                    due.get_or_insert_with(|| Instant::now() + options.within);
                }
                Ok(Err(error)) => self.read_failed(&error)?,
                Err(_) => {}
            }
            let is_due = due.is_some_and(|due| due <= Instant::now());
            match batch.items.len() {
                0 => due = None,
                count if count >= options.most || is_due => return Ok(batch),
                _ => {}
            }
        }
    }

    fn read_failed(&self, error: &KafkaError) -> Result<(), Trouble> {
        let reason = explain(error, &self.context);
        match (error, error.rdkafka_error_code()) {
            (KafkaError::PartitionEOF(_), _) => Ok(()),
            (KafkaError::MessageConsumptionFatal(RDKafkaErrorCode::FencedInstanceId), _) => {
                Err(Trouble::Anew { reason, fenced: true })
            }
            (KafkaError::MessageConsumptionFatal(_), _) => Err(anew(reason)),
            (_, Some(RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::GroupAuthorizationFailed)) => {
                Err(Trouble::Ended(Error::Refused(reason)))
            }
            _ => {
                // librdkafka keeps trying.
                tracing::warn!(reason, "kafka: the pipeline cannot read now");
                Ok(())
            }
        }
    }

    /// Writes the records and commits that the batch was read, together; or, at least once, one after the other.
    pub(super) async fn commit(&self, batch: &Batch, outs: &[Out]) -> Result<(), Trouble> {
        let consumer = self.consumer()?;
        // Nobody has polled since the batch was complete, so this is the generation that it was read in: if the group
        // has moved on, the broker refuses the offsets.
        let Some(group) = consumer.group_metadata() else { return Err(anew("the group is not known")) };
        let producer = self.producer.get().ok_or_else(|| anew("the producer is closed"))?;
        if !self.transactional {
            return self.commit_apart(&producer, &consumer, batch, outs).await;
        }
        let beginning = producer.clone();
        blocking(move || beginning.begin_transaction()).await.map_err(|error| self.lost(&error))?;
        let mut deliveries = Vec::with_capacity(outs.len());
        match self.transact(&producer, batch.ends(), group, outs, &mut deliveries).await {
            Err(aborted @ Trouble::Aborted { .. }) => {
                let (aborting, timeout) = (producer.clone(), self.timeout);
                let ended = self.persist(move || aborting.abort_transaction(timeout)).await;
                let ended = ended.map_err(|error| self.lost(&error));
                let ended = match ended {
                    Ok(()) => self.rewind(&consumer, batch).await,
                    lost => lost,
                };
                // The transaction has ended, so that there is a report of each.
                let refused = self.undelivered_of(&mut deliveries, outs, Instant::now() + REPORTS).await;
                match (refused.unwrap_or(aborted), ended) {
                    // Somebody else is at work here, whatever was refused.
                    (_, Err(fenced @ Trouble::Anew { fenced: true, .. })) => Err(fenced),
                    (Trouble::Aborted { reason, refused, oversized, .. }, ended) => {
                        Err(Trouble::Aborted { reason, refused, oversized, anew: ended.is_err() })
                    }
                    (trouble, _) => Err(trouble),
                }
            }
            ended => ended,
        }
    }

    async fn transact(
        &self,
        producer: &FutureProducer<Context>,
        ends: TopicPartitionList,
        group: ConsumerGroupMetadata,
        outs: &[Out],
        deliveries: &mut Vec<DeliveryFuture>,
    ) -> Result<(), Trouble> {
        self.send(producer, outs, deliveries).await?;
        let (timeout, sending) = (self.timeout, producer.clone());
        let offsets = Arc::new((ends, group));
        let sent = self.persist(move || sending.send_offsets_to_transaction(&offsets.0, &offsets.1, timeout)).await;
        let committing = producer.clone();
        let committed = match sent {
            Ok(()) => {
                // The client library's commit looks for records under way ten times a second, so none are left to it,
                // unless a broker is slow: then it has the rest of the time.
                let deadline = Instant::now() + timeout;
                if let Some(refused) = self.undelivered_of(deliveries, outs, deadline).await {
                    return Err(refused);
                }
                let left = deadline.saturating_duration_since(Instant::now()).max(timeout / 10);
                self.persist(move || committing.commit_transaction(left)).await
            }
            Err(error) => Err(error),
        };
        let Err(error) = committed else { return Ok(()) };
        if !matches!(&error, KafkaError::Transaction(error) if error.txn_requires_abort()) {
            return Err(self.lost(&error));
        }
        let reason = explain(&error, &self.context);
        Err(Trouble::Aborted { reason, refused: false, oversized: None, anew: false })
    }

    /// Waits for the reports, and says what they tell of a record that was not delivered: a transaction's own error
    /// does not tell which and why.
    async fn undelivered_of(
        &self,
        deliveries: &mut [DeliveryFuture],
        outs: &[Out],
        deadline: Instant,
    ) -> Option<Trouble> {
        // Those that have told are silent when they are asked again.
        for (delivery, out) in deliveries.iter_mut().zip(outs) {
            let Ok(Ok(Err((error, _)))) = tokio::time::timeout_at(deadline, delivery).await else { continue };
            // What the abort took back is not what it was aborted for.
            let taken_back = [Some(RDKafkaErrorCode::PurgeQueue), Some(RDKafkaErrorCode::PurgeInflight)];
            if !taken_back.contains(&error.rdkafka_error_code()) {
                return Some(self.undelivered(&error, out));
            }
        }
        None
    }

    /// Enqueues the records, in their order.
    async fn send(
        &self,
        producer: &FutureProducer<Context>,
        outs: &[Out],
        deliveries: &mut Vec<DeliveryFuture>,
    ) -> Result<(), Trouble> {
        let deadline = Instant::now() + self.timeout;
        for out in outs {
            loop {
                match producer.send_result(out.record()) {
                    Ok(delivery) => break deliveries.push(delivery),
                    Err((error, _))
                        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull)
                            && Instant::now() < deadline =>
                    {
                        tokio::time::sleep(QUEUE_FULL).await;
                    }
                    Err((error, _)) => return Err(self.undelivered(&error, out)),
                }
            }
        }
        Ok(())
    }

    /// At least once: a crash between the two repeats the batch.
    async fn commit_apart(
        &self,
        producer: &FutureProducer<Context>,
        consumer: &Arc<StreamConsumer<Membership>>,
        batch: &Batch,
        outs: &[Out],
    ) -> Result<(), Trouble> {
        let mut deliveries = Vec::with_capacity(outs.len());
        self.send(producer, outs, &mut deliveries).await?;
        let deadline = Instant::now() + self.timeout;
        for (delivery, out) in deliveries.into_iter().zip(outs) {
            match tokio::time::timeout_at(deadline, delivery).await {
                Ok(Ok(Ok(_))) => {}
                Ok(Ok(Err((error, _)))) => match self.undelivered(&error, out) {
                    // What was acknowledged of it is there and comes again: this is at least once.
                    Trouble::Aborted { reason, refused, oversized, .. } => {
                        return Err(Trouble::Aborted { reason, refused, oversized, anew: true });
                    }
                    trouble => return Err(trouble),
                },
                Ok(Err(_)) | Err(_) => return Err(anew("the brokers do not acknowledge records")),
            }
        }
        let (consumer, ends) = (Arc::clone(consumer), batch.ends());
        let committed = blocking(move || consumer.commit(&ends, CommitMode::Sync)).await;
        committed.map_err(|error| anew(explain(&error, &self.context)))
    }

    /// Reads an aborted batch again.
    async fn rewind(&self, consumer: &Arc<StreamConsumer<Membership>>, batch: &Batch) -> Result<(), Trouble> {
        let (consumer, starts, timeout) = (Arc::clone(consumer), batch.starts(), self.timeout);
        let sought = blocking(move || {
            let sought = consumer.seek_partitions(starts, timeout)?;
            sought.elements().iter().try_for_each(|element| element.error())
        });
        sought.await.map_err(|error| anew(format!("the aborted records cannot be read again: {error}")))
    }

    /// Repeats a call of a transaction's for as long as librdkafka says that this may help.
    async fn persist(
        &self,
        call: impl Fn() -> Result<(), KafkaError> + Clone + Send + 'static,
    ) -> Result<(), KafkaError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            match blocking(call.clone()).await {
                Err(KafkaError::Transaction(error)) if error.is_retriable() && Instant::now() < deadline => {}
                ended => return ended,
            }
        }
    }

    /// A record was not taken.
    fn undelivered(&self, error: &KafkaError, out: &Out) -> Trouble {
        let code = error.rdkafka_error_code();
        let oversized = (code == Some(RDKafkaErrorCode::MessageSizeTooLarge)).then(|| out.topic().to_owned());
        let refused = oversized.is_some() || code.is_some_and(|code| topic_refused(code, out.topic()).is_some());
        let reason = format!("`{}`: {}", out.topic(), explain(error, &self.context));
        Trouble::Aborted { reason, refused, oversized, anew: false }
    }

    /// The most bytes that the topic takes at once; one record at a time where it does not tell.
    pub(super) async fn limit(&self, settings: &Settings, topic: &str) -> usize {
        let Ok(client) = Client::new(settings, &self.context) else { return 1 };
        let limit = client.setting(ResourceSpecifier::Topic(topic), "max.message.bytes", self.timeout).await;
        limit.and_then(|limit| limit.parse().ok()).unwrap_or(1).max(1)
    }

    /// What became of the transaction is not known, or the producer cannot go on.
    fn lost(&self, error: &KafkaError) -> Trouble {
        let fatal = self.producer.get().and_then(|producer| producer.client().fatal_error());
        let code = fatal.map(|(code, _)| code).or(error.rdkafka_error_code());
        Trouble::Anew { reason: explain(error, &self.context), fenced: code.is_some_and(is_fence) }
    }

    fn consumer(&self) -> Result<Arc<StreamConsumer<Membership>>, Trouble> {
        self.consumer.clone().ok_or_else(|| anew("the consumer is closed"))
    }

    /// Leaves the group. What was read and not committed is read again by whoever comes next.
    pub(super) async fn close(mut self) {
        let consumer = self.consumer.take();
        let left = tokio::task::spawn_blocking(move || drop(consumer));
        // A broker that does not answer is not waited for.
        let _ = tokio::time::timeout(self.timeout, left).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // librdkafka's own end takes a moment, so a thread waits for it.
        if let Some(consumer) = self.consumer.take() {
            std::thread::spawn(move || drop(consumer));
        }
    }
}

pub(super) fn anew(reason: impl Into<String>) -> Trouble {
    Trouble::Anew { reason: reason.into(), fenced: false }
}

/// Why a transactional id cannot be had.
fn started(error: &KafkaError, context: &Context, transactional_id: &str) -> Trouble {
    let reason = explain(error, context);
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::TransactionalIdAuthorizationFailed) => {
            Error::Refused(format!("this user may not use the transactional id `{transactional_id}`: {reason}")).into()
        }
        Some(RDKafkaErrorCode::InvalidTransactionTimeout) => Error::Refused(format!(
            "transaction_timeout_ms in the pipeline's URL is above the broker's transaction.max.timeout.ms: {reason}"
        ))
        .into(),
        _ => match context.heard() {
            Some((RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL, _)) => Error::Refused(reason).into(),
            _ => anew(reason),
        },
    }
}

fn is_fence(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::Fenced
            | RDKafkaErrorCode::ProducerFenced
            | RDKafkaErrorCode::InvalidProducerEpoch
            | RDKafkaErrorCode::FencedInstanceId
    )
}
