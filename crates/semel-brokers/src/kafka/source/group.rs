//! What the group tells its member: partitions come and go.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};
use tokio::runtime::Handle;

use super::partition::Partition;
use super::shared::Shared;
use crate::kafka::context::Context;
use crate::subscription::Resume;

/// How long the store may take to say where reading goes on. The group waits meanwhile.
const ANSWER: Duration = Duration::from_secs(5);

/// Asks the store where its consumer reads on.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) resume: Arc<dyn Resume>,
    pub(super) cluster: Arc<str>,
    /// Where the store is asked: librdkafka's callbacks run on a thread of their own.
    pub(super) runtime: Handle,
}

/// Where a partition is read on: `None` where its log begins.
type Place = Option<i64>;

impl Places {
    /// Asks for several partitions at once. What the store does not say in time is an error.
    pub(super) fn ask(&self, partitions: &[(String, i32)]) -> Vec<Result<Place, String>> {
        let (answer, answers) = mpsc::channel();
        for (index, (topic, partition)) in partitions.iter().enumerate() {
            let (places, topic, partition, answer) = (self.clone(), topic.clone(), *partition, answer.clone());
            self.runtime.spawn(async move {
                let place = places.resume.next_offset(&places.cluster, &topic, partition).await;
                let _ = answer.send((index, place.map_err(|error| error.to_string())));
            });
        }
        drop(answer);
        let missing = || Err("the store did not answer in time".to_owned());
        let mut places: Vec<Result<Place, String>> = partitions.iter().map(|_| missing()).collect();
        let deadline = Instant::now() + ANSWER;
        while let Ok((index, place)) = answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            places[index] = place;
        }
        places
    }
}

/// Keeps [`Shared`] in step with the group.
pub(super) struct Group {
    pub(super) context: Context,
    pub(super) shared: Arc<Shared>,
    /// There for those who go by offsets.
    pub(super) places: Option<Places>,
}

impl ClientContext for Group {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.context.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.context.error(error, reason);
    }
}

impl ConsumerContext for Group {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, event: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        let cooperative = matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative);
        let done = if event == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.assigned(partitions).and_then(|()| match cooperative {
                true => consumer.incremental_assign(partitions),
                false => consumer.assign(partitions),
            })
        } else {
            self.revoked(consumer, partitions);
            match cooperative {
                true => consumer.incremental_unassign(partitions),
                false => consumer.unassign(),
            }
        };
        if let Err(error) = done {
            // The group takes the partitions back when this member does not read them.
            tracing::warn!(%error, "kafka: partitions could not be taken or left");
            self.shared.trouble(error.to_string());
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        let mut state = self.shared.lock();
        for element in offsets.elements() {
            if (result.is_err() || element.error().is_err())
                && let Some(partition) = state.partition(element.topic(), element.partition())
            {
                partition.not_committed();
            }
        }
        if let Err(error) = result {
            tracing::debug!(%error, "kafka: offsets were not committed and will be again");
        }
    }
}

impl Group {
    fn assigned(&self, partitions: &mut TopicPartitionList) -> Result<(), KafkaError> {
        let names: Vec<(String, i32)> =
            partitions.elements().iter().map(|it| (it.topic().to_owned(), it.partition())).collect();
        tracing::info!(?names, "kafka: partitions came");
        let places = self.places.as_ref().map(|places| places.ask(&names));
        let mut state = self.shared.lock();
        for (index, (topic, number)) in names.iter().enumerate() {
            let assignment = state.next_epoch();
            let partition = match places.as_ref().map(|places| &places[index]) {
                None => Partition::of_group(assignment),
                Some(Ok(place)) => {
                    let offset = place.map_or(Offset::Beginning, Offset::Offset);
                    partitions.set_partition_offset(topic, *number, offset)?;
                    Partition::of_store(assignment, Some(*place))
                }
                Some(Err(reason)) => {
                    tracing::warn!(topic, partition = number, reason, "kafka: where to read on is not known yet");
                    partitions.set_partition_offset(topic, *number, Offset::End)?;
                    Partition::of_store(assignment, None)
                }
            };
            state.assign(topic, *number, partition);
        }
        Ok(())
    }

    /// Tells the group how far its partitions are done before somebody else reads them.
    fn revoked(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        let mut done = TopicPartitionList::new();
        {
            let mut state = self.shared.lock();
            for element in partitions.elements() {
                let (topic, number) = (element.topic(), element.partition());
                tracing::info!(topic, partition = number, "kafka: a partition went");
                if let Some(offset) = state.partition(topic, number).and_then(Partition::commit) {
                    let _ = done.add_partition_offset(topic, number, Offset::Offset(offset));
                }
                state.revoke(topic, number);
            }
        }
        // Who lost its partitions has no say any more. What is not committed comes again, as duplicates.
        if done.count() > 0
            && !consumer.assignment_lost()
            && let Err(error) = consumer.commit(&done, CommitMode::Sync)
        {
            tracing::debug!(%error, "kafka: what was done of the partitions that went is not committed");
        }
    }
}
