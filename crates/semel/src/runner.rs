//! Applies what a source brings, each message once.
//!
//! A runner receives messages, applies them in batches, many ordering keys side by side and each in its order, commits
//! effects and proofs together (I6), and acknowledges after the commit. A crash at any point leaves messages either
//! applied and unacknowledged, which come again as duplicates, or neither.
//!
//! A message that fails is tried again, with growing pauses, and holds up its ordering key only. After the last attempt
//! it is set aside as a dead letter, with the cause, and the key goes on.

mod apply;
mod letters;
mod retention;
mod settings;
mod worker;

use std::collections::HashMap;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use settings::Settings;

use crate::backoff::{Backoff, stopped};
use crate::inbox::{Consumer, Delivery, Identity, Inbox, Version};
use crate::letter::Declaration;
use crate::runner::worker::Worker;
use crate::source::{self, Message, Received, Recognition, Source};
use crate::store::Store;
use crate::tier::Tier;
use crate::{Error as StoreError, Semel, failpoint};

/// What a consumer does with a message.
pub trait Handler<S: Store>: Send + Sync + 'static {
    /// The version of an entity that the message carries, if the order of versions matters.
    fn version(&self, message: &Message) -> Option<Version> {
        let _ = message;
        None
    }

    /// The effect, inside the transaction that also records the message. It may be run more than once, and of these
    /// runs at most one is committed.
    ///
    /// A message that does not concern this consumer is `Ok`.
    fn apply(&self, tx: &mut S::Tx, message: &Message) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Why an effect failed.
#[derive(Debug)]
pub struct Failure {
    cause: crate::sink::Source,
    hopeless: bool,
}

impl Failure {
    /// It will fail however often it is tried: the message goes to the dead letters at once.
    pub fn hopeless(cause: impl Into<crate::sink::Source>) -> Failure {
        Failure { cause: cause.into(), hopeless: true }
    }
}

impl<E: Into<crate::sink::Source>> From<E> for Failure {
    fn from(cause: E) -> Failure {
        Failure { cause: cause.into(), hopeless: false }
    }
}

/// Applies what the source `K` brings to the store `S`, by the handler `H`.
#[derive(Debug)]
pub struct Runner<S, K, H> {
    semel: Semel<S>,
    source: Arc<K>,
    handler: Arc<H>,
    tiers: Vec<Arc<dyn Tier>>,
    consumer: Consumer,
    settings: Settings,
}

/// Why a runner ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was told to stop.
    Stopped,
    /// Somebody began a new generation of the consumer: connect the source anew, in that generation, and run again.
    NewGeneration(u32),
}

/// Why a runner does not run. Whatever may pass by itself is tried again instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting cannot work.
    #[error("{0}")]
    Settings(String),
    /// The store refuses: its schema is another version's, or the consumer was declared otherwise.
    #[error(transparent)]
    Store(StoreError),
    /// The source refuses.
    #[error(transparent)]
    Source(source::Error),
    /// A task of the runner panicked. What it had in hand will be delivered again.
    #[error("a task of the consumer panicked; what it had in hand will be delivered again")]
    Panicked,
}

/// What everything that belongs to one run shares.
struct Context<S, K, H> {
    semel: Semel<S>,
    source: Arc<K>,
    handler: Arc<H>,
    tiers: Vec<Arc<dyn Tier>>,
    consumer: Consumer,
    settings: Settings,
}

/// A message in hand.
struct Pending<R> {
    item: Shared,
    receipt: InHand<R>,
    _room: Taken,
}

/// What is applied.
struct Item {
    message: Message,
    delivery: Delivery,
    /// Why it can never be applied, if it cannot.
    unusable: Option<String>,
}

/// How many bytes of messages are in hand.
#[derive(Clone)]
struct Room(Arc<watch::Sender<u64>>);

/// What a message takes of the room, until it is settled.
struct Taken {
    room: Room,
    bytes: u64,
}

