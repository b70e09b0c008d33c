//! Events and the lane's position in one Kafka transaction, one fenced producer per lane.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use semel::sink::{Error, Lane, Outgoing, Position};
use tokio::time::Instant;

use super::context::{Client, Context, Producer, blocking, transaction_timeout_too_long};
use super::failure::{failed_call, failed_delivery};
use super::positions::Positions;
use super::send::{only_first_failures, send};
use super::settings::{Settings, is_name};
use super::topics::Admitted;
use crate::wave::{refused, unavailable};

/// The lanes that this process holds at the broker.
///
/// A producer leaves the map while it publishes and comes back only when its transaction is known to be committed or
/// aborted. So a call that fails halfway, or whose future is dropped, gives the lane up, and nothing but
/// [`Transactional::take_lane`] can bring it back: a transaction whose end is unknown is never continued.
#[derive(Debug)]
pub(super) struct Transactional {
    settings: Settings,
    context: Context,
    installation: String,
    positions: Positions,
    lanes: Mutex<HashMap<Lane, Producer>>,
}

/// How a transaction that did not commit ended.
enum Ended {
    /// It was aborted; the lane can go on. The results say which events were at fault.
    Aborted(Vec<Result<(), Error>>),
    /// The lane is lost, or whether it committed is not known.
    Lost(Error),
}

impl Transactional {
    pub(super) fn new(
        settings: Settings,
        context: Context,
        client: Client,
        installation: &str,
    ) -> Result<Transactional, crate::Error> {
        if !is_name(installation) || installation.len() > 120 {
            return Err(crate::Error::Refused(format!(
                "`{installation}` cannot name an installation in Kafka: 1 to 120 letters, digits, dots, dashes or \
                 underscores"
            )));
        }
        let positions = Positions::new(settings.clone(), client, installation);
        Ok(Transactional {
            settings,
            context,
            installation: installation.to_owned(),
            positions,
            lanes: Mutex::default(),
        })
    }

