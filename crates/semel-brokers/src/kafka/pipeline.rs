//! Consume, transform, produce: exactly once, inside Kafka.
//!
//! A pipeline reads committed records of some topics, makes other records of them, and writes these to the same
//! cluster. What it wrote and how far it has read are one Kafka transaction: both are committed, or neither is. A crash
//! at any point leaves a transaction that is committed or one that will be aborted, and the next start reads on behind
//! the last one that was committed.
//!
//! **Where the promise ends.** Each input record is transformed into output records once *for readers of committed
//! records* (`isolation.level=read_committed`): others see what aborted transactions wrote, too. It covers what is
//! written to this cluster by this pipeline and nothing else: a row that the transform stores, a mail that it sends or
//! a request that it makes may happen again, or happen although its transaction is aborted. For those, consume with an
//! inbox, in the transaction of a database. It begins with the input topic: a record that its producer wrote twice is
//! two records. And it lasts as long as the group's offsets: Kafka forgets those of a group without members after
//! `offsets.retention.minutes`, and the group then starts over.
//!
//! ```no_run
//! use semel_brokers::kafka::pipeline::{Failure, Out, Pipeline};
//!
//! # async fn run() -> Result<(), semel_brokers::kafka::pipeline::Error> {
//! let shout = |message: &semel::Message| -> Result<Vec<Out>, Failure> {
//!     let text = std::str::from_utf8(&message.payload)?.to_uppercase();
//!     Ok(vec![Out::new("shouted", message.ordering_key.clone(), text)])
//! };
//! let pipeline = Pipeline::new("kafka://127.0.0.1:9092/", &["said"], "shouters", "shouters", shout)?;
//! let tally = pipeline.run(std::future::pending()).await?;
//! # let _ = tally;
//! # Ok(())
//! # }
//! ```

mod batch;
mod session;
mod transform;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub use self::transform::{Failure, Out, Transform};

use self::batch::{Batch, Item};
use self::session::{Session, Trouble};
use super::settings::{BATCH_BYTES, Settings, is_name};
use super::source::{CLIENT, split};

/// The pause after the first failure; it doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How often in a row somebody else may have taken this pipeline's ids before it gives way.
const MAX_FENCED: u32 = 3;

/// Reads, transforms and writes.
#[derive(Debug)]
pub struct Pipeline<T> {
    settings: Settings,
    topics: Vec<String>,
    group: String,
    prefix: String,
    transform: T,
    options: Options,
}

#[derive(Debug, Clone)]
struct Options {
    most: usize,
    within: Duration,
    attempts: u32,
    dead_letters: Option<String>,
    instance: Option<String>,
    guarantee: Guarantee,
}

/// What is carried over from one start to the next.
struct Progress {
    tally: Tally,
    /// How often Kafka refused a record since the last commit.
    refusals: u32,
    /// The most bytes of records that travel together.
    batch_bytes: usize,
}

/// What a pipeline promises to readers of committed records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// What is written and how far was read are one transaction.
    ExactlyOnce,
    /// They are not: a crash in between repeats a batch. It is there to be compared with.
    AtLeastOnce,
}

/// What a pipeline has done since it began to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Input records whose batches are committed.
    pub read: u64,
    /// Output records that are committed, dead letters included.
    pub written: u64,
    /// How many of them are dead letters.
    pub dead: u64,
    /// Batches that were committed.
    pub committed: u64,
    /// Batches that were aborted and read again.
    pub aborted: u64,
}