impl Room {
    fn take(&self, bytes: usize) -> Taken {
        let bytes = (bytes as u64).max(1024);
        self.0.send_modify(|taken| *taken += bytes);
        Taken { room: self.clone(), bytes }
    }

    /// Completes when less than this is taken.
    async fn below(&self, limit: u64) {
        // This side keeps the channel open.
        let _ = self.0.subscribe().wait_for(|taken| *taken < limit).await;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.0.send_modify(|taken| *taken -= self.bytes);
    }
}

/// What is applied, shared by whoever keeps it and whoever tries it.
#[derive(Clone)]
struct Shared(Arc<Item>);

impl std::ops::Deref for Shared {
    type Target = Item;

    fn deref(&self) -> &Item {
        &self.0
    }
}

impl AsRef<Delivery> for Shared {
    fn as_ref(&self) -> &Delivery {
        &self.0.delivery
    }
}

/// The receipts of everything in hand, so that the broker can be told that it is being worked on.
struct Receipts<R> {
    next: AtomicU64,
    held: Mutex<HashMap<u64, Arc<R>>>,
}

/// A receipt, listed for as long as it is in hand.
struct InHand<R> {
    number: u64,
    receipt: Arc<R>,
    list: Arc<Receipts<R>>,
}

impl<R> Receipts<R> {
    fn new() -> Arc<Receipts<R>> {
        Arc::new(Receipts { next: AtomicU64::new(0), held: Mutex::new(HashMap::new()) })
    }

    fn take(self: &Arc<Self>, receipt: R) -> InHand<R> {
        let (number, receipt) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::new(receipt));
        self.lock().insert(number, Arc::clone(&receipt));
        InHand { number, receipt, list: Arc::clone(self) }
    }

    fn all(&self) -> Vec<Arc<R>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<R>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Drop for InHand<R> {
    fn drop(&mut self) {
        self.list.lock().remove(&self.number);
    }
}

impl<S: Inbox, K: Source, H: Handler<S>> Runner<S, K, H> {
    /// A runner of a consumer, in the generation that its source was opened in. Fails if a setting is out of bounds.
    pub fn new(
        semel: Semel<S>,
        source: K,
        handler: H,
        consumer: Consumer,
        settings: Settings,
    ) -> Result<Runner<S, K, H>, Error> {
        settings.check().map_err(Error::Settings)?;
        let (source, handler) = (Arc::new(source), Arc::new(handler));
        Ok(Runner { semel, source, handler, tiers: Vec::new(), consumer, settings })
    }

    /// The same runner with a tier in front of its store, for those who recognise messages by their ids. Tiers are
    /// asked in the order in which they were given.
    #[must_use]
    pub fn with_tier(mut self, tier: Arc<dyn Tier>) -> Runner<S, K, H> {
        self.tiers.push(tier);
        self
    }