    /// Fences the lane's older producers and reads the position that was committed last. When this returns, none of
    /// theirs can commit any more, and the position is final.
    pub(super) async fn take_lane(&self, lane: Lane, deadline: Instant) -> Result<Option<Position>, Error> {
        drop(self.remove(lane));
        self.positions.require(lane, deadline).await?;
        let id = format!("{}-{}-{}", self.settings.prefix(), self.installation, lane.0);
        let held = Producer::new(&self.settings.transactional_producer(&id), &self.context)?;
        let producer = held.get().ok_or_else(not_taken)?;
        let left = deadline.saturating_duration_since(Instant::now());
        let initialised = {
            let producer = producer.clone();
            blocking(move || producer.init_transactions(left)).await
        };
        if let Err(error) = initialised {
            return Err(match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::InvalidTransactionTimeout) => {
                    refused(transaction_timeout_too_long(&self.settings, None))
                }
                Some(RDKafkaErrorCode::TransactionalIdAuthorizationFailed) => {
                    refused(format!("this user may not use the transactional id `{id}`"))
                }
                _ => failed_call(&error, &producer, &self.context),
            });
        }
        drop(producer);
        let position = self.positions.read(lane, deadline).await?;
        self.insert(lane, held);
        Ok(position)
    }

    /// Publishes all of the batch and the position, or nothing.
    pub(super) async fn publish(
        &self,
        lane: Lane,
        batch: &[Outgoing],
        admitted: Vec<Result<Admitted, Error>>,
        position: &Position,
        deadline: Instant,
    ) -> Vec<Result<(), Error>> {
        if admitted.iter().any(Result::is_err) {
            return nothing_published(batch, admitted.into_iter().map(|admitted| admitted.map(|_| ())).collect());
        }
        let Some(held) = self.remove(lane) else { return fail_all(batch, &not_taken()) };
        let Some(producer) = held.get() else { return fail_all(batch, &not_taken()) };
        let ended = self.transact(&producer, lane, batch, admitted, position, deadline).await;
        drop(producer);
        match ended {
            Ok(()) => {
                self.insert(lane, held);
                batch.iter().map(|_| Ok(())).collect()
            }
            Err(Ended::Aborted(results)) => {
                self.insert(lane, held);
                nothing_published(batch, results)
            }
            Err(Ended::Lost(error)) => fail_all(batch, &error),
        }
    }

    /// Gives every lane up. Transactions end within the calls that began them, so none is open.
    pub(super) fn close(&self) {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    async fn transact(
        &self,
        producer: &FutureProducer<Context>,
        lane: Lane,
        batch: &[Outgoing],
        admitted: Vec<Result<Admitted, Error>>,
        position: &Position,
        deadline: Instant,
    ) -> Result<(), Ended> {
        let lost = |error: KafkaError| Ended::Lost(failed_call(&error, producer, &self.context));
        let beginning = producer.clone();
        blocking(move || beginning.begin_transaction()).await.map_err(lost)?;
        // The position travels with the events: the commit waits for both, and an abort takes both back.
        let sending = send(producer, &self.context, batch, admitted, deadline);
        let (sent, positioned) = tokio::join!(sending, self.send_position(producer, lane, position, deadline));
        if sent.results.iter().any(Result::is_err) {
            let aborted = self.abort(producer, deadline).await;
            // Only refusals leave the lane as it was: otherwise the broker is not well, or the lane not ours.
            let mut serious = sent.results.iter().filter_map(|result| match result {
                Err(Error::Fenced) => Some(Error::Fenced),
                Err(Error::Unavailable(source)) => Some(unavailable(source.to_string())),
                _ => None,
            });
            return Err(match (aborted, serious.next()) {
                (Err(Error::Fenced), _) => Ended::Lost(Error::Fenced),
                (_, Some(error)) | (Err(error), None) => Ended::Lost(error),
                (Ok(()), None) => Ended::Aborted(sent.results),
            });
        }
        if let Err(error) = positioned {
            return Err(Ended::Lost(self.abort(producer, deadline).await.err().unwrap_or(error)));
        }
        let committing = producer.clone();
        let left = deadline.saturating_duration_since(Instant::now());
        match blocking(move || committing.commit_transaction(left)).await {
            Ok(()) => Ok(()),
            Err(KafkaError::Transaction(error)) if error.txn_requires_abort() => {
                let error = failed_call(&KafkaError::Transaction(error), producer, &self.context);
                Err(Ended::Lost(self.abort(producer, deadline).await.err().unwrap_or(error)))
            }
            Err(error) => Err(lost(error)),
        }
    }

    async fn send_position(
        &self,
        producer: &FutureProducer<Context>,
        lane: Lane,
        position: &Position,
        deadline: Instant,
    ) -> Result<(), Error> {
        let topic = self.positions.topic();
        let (key, payload) = (lane.0.to_string(), Positions::encode(position));
        let record = FutureRecord::to(topic).partition(i32::from(lane.0)).key(&key).payload(&payload);
        let failed = |error: &KafkaError| failed_delivery(error, topic, &self.context);
        let delivery = producer.send_result(record).map_err(|(error, _)| failed(&error))?;
        match tokio::time::timeout_at(deadline, delivery).await {
            Ok(Ok(Ok(_))) => Ok(()),
            Ok(Ok(Err((error, _)))) => Err(failed(&error)),
            Ok(Err(_)) | Err(_) => Err(unavailable("the position was not acknowledged in time")),
        }
    }

    /// Aborts. If that fails, the broker does so when the lane is taken again, or after the transaction's timeout.
    async fn abort(&self, producer: &FutureProducer<Context>, deadline: Instant) -> Result<(), Error> {
        let aborting = producer.clone();
        let left = deadline.saturating_duration_since(Instant::now());
        let aborted = blocking(move || aborting.abort_transaction(left)).await;
        aborted.map_err(|error| failed_call(&error, producer, &self.context))
    }

    fn remove(&self, lane: Lane) -> Option<Producer> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).remove(&lane)
    }

    fn insert(&self, lane: Lane, held: Producer) {
        // If the lane was taken anew meanwhile, this producer is the fenced one.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).entry(lane).or_insert(held);
    }
}

/// The results of a batch of which nothing was published: what was not at fault waits for what was.
fn nothing_published(batch: &[Outgoing], results: Vec<Result<(), Error>>) -> Vec<Result<(), Error>> {
    let results = only_first_failures(batch, results);
    results.into_iter().map(|result| Err(result.err().unwrap_or(Error::Behind))).collect()
}

/// The results of a batch that was not published as a whole. Of each key, the first event bears the error.
fn fail_all(batch: &[Outgoing], error: &Error) -> Vec<Result<(), Error>> {
    let errors = batch.iter().map(|_| match error {
        Error::Fenced => Err(Error::Fenced),
        Error::Unavailable(source) | Error::Refused(source) => Err(unavailable(source.to_string())),
        other => Err(unavailable(other.to_string())),
    });
    match error {
        Error::Fenced => errors.collect(),
        _ => nothing_published(batch, errors.collect()),
    }
}

fn not_taken() -> Error {
    unavailable("the lane has to be taken before it can be published")
}