/// Why a pipeline ended, or does not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It cannot work as it is set up.
    #[error(transparent)]
    Settings(#[from] crate::Error),
    /// A record could not be transformed and there is no topic for dead letters. Everything before it is committed, and
    /// a new start begins with it.
    #[error("the record {place} could not be transformed in {attempts} attempts; nothing behind it is committed")]
    Poison {
        /// Which record, as `topic/partition/offset`.
        place: String,
        /// How often it was tried.
        attempts: u32,
        /// The last failure.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Kafka refuses, and will again: a topic is missing, a record is too large, or this user may not.
    #[error("Kafka refuses: {0}")]
    Refused(String),
    /// Another process runs under the same transactional id or instance, and took over each time this one started.
    #[error("another process runs as this instance of the pipeline: give each its own")]
    Fenced,
}

impl<T: Transform> Pipeline<T> {
    /// A pipeline of one cluster: its URL is that of a sink, with `tls`, `ca`, `sasl`, `timeout_ms` and
    /// `transaction_timeout_ms`.
    ///
    /// All who share the work have the same `group`. Transactional ids begin with `prefix`; see
    /// [`Pipeline::with_instance`] for those who run more than one.
    pub fn new(url: &str, inputs: &[&str], group: &str, prefix: &str, transform: T) -> Result<Pipeline<T>, Error> {
        let parameters: Vec<&str> = CLIENT.into_iter().chain(["transaction_timeout_ms"]).collect();
        let (url, _) = split(url, &[], &parameters)?;
        let settings = Settings::parse(&url)?;
        if inputs.is_empty() {
            return Err(crate::Error::Url("a pipeline needs a topic to read".to_owned()).into());
        }
        for name in inputs.iter().copied().chain([group, prefix]) {
            if !is_name(name) {
                let legal = "1 to 249 letters, digits, dots, dashes or underscores";
                return Err(crate::Error::Url(format!("`{name}` must be {legal}")).into());
            }
        }
        let options = Options {
            most: 1_000,
            within: Duration::from_millis(100),
            attempts: 5,
            dead_letters: None,
            instance: None,
            guarantee: Guarantee::ExactlyOnce,
        };
        let topics = inputs.iter().map(|topic| (*topic).to_owned()).collect();
        Ok(Pipeline { settings, topics, group: group.to_owned(), prefix: prefix.to_owned(), transform, options })
    }

    /// Names this one of several processes that share the work: its own name, and the same after a restart. What it
    /// left open when it was killed is then settled at once by its next start, and not after `transaction_timeout_ms`.
    pub fn with_instance(mut self, instance: &str) -> Result<Pipeline<T>, Error> {
        if !is_name(instance) {
            return Err(crate::Error::Url(format!("`{instance}` cannot name an instance")).into());
        }
        self.options.instance = Some(instance.to_owned());
        Ok(self)
    }

    /// How many records one transaction may hold, and how long the first of them waits for others. Readers of committed
    /// records see nothing of a transaction before its end.
    #[must_use]
    pub fn with_batch(mut self, most: usize, within: Duration) -> Pipeline<T> {
        (self.options.most, self.options.within) = (most.max(1), within);
        self
    }

    /// How often a record is tried that cannot be transformed.
    #[must_use]
    pub fn with_attempts(mut self, attempts: u32) -> Pipeline<T> {
        self.options.attempts = attempts.max(1);
        self
    }

    /// Where a record goes that cannot be transformed: as it was, with the headers `semel_dead_place`,
    /// `semel_dead_cause` and `semel_dead_attempts`, in the transaction that would have held its results.
    pub fn with_dead_letters(mut self, topic: &str) -> Result<Pipeline<T>, Error> {
        if !is_name(topic) {
            return Err(crate::Error::Url(format!("`{topic}` cannot be the name of a topic")).into());
        }
        self.options.dead_letters = Some(topic.to_owned());
        Ok(self)
    }

    /// The same with another guarantee.
    #[must_use]
    pub fn with_guarantee(mut self, guarantee: Guarantee) -> Pipeline<T> {
        self.options.guarantee = guarantee;
        self
    }

    /// Works until `stop` completes, then lets the batch end that is being committed, and leaves the group. What it has
    /// read and not committed is read again by whoever comes next.
    ///
    /// A broker that cannot be reached is tried again for as long as it takes. An error means that somebody has to do
    /// something first.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) -> Result<Tally, Error> {
        let mut stop = std::pin::pin!(stop);
        let mut progress = Progress { tally: Tally::default(), refusals: 0, batch_bytes: BATCH_BYTES };
        let (mut pause, mut fenced) = (BACKOFF_MIN, 0);
        loop {
            let before = progress.tally.committed;
            let (reason, is_fence) = match self.work(stop.as_mut(), &mut progress).await {
                Ok(()) => return Ok(progress.tally),
                Err(Trouble::Ended(error)) => return Err(error),
                Err(Trouble::Anew { reason, fenced }) => (reason, fenced),
                Err(Trouble::Aborted { reason, .. }) => (reason, false),
            };
            if progress.tally.committed > before {
                (pause, fenced) = (BACKOFF_MIN, 0);
            }
            fenced += u32::from(is_fence);
            if fenced > MAX_FENCED {
                return Err(Error::Fenced);
            }
            tracing::warn!(reason, "kafka: the pipeline starts anew");
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.as_mut() => return Ok(progress.tally),
            }
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }

    /// Works until it is told to stop, or has to start anew.
    async fn work(
        &self,
        mut stop: Pin<&mut (impl Future<Output = ()> + Send)>,
        progress: &mut Progress,
    ) -> Result<(), Trouble> {
        let instance = self.options.instance.as_deref().unwrap_or("0");
        let id = format!("{}-{instance}", self.prefix);
        let (settings, options) = (&self.settings, &self.options);
        let starting = Session::start(settings, options, &self.topics, &self.group, &id, progress.batch_bytes);
        let session = tokio::select! {
            session = starting => session?,
            () = stop.as_mut() => return Ok(()),
        };
        let ended = self.work_in(&session, stop, progress).await;
        session.close().await;
        ended
    }

    async fn work_in(
        &self,
        session: &Session,
        mut stop: Pin<&mut (impl Future<Output = ()> + Send)>,
        progress: &mut Progress,
    ) -> Result<(), Trouble> {
        loop {
            let batch = tokio::select! {
                biased;
                () = stop.as_mut() => return Ok(()),
                batch = session.read(&self.options) => batch?,
            };
            let Err(trouble) = self.pass(session, batch, &mut progress.tally).await else {
                progress.refusals = 0;
                continue;
            };
            let Trouble::Aborted { reason, refused, oversized, anew } = trouble else { return Err(trouble) };
            progress.tally.aborted += 1;
            if let Some(topic) = oversized {
                let limit = session.limit(&self.settings, &topic).await;
                if limit < progress.batch_bytes {
                    // Fewer records travel together from now on, which only another producer can do.
                    progress.batch_bytes = limit;
                    return Err(session::anew(reason));
                }
            }
            progress.refusals += u32::from(refused);
            if progress.refusals >= self.options.attempts {
                return Err(Error::Refused(reason).into());
            }
            if anew {
                return Err(session::anew(reason));
            }
            tracing::warn!(reason, "kafka: a transaction was aborted and its records are read again");
            tokio::time::sleep(backoff(progress.refusals.max(1))).await;
        }
    }

    /// Transforms a batch and commits it.
    async fn pass(&self, session: &Session, mut batch: Batch, tally: &mut Tally) -> Result<(), Trouble> {
        let mut outs = Vec::with_capacity(batch.items.len());
        let (mut dead, mut poison) = (0, None);
        for (index, item) in batch.items.iter().enumerate() {
            match self.transformed(item).await {
                Ok(made) => outs.extend(made),
                Err((failure, attempts)) => match &self.options.dead_letters {
                    Some(topic) => {
                        let cause = failure.cause.to_string();
                        tracing::error!(place = item.place(), cause, attempts, "kafka: a record was set aside");
                        outs.extend(item.dead_letter(topic, &cause, attempts));
                        dead += 1;
                    }
                    None => {
                        poison = Some((index, Error::Poison { place: item.place(), attempts, cause: failure.cause }));
                        break;
                    }
                },
            }
        }
        if let Some((index, _)) = &poison {
            batch.items.truncate(*index);
        }
        if !batch.items.is_empty() {
            session.commit(&batch, &outs).await?;
            tally.read += batch.items.len() as u64;
            tally.written += outs.len() as u64;
            tally.dead += dead;
            tally.committed += 1;
        }
        match poison {
            Some((_, error)) => Err(Trouble::Ended(error)),
            None => Ok(()),
        }
    }

    /// The records of one message, or why there are none, and after how many attempts.
    async fn transformed(&self, item: &Item) -> Result<Vec<Out>, (Failure, u32)> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.transform.transform(&item.message).await {
                Ok(outs) => return Ok(outs),
                Err(failure) if failure.hopeless || attempts >= self.options.attempts => {
                    return Err((failure, attempts));
                }
                Err(_) => tokio::time::sleep(backoff(attempts)).await,
            }
        }
    }
}

/// The pause after so many failures in a row.
fn backoff(failures: u32) -> Duration {
    BACKOFF_MIN.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(BACKOFF_MAX)
}