    /// Consumes until `stop` completes; then lets what is being applied end, acknowledges it, and gives the rest back.
    ///
    /// A store or a source that cannot be reached is tried again for as long as it takes. An error means that the
    /// runner refuses to run: somebody has to do something first.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) -> Result<Ended, Error> {
        let (stopping, stopped) = watch::channel(false);
        let result = {
            let mut consuming = std::pin::pin!(self.consume(stopped));
            tokio::select! {
                result = &mut consuming => result,
                () = stop => {
                    let _ = stopping.send(true);
                    consuming.await
                }
            }
        };
        self.source.close().await;
        result
    }

    async fn consume(&self, mut stopping: watch::Receiver<bool>) -> Result<Ended, Error> {
        // Before it is declared: ids are forgotten by what was declared last (I9).
        if !retention::required(self, &mut stopping).await? {
            return Ok(Ended::Stopped);
        }
        let Some(consumer) = self.declare(&mut stopping).await? else { return Ok(Ended::Stopped) };
        // A source of another generation would bring its messages where they prove nothing.
        if consumer.generation() != self.consumer.generation() {
            return Ok(Ended::NewGeneration(consumer.generation()));
        }
        tracing::info!(
            consumer = consumer.name(),
            generation = consumer.generation(),
            by = self.settings.recognition.as_str(),
            "consuming"
        );
        let context = Arc::new(Context {
            semel: self.semel.clone(),
            source: Arc::clone(&self.source),
            handler: Arc::clone(&self.handler),
            tiers: self.tiers.clone(),
            consumer,
            settings: self.settings.clone(),
        });
        let (ending, ended) = watch::channel(false);
        let receipts = Receipts::new();
        let (mut feeds, mut workers) = (Vec::new(), JoinSet::new());
        for _ in 0..self.settings.workers {
            let (feed, incoming) = mpsc::unbounded_channel();
            feeds.push(feed);
            workers.spawn(Worker::new(Arc::clone(&context), incoming, ended.clone()).work());
        }
        let result = {
            // Each has what it needs for itself: a runner can be spawned.
            let receiving = receive(Arc::clone(&context), Arc::clone(&receipts), feeds);
            tokio::select! {
                () = stopped(&mut stopping) => Ok(Ended::Stopped),
                generation = letters::look_after(Arc::clone(&context)) => Ok(Ended::NewGeneration(generation)),
                refused = receiving => Err(refused),
                () = prolong(Arc::clone(&context), receipts) => Err(Error::Panicked),
                () = retention::watch(Arc::clone(&context)) => Err(Error::Panicked),
                Some(_) = workers.join_next() => Err(Error::Panicked),
            }
        };
        let _ = ending.send(true);
        let until = Instant::now() + self.settings.patience;
        while let Ok(Some(_)) = tokio::time::timeout_at(until, workers.join_next()).await {}
        // What is cut off here is rolled back, or comes again as a duplicate.
        workers.shutdown().await;
        result
    }

    /// Declares the consumer. `None` if it is told to stop before the store can be reached.
    async fn declare(&self, stopping: &mut watch::Receiver<bool>) -> Result<Option<Consumer>, Error> {
        let declaration = Declaration { recognition: self.settings.recognition, retention: self.settings.retention };
        let mut backoff = Backoff::new(self.settings.backoff_min, self.settings.backoff_max);
        loop {
            match self.semel.store().declare(self.consumer.name(), &declaration).await {
                Ok(consumer) => return Ok(Some(consumer)),
                Err(error @ (StoreError::Schema(_) | StoreError::Settings(_))) => return Err(Error::Store(error)),
                Err(error) => failed("declare itself", &error),
            }
            if !backoff.pause(stopping).await {
                return Ok(None);
            }
        }
    }
}

/// Receives for as long as it is polled, and returns only if the source refuses.
async fn receive<S: Inbox, K: Source, H: Handler<S>>(
    context: Arc<Context<S, K, H>>,
    receipts: Arc<Receipts<K::Receipt>>,
    feeds: Vec<mpsc::UnboundedSender<Pending<K::Receipt>>>,
) -> Error {
    let settings = &context.settings;
    let room = Room(Arc::new(watch::Sender::new(0)));
    let mut backoff = Backoff::new(settings.backoff_min, settings.backoff_max.min(std::time::Duration::from_secs(5)));
    loop {
        room.below(settings.in_flight_bytes).await;
        let received = match context.source.receive(settings.batch).await {
            Ok(received) => received,
            Err(error @ source::Error::Refused(_)) => return Error::Source(error),
            Err(error) => {
                failed("receive messages", &error);
                tokio::time::sleep(backoff.next()).await;
                continue;
            }
        };
        backoff.reset();
        // From here until the workers have them nothing is waited for, so that whoever stops it loses none.
        let feed = |received: Received<K::Receipt>| {
            let taken = room.take(received.message.size());
            let item = item::<S, H>(&context.handler, settings.recognition, received.message, received.unusable);
            let worker = &feeds[worker_of(&item.delivery, feeds.len())];
            let receipt = receipts.take(received.receipt);
            let _ = worker.send(Pending { item: Shared(Arc::new(item)), receipt, _room: taken });
        };
        received.into_iter().for_each(feed);
        failpoint::reach(failpoint::CONSUMER_RECEIVED).await;
    }
}

