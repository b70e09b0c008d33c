//! The thread that keeps the membership of the group alive, whether or not anybody receives.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::watch;

use super::group::{Group, Places};
use super::message;
use super::shared::Shared;
use crate::kafka::failure::explain;

/// How long one look for records waits, and so everything else.
const POLL: Duration = Duration::from_millis(100);

/// How long the partitions stay unpaused while there is no room: what was fetched ahead is fetched again after a pause.
const PATIENCE: Duration = Duration::from_millis(250);

/// How often the group is told how far its partitions are done.
const COMMIT_EVERY: Duration = Duration::from_secs(1);

/// How long a seek may take, and how long after a failed one the next is tried.
const SEEK: Duration = Duration::from_secs(5);
const SEEK_AGAIN: Duration = Duration::from_millis(200);

pub(super) struct Reader {
    pub(super) consumer: BaseConsumer<Group>,
    pub(super) shared: Arc<Shared>,
    pub(super) cluster: Arc<str>,
    /// There for those who go by offsets.
    pub(super) places: Option<Places>,
    /// Closed when the reader has ended.
    pub(super) _ended: watch::Sender<()>,
}

/// What the thread remembers from one round to the next.
struct Rounds {
    committed: Instant,
    /// At which count of rebalances everything was paused, if it is.
    paused: Option<u64>,
    seek_after: Instant,
}

/// Refuses whoever still receives when the thread ends, also by a panic.
struct Farewell(Arc<Shared>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.refuse("the source is closed".to_owned());
    }
}

impl Reader {
    /// Reads until it is told to stop; then commits what is done, and leaves the group.
    pub(super) fn run(self) {
        let _farewell = Farewell(Arc::clone(&self.shared));
        let now = Instant::now();
        let mut rounds = Rounds { committed: now, paused: None, seek_after: now };
        while !self.shared.is_stopping() {
            self.place(&mut rounds);
            if rounds.committed.elapsed() >= COMMIT_EVERY {
                self.commit(CommitMode::Async);
                rounds.committed = Instant::now();
            }
            if !self.has_room(&mut rounds) {
                continue;
            }
            match self.consumer.poll(POLL) {
                Some(Ok(record)) => {
                    let offset = record.offset();
                    self.shared.deliver(record.topic(), record.partition(), offset, |from, receipt| {
                        message::received(&record, &self.cluster, from, receipt)
                    });
                }
                Some(Err(error)) => self.failed(&error),
                None => {}
            }
        }
        self.commit(CommitMode::Sync);
    }

    /// Whether the next record may be read. While there is no room for long, partitions are paused and the group is
    /// served all the same.
    fn has_room(&self, rounds: &mut Rounds) -> bool {
        if let Some(rebalances) = rounds.paused {
            if self.shared.is_half_empty() {
                self.each_partition(|all| self.consumer.resume(all));
                rounds.paused = None;
            } else if self.shared.lock().rebalances != rebalances {
                self.pause(rounds);
            }
            return true;
        }
        if self.shared.wait_for_room(PATIENCE) {
            return true;
        }
        if !self.shared.is_stopping() {
            self.pause(rounds);
        }
        false
    }

    fn pause(&self, rounds: &mut Rounds) {
        rounds.paused = Some(self.shared.lock().rebalances);
        self.each_partition(|all| self.consumer.pause(all));
    }

    fn each_partition(&self, call: impl Fn(&TopicPartitionList) -> Result<(), KafkaError>) {
        if let Err(error) = self.consumer.assignment().and_then(|all| call(&all)) {
            tracing::debug!(%error, "kafka: partitions could not be paused or resumed");
        }
    }

    /// Reads partitions again of which something was given back, or of which the store did not say where to begin.
    fn place(&self, rounds: &mut Rounds) {
        if Instant::now() < rounds.seek_after {
            return;
        }
        let mut misplaced = Vec::new();
        for (topic, partitions) in &mut self.shared.lock().partitions {
            let each = partitions.iter_mut().filter(|(_, partition)| partition.is_misplaced());
            misplaced.extend(each.map(|(number, partition)| ((topic.to_string(), *number), partition.wanted())));
        }
        if misplaced.is_empty() {
            return;
        }
        let (names, wanted): (Vec<(String, i32)>, Vec<Option<i64>>) = misplaced.into_iter().unzip();
        let places = match &self.places {
            Some(places) => places.ask(&names),
            None => wanted.into_iter().map(Ok).collect(),
        };
        for ((topic, number), place) in names.iter().zip(places) {
            let sought = place.and_then(|place| self.seek(topic, *number, place).map(|()| place));
            match sought {
                Ok(place) => {
                    if let Some(partition) = self.shared.lock().partition(topic, *number) {
                        partition.placed(place);
                    }
                }
                Err(reason) => {
                    tracing::warn!(topic, partition = number, reason, "kafka: a partition cannot be read again yet");
                    rounds.seek_after = Instant::now() + SEEK_AGAIN;
                }
            }
        }
    }

    fn seek(&self, topic: &str, partition: i32, place: Option<i64>) -> Result<(), String> {
        let mut list = TopicPartitionList::new();
        let offset = place.map_or(Offset::Beginning, Offset::Offset);
        let added = list.add_partition_offset(topic, partition, offset);
        let sought =
            added.and_then(|()| self.consumer.seek_partitions(list, SEEK)).map_err(|error| error.to_string())?;
        sought.elements().iter().try_for_each(|element| element.error()).map_err(|error| error.to_string())
    }

    /// Tells the group how far its partitions are done.
    fn commit(&self, mode: CommitMode) {
        let mut done = TopicPartitionList::new();
        for (topic, partitions) in &mut self.shared.lock().partitions {
            for (number, partition) in partitions {
                if let Some(offset) = partition.commit() {
                    let _ = done.add_partition_offset(topic, *number, Offset::Offset(offset));
                }
            }
        }
        if done.count() == 0 {
            return;
        }
        if let Err(error) = self.consumer.commit(&done, mode) {
            tracing::debug!(%error, "kafka: offsets were not committed and will be again");
            let mut state = self.shared.lock();
            for element in done.elements() {
                if let Some(partition) = state.partition(element.topic(), element.partition()) {
                    partition.not_committed();
                }
            }
        }
    }

    fn failed(&self, error: &KafkaError) {
        let reason = explain(error, &self.consumer.context().context);
        match error {
            KafkaError::PartitionEOF(_) => {}
            KafkaError::MessageConsumptionFatal(_) => self.shared.refuse(reason),
            _ => match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
                    self.shared.refuse(format!("this user may not read a topic: {reason}"));
                }
                Some(RDKafkaErrorCode::GroupAuthorizationFailed) => {
                    self.shared.refuse(format!("this user may not use the group: {reason}"));
                }
                // One of several brokers, which librdkafka connects to again by itself.
                Some(RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::Resolve) => {}
                _ => self.shared.trouble(reason),
            },
        }
    }
}
