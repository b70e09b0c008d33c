//! Applies the messages of some ordering keys, in their order.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::apply::consume;
use super::{Context, Failure, Handler, Pending, Shared, failed};
use crate::backoff::{Backoff, stopped};
use crate::consume::Fate;
use crate::error::told;
use crate::inbox::{Delivery, Identity, Inbox};
use crate::letter::Letter;
use crate::once::Error as OnceError;
use crate::source::{Recognition, Source};
use crate::{Error as StoreError, Next, failpoint, observe};

/// What must not be passed over: the partition for those who go by offsets, else the ordering key.
pub(super) fn order_of(delivery: &Delivery) -> String {
    match (&delivery.identity, &delivery.order) {
        (Identity::Offset(offset), _) => format!("{}/{}", offset.partition, offset.topic),
        (_, order) => order.clone().unwrap_or_default(),
    }
}

/// The entity whose version it carries.
fn entity_of(delivery: &Delivery) -> Option<String> {
    delivery.version.as_ref().map(|version| version.entity.clone())
}

pub(super) struct Worker<S: Inbox, K: Source, H> {
    context: Arc<Context<S, K, H>>,
    incoming: mpsc::UnboundedReceiver<Pending<K::Receipt>>,
    stopping: watch::Receiver<bool>,
    /// What can be tried now, in the order of arrival.
    ready: VecDeque<Pending<K::Receipt>>,
    /// What waits behind a message that failed.
    held: HashMap<String, Held<K::Receipt>>,
    /// What waits for the version before its own, which may come behind it.
    early: Vec<Early<K::Receipt>>,
    /// How many more are tried one by one, because together they failed.
    alone: usize,
    /// Pauses while the store cannot be reached.
    backoff: Backoff,
}

/// An ordering key whose first message failed.
struct Held<R> {
    /// The message that failed, and what came behind it.
    queue: VecDeque<Pending<R>>,
    attempts: u32,
    due: Instant,
}

/// A message that came before the version before it.
struct Early<R> {
    pending: Pending<R>,
    attempts: u32,
    due: Instant,
}

/// Where a message of a batch came from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum From {
    Ready,
    /// It is the first of its held key, and was tried so often.
    Held(u32),
    Early(u32),
}

/// Why a message was not applied.
struct Failed {
    cause: String,
    hopeless: bool,
    /// Whether it is the message's own fault: others' faults set no message aside.
    counts: bool,
}

type Batch<R> = Vec<(Pending<R>, From)>;

impl<S: Inbox, K: Source, H: Handler<S>> Worker<S, K, H> {
    pub(super) fn new(
        context: Arc<Context<S, K, H>>,
        incoming: mpsc::UnboundedReceiver<Pending<K::Receipt>>,
        stopping: watch::Receiver<bool>,
    ) -> Worker<S, K, H> {
        let settings = &context.settings;
        let backoff = Backoff::new(settings.backoff_min, settings.backoff_max.min(std::time::Duration::from_secs(5)));
        Worker {
            context,
            incoming,
            stopping,
            ready: VecDeque::new(),
            held: HashMap::new(),
            early: Vec::new(),
            alone: 0,
            backoff,
        }
    }