/// Which worker applies a message: messages that must not overtake each other have the same.
fn worker_of(delivery: &Delivery, workers: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    match &delivery.identity {
        // All keys of a lane: its proof is one row, and workers that shared it would wait for each other.
        Identity::Sequence(place) => (&place.topic, place.lane).hash(&mut hasher),
        _ => worker::order_of(delivery).hash(&mut hasher),
    }
    usize::try_from(hasher.finish() % workers as u64).unwrap_or(0)
}

/// The message as the inbox knows it.
fn item<S: Store, H: Handler<S>>(handler: &H, by: Recognition, message: Message, mut unusable: Option<String>) -> Item {
    let delivery = match message.delivery(by) {
        Ok(Some(delivery)) => Ok(delivery),
        Ok(None) => Err(match by {
            Recognition::Id => "it has no id".to_owned(),
            Recognition::Sequence => "it is none of Semel's own events, and its consumer counts these".to_owned(),
            Recognition::Offset => "it did not come from Kafka, and its consumer goes by offsets".to_owned(),
        }),
        Err(invalid) => Err(invalid.to_string()),
    };
    let delivery = delivery.unwrap_or_else(|why| {
        unusable.get_or_insert(why);
        unnamed(&message)
    });
    let delivery = match handler.version(&message).filter(|_| unusable.is_none()) {
        None => delivery,
        // It keeps its own identity, so that no place stays open for it.
        Some(version) => delivery.clone().with_version(version).unwrap_or_else(|invalid| {
            unusable = Some(invalid.to_string());
            delivery
        }),
    };
    Item { delivery: delivery.in_order_of(message.ordering_key.as_str()), message, unusable }
}

/// What stands for a message that lacks what it should be recognised by, so that it is set aside once.
fn unnamed(message: &Message) -> Delivery {
    use sha2::{Digest, Sha256};
    let mut digest = Sha256::new();
    for part in [message.topic.as_bytes(), message.id.as_bytes(), &message.payload] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let hex: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Delivery { identity: Identity::Id(format!("sha256:{hex}")), version: None, order: None }
}

/// Tells the broker what is in hand, for as long as it is polled.
async fn prolong<S, K: Source, H>(context: Arc<Context<S, K, H>>, receipts: Arc<Receipts<K::Receipt>>) {
    let Some(every) = context.source.prolong_every() else { return std::future::pending().await };
    loop {
        tokio::time::sleep(every).await;
        let held = receipts.all();
        if held.is_empty() {
            continue;
        }
        let held: Vec<&K::Receipt> = held.iter().map(|receipt| &**receipt).collect();
        if let Err(error) = context.source.prolong(&held).await {
            failed("keep its messages", &error);
        }
    }
}

/// Takes note of what will be tried again.
fn failed(what: &'static str, error: &(dyn std::error::Error + 'static)) {
    let causes = std::iter::successors(error.source(), |error| error.source()).map(ToString::to_string);
    let causes = causes.collect::<Vec<_>>().join(": ");
    tracing::warn!(%error, causes, "the consumer could not {what} and will try again");
}

/// A message and its receipt, for those who only have these.
impl<R> Received<R> {
    /// A message that can be applied.
    pub fn new(message: Message, receipt: R) -> Received<R> {
        Received { message, unusable: None, receipt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Never called: it compiles only if a runner can be spawned on a runtime.
    fn _a_runner_can_be_spawned<S: Inbox, K: Source, H: Handler<S>>(runner: Runner<S, K, H>) {
        drop(tokio::spawn(async move { runner.run(std::future::pending()).await }));
    }
}
