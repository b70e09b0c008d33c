//! What the reader's thread and those who receive share.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel::source::{Error, Received};
use tokio::sync::Notify;

use super::partition::{Partition, Read};

/// The most messages that wait to be received (I12).
const MAX_WAITING: usize = 2_000;

/// The most bytes of them. One message more than that may wait.
const MAX_WAITING_BYTES: usize = 8 * 1024 * 1024;

/// One delivery of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) offset: i64,
    /// Which assignment of the partition it was read in: after the partition went to somebody else it means nothing.
    pub(super) assignment: u64,
    pub(super) reading: u64,
}

/// Everything that is known of the group's partitions, and what waits to be received.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Something can be received, or never will.
    arrived: Notify,
    /// There is room, or something to do.
    room: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) partitions: HashMap<Arc<str>, HashMap<i32, Partition>>,
    waiting: VecDeque<Received<Receipt>>,
    waiting_bytes: usize,
    /// Counts assignments and readings, so that none is taken for another.
    epochs: u64,
    /// How often partitions came or went.
    pub(super) rebalances: u64,
    /// What went wrong and may pass by itself: told once.
    trouble: Option<String>,
    /// What somebody has to do something about: told always.
    refused: Option<String>,
    stopping: bool,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for messages. Nothing is lost if the future is dropped: they leave the queue when they are returned.
    pub(super) async fn receive(&self, most: usize) -> Result<Vec<Received<Receipt>>, Error> {
        loop {
            let mut arrived = std::pin::pin!(self.arrived.notified());
            arrived.as_mut().enable();
            {
                let mut state = self.lock();
                if !state.waiting.is_empty() {
                    let received = state.take(most.max(1));
                    self.room.notify_one();
                    return Ok(received);
                }
                if let Some(reason) = &state.refused {
                    return Err(Error::Refused(reason.clone().into()));
                }
                if let Some(reason) = state.trouble.take() {
                    return Err(Error::Unavailable(reason.into()));
                }
            }
            arrived.await;
        }
    }

    pub(super) fn acknowledge(&self, receipts: &[&Receipt]) {
        let mut state = self.lock();
        for receipt in receipts {
            if let Some(partition) = state.partition(&receipt.topic, receipt.partition) {
                partition.acknowledge(receipt.assignment, receipt.reading, receipt.offset);
            }
        }
    }

    pub(super) fn give_back(&self, receipts: &[&Receipt]) {
        let mut state = self.lock();
        for receipt in receipts {
            let new_reading = state.next_epoch();
            let Some(partition) = state.partition(&receipt.topic, receipt.partition) else { continue };
            let Receipt { assignment, reading, offset, .. } = **receipt;
            if partition.give_back(assignment, reading, offset, new_reading) {
                state.drop_waiting(|waiting| waiting.topic == receipt.topic && waiting.partition == receipt.partition);
            }
        }
        self.room.notify_one();
    }

    /// A record was read: hands it over, unless it is in hand or done. `message` makes a message of it.
    pub(super) fn deliver(
        &self,
        topic: &str,
        number: i32,
        offset: i64,
        message: impl FnOnce(i64, Receipt) -> Received<Receipt>,
    ) {
        let mut state = self.lock();
        let Some((topic, partitions)) = state.partitions.get_key_value(topic) else { return };
        let topic = Arc::clone(topic);
        if !partitions.contains_key(&number) {
            return;
        }
        let new_reading = state.next_epoch();
        let Some(partition) = state.partition(&topic, number) else { return };
        let read = partition.read(offset, new_reading);
        if partition.reading() == new_reading {
            let topic = &*topic;
            tracing::warn!(
                topic,
                partition = number,
                offset,
                "kafka: a log was cut off or made anew, and is read again"
            );
        }
        match read {
            Read::Skip => {}
            Read::Deliver { from } => {
                let (assignment, reading) = (partition.assignment(), partition.reading());
                let received = message(from, Receipt { topic, partition: number, offset, assignment, reading });
                state.waiting_bytes += received.message.payload.len();
                state.waiting.push_back(received);
                self.arrived.notify_one();
            }
            Read::Shorter { next } => {
                let reason = format!(
                    "partition {number} of `{topic}` goes on at offset {offset} and was applied up to {next}: the \
                     topic was deleted and made again, or its log was cut off. Begin a new generation of the consumer"
                );
                state.refused.get_or_insert(reason);
                self.arrived.notify_one();
            }
        }
    }

    /// Tells whoever receives next that something went wrong, which may pass by itself.
    pub(super) fn trouble(&self, reason: String) {
        self.lock().trouble = Some(reason);
        self.arrived.notify_one();
    }

    /// Tells whoever receives that somebody has to do something first.
    pub(super) fn refuse(&self, reason: String) {
        self.lock().refused.get_or_insert(reason);
        self.arrived.notify_one();
    }

    /// Ends the reader.
    pub(super) fn stop(&self) {
        self.lock().stopping = true;
        self.room.notify_one();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Waits for room, for so long at most, and says whether there is some.
    pub(super) fn wait_for_room(&self, patience: Duration) -> bool {
        let waited = self.room.wait_timeout_while(self.lock(), patience, |state| state.is_full() && !state.stopping);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.is_full()
    }

    /// Whether so little waits that reading should go on after a pause.
    pub(super) fn is_half_empty(&self) -> bool {
        let state = self.lock();
        state.waiting.len() <= MAX_WAITING / 2 && state.waiting_bytes <= MAX_WAITING_BYTES / 2
    }
}

impl State {
    pub(super) fn partition(&mut self, topic: &str, partition: i32) -> Option<&mut Partition> {
        self.partitions.get_mut(topic)?.get_mut(&partition)
    }

    pub(super) fn next_epoch(&mut self) -> u64 {
        self.epochs += 1;
        self.epochs
    }

    /// Takes note of a partition that came.
    pub(super) fn assign(&mut self, topic: &str, number: i32, partition: Partition) {
        self.rebalances += 1;
        self.partitions.entry(topic.into()).or_default().insert(number, partition);
    }

    /// Takes note of a partition that went: what was read of it and not received is dropped.
    pub(super) fn revoke(&mut self, topic: &str, number: i32) {
        self.rebalances += 1;
        if let Some(partitions) = self.partitions.get_mut(topic) {
            partitions.remove(&number);
        }
        self.drop_waiting(|waiting| &*waiting.topic == topic && waiting.partition == number);
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING || self.waiting_bytes >= MAX_WAITING_BYTES
    }

    fn take(&mut self, most: usize) -> Vec<Received<Receipt>> {
        let count = most.min(self.waiting.len());
        let taken: Vec<_> = self.waiting.drain(..count).collect();
        self.waiting_bytes -= taken.iter().map(|received| received.message.payload.len()).sum::<usize>();
        taken
    }

    fn drop_waiting(&mut self, is_dropped: impl Fn(&Receipt) -> bool) {
        self.waiting.retain(|received| !is_dropped(&received.receipt));
        self.waiting_bytes = self.waiting.iter().map(|received| received.message.payload.len()).sum();
    }
}