    /// Works until it is told to stop, then gives back what is left.
    pub(super) async fn work(mut self) {
        while !*self.stopping.borrow() {
            while let Ok(pending) = self.incoming.try_recv() {
                self.admit(pending);
            }
            let batch = self.next_batch();
            if !batch.is_empty() {
                self.apply(batch).await;
                continue;
            }
            let due = self.next_due();
            let wake = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                pending = self.incoming.recv() => match pending {
                    Some(pending) => self.admit(pending),
                    None => break,
                },
                () = wake => {}
                () = stopped(&mut self.stopping) => break,
            }
        }
        self.give_back_everything().await;
    }

    fn admit(&mut self, pending: Pending<K::Receipt>) {
        match self.held.get_mut(&order_of(&pending.item.delivery)) {
            Some(held) => held.queue.push_back(pending),
            None => self.ready.push_back(pending),
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let held = self.held.values().map(|held| held.due);
        held.chain(self.early.iter().map(|early| early.due)).min()
    }

    /// What is tried next: the first message of each held key whose pause is over, what is ready, and last the early
    /// ones, because what they wait for may be among these.
    fn next_batch(&mut self) -> Batch<K::Receipt> {
        let now = Instant::now();
        let most = if self.alone > 0 { 1 } else { self.context.settings.batch };
        let mut batch = Vec::new();
        for held in self.held.values_mut().filter(|held| held.due <= now) {
            let Some(first) = held.queue.front() else { continue };
            // One that cannot be applied is not tried with others.
            let unusable = first.item.unusable.is_some();
            if batch.len() >= most || (unusable && !batch.is_empty()) {
                continue;
            }
            batch.extend(held.queue.pop_front().map(|first| (first, From::Held(held.attempts))));
            if unusable {
                return batch;
            }
        }
        while batch.len() < most
            && let Some(first) = self.ready.front()
        {
            let unusable = first.item.unusable.is_some();
            if unusable && !batch.is_empty() {
                break;
            }
            batch.extend(self.ready.pop_front().map(|first| (first, From::Ready)));
            if unusable {
                return batch;
            }
        }
        let mut place = 0;
        while place < self.early.len() && batch.len() < most {
            if self.early[place].due <= now {
                let early = self.early.remove(place);
                batch.push((early.pending, From::Early(early.attempts)));
            } else {
                place += 1;
            }
        }
        self.alone = self.alone.saturating_sub(batch.len());
        batch
    }

    async fn apply(&mut self, batch: Batch<K::Receipt>) {
        if let [(pending, _)] = batch.as_slice()
            && let Some(why) = pending.item.unusable.clone()
        {
            let failed = Failed { cause: why, hopeless: true, counts: true };
            let mut batch = batch;
            if let Some((pending, from)) = batch.pop() {
                self.fail(pending, from, failed).await;
            }
            return;
        }
        let items: Vec<Shared> = batch.iter().map(|(pending, _)| pending.item.clone()).collect();
        // A task of its own: an effect that panics is a message that failed, and not the end of the consumer.
        // It ends with this worker: no effect runs on once the runner has returned. A COMMIT that has left may still
        // take effect, and then the message comes again as a duplicate.
        let mut tried = JoinSet::new();
        tried.spawn(consume(Arc::clone(&self.context), items));
        let Some(tried) = tried.join_next().await else { return };
        match tried {
            Ok(Ok(fates)) => {
                self.backoff.reset();
                self.settle(batch, fates).await;
            }
            Ok(Err(error)) => self.failed_together(batch, error).await,
            Err(_) if batch.len() > 1 => self.try_alone(batch),
            Err(_) => {
                for (pending, from) in batch {
                    observe::inbox_failure(self.context.consumer.name());
                    let cause = "the effect panicked".to_owned();
                    self.fail(pending, from, Failed { cause, hopeless: false, counts: true }).await;
                }
            }
        }
    }

    /// Everything was rolled back.
    async fn failed_together(&mut self, mut batch: Batch<K::Receipt>, error: OnceError<Failure>) {
        match error {
            // Another worker reads these partitions now; the source finds out where to go on.
            OnceError::Store(StoreError::Fenced) => {
                tracing::warn!("another worker reads this consumer's partitions; reading on from where that one is");
                observe::fenced_write();
                self.ready.extend(batch.drain(..).map(|(pending, _)| pending));
                self.give_back_everything().await;
            }
            // Whoever tries them together again would fail again: one of them it is.
            OnceError::Store(refused) if blames_a_message(&refused) && batch.len() > 1 => self.try_alone(batch),
            OnceError::Store(refused) if blames_a_message(&refused) => {
                let cause = told(&(refused.into()));
                for (pending, from) in batch {
                    let failed = Failed { cause: cause.clone(), hopeless: false, counts: true };
                    self.fail(pending, from, failed).await;
                }
            }
            // No message's fault.
            error => {
                failed("apply messages", &error);
                self.put_back(batch);
                tokio::select! {
                    () = tokio::time::sleep(self.backoff.next()) => {}
                    () = stopped(&mut self.stopping) => {}
                }
            }
        }
    }

    fn try_alone(&mut self, batch: Batch<K::Receipt>) {
        self.alone = batch.len();
        self.put_back(batch);
    }

    /// Puts everything back where it came from, in its order.
    fn put_back(&mut self, batch: Batch<K::Receipt>) {
        let now = Instant::now();
        for (pending, from) in batch.into_iter().rev() {
            match from {
                From::Ready => self.ready.push_front(pending),
                From::Early(attempts) => self.early.push(Early { pending, attempts, due: now }),
                From::Held(attempts) => {
                    let held = self.held.entry(order_of(&pending.item.delivery));
                    held.or_insert_with(|| Held { queue: VecDeque::new(), attempts, due: now })
                        .queue
                        .push_front(pending);
                }
            }
        }
    }

    /// Acknowledges what is committed, and sees to the rest.
    async fn settle(&mut self, batch: Batch<K::Receipt>, fates: Vec<Fate<Failure>>) {
        let mut seen = Vec::with_capacity(batch.len());
        let mut failures = Vec::new();
        let mut behind = Vec::new();
        let mut moved = BTreeSet::new();
        for ((pending, from), fate) in batch.into_iter().zip(fates) {
            match fate {
                Fate::Applied | Fate::Duplicate | Fate::Stale => {
                    if matches!(from, From::Held(_)) {
                        self.release(&order_of(&pending.item.delivery));
                    }
                    if matches!(fate, Fate::Applied) {
                        moved.extend(entity_of(&pending.item.delivery));
                    }
                    seen.push(pending);
                }
                Fate::Behind => behind.push(pending),
                Fate::Early => failures.push((pending, from, None)),
                Fate::Failed(Failure { cause, hopeless }) => {
                    failures.push((pending, from, Some(Failed { cause: told(&cause), hopeless, counts: true })));
                }
                Fate::Refused(error) => {
                    // A lane with too many holes is no message's fault: it waits until one closes.
                    let counts = !matches!(error, StoreError::Ahead { .. });
                    let cause = told(&(Box::new(error) as crate::sink::Source));
                    failures.push((pending, from, Some(Failed { cause, hopeless: false, counts })));
                }
            }
        }
        self.acknowledge(seen).await;
        for (pending, from, failed) in failures {
            match failed {
                Some(failed) => self.fail(pending, from, failed).await,
                None => self.wait(pending, from, &moved).await,
            }
        }
        // A key whose first message is settled by now goes on with these; else they wait behind it.
        for pending in behind.into_iter().rev() {
            match self.held.get_mut(&order_of(&pending.item.delivery)) {
                // Behind the one that failed, and before all that came later.
                Some(held) => held.queue.insert(1.min(held.queue.len()), pending),
                None => self.ready.push_front(pending),
            }
        }
        let now = Instant::now();
        for early in &mut self.early {
            if entity_of(&early.pending.item.delivery).is_some_and(|entity| moved.contains(&entity)) {
                (early.attempts, early.due) = (0, now);
            }
        }
    }

    /// A key goes on: what waited is tried before what arrives.
    fn release(&mut self, order: &str) {
        if let Some(held) = self.held.remove(order) {
            for pending in held.queue.into_iter().rev() {
                self.ready.push_front(pending);
            }
        }
    }

    async fn acknowledge(&self, seen: Vec<Pending<K::Receipt>>) {
        if seen.is_empty() {
            return;
        }
        failpoint::reach(failpoint::CONSUMER_COMMITTED).await;
        let receipts: Vec<&K::Receipt> = seen.iter().map(|pending| &*pending.receipt.receipt).collect();
        if let Err(error) = self.context.source.acknowledge(&receipts).await {
            // They come again, and are duplicates.
            failed("acknowledge messages", &error);
        }
        failpoint::reach(failpoint::CONSUMER_ACKNOWLEDGED).await;
    }

    /// A message was not applied: its key is held, or the message is set aside.
    async fn fail(&mut self, pending: Pending<K::Receipt>, from: From, failed: Failed) {
        let settings = &self.context.settings;
        // That it had to wait for its version is no failure.
        let before = if let From::Held(attempts) = from { attempts } else { 0 };
        let attempts = before + u32::from(failed.counts);
        let order = order_of(&pending.item.delivery);
        if failed.counts && (failed.hopeless || attempts >= settings.attempts) {
            match self.set_aside(&pending, &failed.cause, attempts).await {
                Ok(()) => {
                    self.release(&order);
                    self.acknowledge(vec![pending]).await;
                    return;
                }
                // It cannot be set aside while the store is away: it is tried again instead.
                Err(error) => super::failed("set a message aside", &error),
            }
        } else {
            observe::message(self.context.consumer.name(), "retried");
            let (id, cause) = (&pending.item.message.id, &failed.cause);
            tracing::warn!(consumer = self.context.consumer.name(), id, cause, attempts, "a message failed");
        }
        let due = Instant::now() + Backoff::after(attempts.max(1), settings.backoff_min, settings.backoff_max);
        let (behind, others): (VecDeque<_>, VecDeque<_>) =
            self.ready.drain(..).partition(|ready| order_of(&ready.item.delivery) == order);
        self.ready = others;
        let held = self.held.entry(order).or_insert_with(|| Held { queue: VecDeque::new(), attempts, due });
        (held.attempts, held.due) = (attempts, due);
        held.queue.push_front(pending);
        held.queue.extend(behind);
    }

    /// A message came before the version before it, which may be behind it: others of its key go on.
    async fn wait(&mut self, pending: Pending<K::Receipt>, from: From, moved: &BTreeSet<String>) {
        if self.context.settings.recognition == Recognition::Offset {
            let cause = "the version before it has not been applied".to_owned();
            return self.fail(pending, from, Failed { cause, hopeless: false, counts: true }).await;
        }
        if matches!(from, From::Held(_)) {
            self.release(&order_of(&pending.item.delivery));
        }
        let before = if let From::Early(attempts) = from { attempts } else { 0 };
        let settings = &self.context.settings;
        // While its entity moves on, the gap is closing.
        let moves = entity_of(&pending.item.delivery).is_some_and(|entity| moved.contains(&entity));
        let attempts = if moves { 0 } else { before + 1 };
        if attempts >= settings.attempts {
            let cause = "the version before it did not come";
            match self.set_aside(&pending, cause, attempts).await {
                Ok(()) => return self.acknowledge(vec![pending]).await,
                Err(error) => failed("set a message aside", &error),
            }
        }
        let due = Instant::now() + Backoff::after(attempts.max(1), settings.backoff_min, settings.backoff_max);
        self.early.push(Early { pending, attempts, due });
    }

    /// Records a message as seen and keeps it as a dead letter, in one commit.
    async fn set_aside(&self, pending: &Pending<K::Receipt>, cause: &str, attempts: u32) -> Result<(), StoreError> {
        let (consumer, item) = (&self.context.consumer, &pending.item);
        let letter = Letter { message: item.message.clone(), cause: cause.to_owned(), attempts };
        if self.context.semel.store().dead_letter(consumer, &item.delivery, &letter).await? {
            observe::message(consumer.name(), "dead_lettered");
            tracing::error!(
                consumer = consumer.name(),
                id = item.message.id,
                cause,
                attempts,
                "a message was set aside: see `semel inbox dead`"
            );
        }
        failpoint::reach(failpoint::CONSUMER_DEAD_LETTERED).await;
        Ok(())
    }

    async fn give_back_everything(&mut self) {
        while let Ok(pending) = self.incoming.try_recv() {
            self.admit(pending);
        }
        let held = self.held.drain().flat_map(|(_, held)| held.queue);
        let early = self.early.drain(..).map(|early| early.pending);
        let all: Vec<_> = held.chain(self.ready.drain(..)).chain(early).collect();
        if all.is_empty() {
            return;
        }
        let receipts: Vec<&K::Receipt> = all.iter().map(|pending| &*pending.receipt.receipt).collect();
        if let Err(error) = self.context.source.give_back(&receipts).await {
            failed("give messages back", &error);
        }
    }
}

/// Whether a message may be at fault: what stands in the way of all of them is nobody's.
fn blames_a_message(error: &StoreError) -> bool {
    let everyones = matches!(error, StoreError::Schema(_) | StoreError::Settings(_) | StoreError::Incarnation { .. });
    error.next() == Next::Stop && !everyones
}
