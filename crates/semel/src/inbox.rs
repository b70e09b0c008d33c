//! Messages that arrive more than once and apply once.
//!
//! A consumer's effect and the proof that it happened are one commit (I6). Decision 4 lists the interleavings behind
//! it.

use std::future::Future;
use std::time::Duration;

use crate::Error;
use crate::event::MAX_NAME_BYTES;
use crate::letter::{ConsumerRecord, Declaration, Letter, LetterFilter, LetterId, LetterRecord};
use crate::operator::Audit;
use crate::store::Store;

/// The most messages that one transaction may accept (I12).
pub const MAX_BATCH: usize = 10_000;

/// The most ranges that a lane's applied sequences may form: so many holes may be open at once (I12).
pub const MAX_RANGES: usize = 1_000;

/// The longest message id, in bytes. The database checks the same bounds (I12).
pub const MAX_ID_BYTES: usize = 255;

/// Who consumes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Consumer {
    name: String,
    generation: u32,
}

/// Why a consumer or a message was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A name is empty, too long, or holds control characters.
    #[error("the {what} must be 1 to {limit} bytes without control characters")]
    Name {
        /// Which one.
        what: &'static str,
        /// The most bytes.
        limit: usize,
    },
    /// A number is out of its bounds.
    #[error("the {what} is {value}, which no message has")]
    Number {
        /// Which one.
        what: &'static str,
        /// What it is.
        value: i128,
    },
}

impl Consumer {
    /// A consumer in its first generation.
    pub fn new(name: impl Into<String>) -> Result<Consumer, Invalid> {
        Ok(Consumer { name: named("name of a consumer", name.into(), MAX_NAME_BYTES)?, generation: 0 })
    }

    /// The same consumer in another generation, to which nothing has happened yet: what it is given applies again. The
    /// same generation never applies a message twice.
    #[must_use]
    pub fn in_generation(mut self, generation: u32) -> Consumer {
        self.generation = generation.min(i32::MAX.unsigned_abs());
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its generation, counted from zero.
    pub fn generation(&self) -> u32 {
        self.generation
    }
}

/// What tells one message from all others of a consumer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Identity {
    /// The id that its producer gave it. Kept for the consumer's retention.
    Id(String),
    /// Its place among Semel's own events. Kept for ever, in bounded space.
    Sequence(Sequence),
    /// Its place in a partition of Kafka. Kept for ever, in one row per partition.
    Offset(Offset),
}

/// The place of one of Semel's own events. Sequences of a topic and lane are dense within an incarnation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence {
    /// Which history of the producer's database it counts in.
    pub incarnation: String,
    /// The topic that it was emitted to.
    pub topic: String,
    /// The lane of its ordering key.
    pub lane: u16,
    /// Its number, counted from one.
    pub sequence: u64,
}

/// A place in a partition of Kafka.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset {
    /// Which cluster.
    pub source: String,
    /// Which topic.
    pub topic: String,
    /// Which partition.
    pub partition: i32,
    /// Where this worker read on: the stored offset, or the end of the message before this one.
    pub from: i64,
    /// The message's own.
    pub offset: i64,
}

/// Which version of an entity a message carries, and what that means.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version {
    /// Which entity.
    pub entity: String,
    /// The version that the message makes of it.
    pub version: u64,
    /// What the message says about earlier versions.
    pub rule: Rule,
}

/// How versions of an entity follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A message holds the full state: a version that is not newer than the last is stale, gaps do not matter.
    Latest,
    /// A message holds a change: each version applies after the one before it, the first of all being 1.
    Each,
}

/// A message as a consumer is given it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// What tells it from others.
    pub identity: Identity,
    /// Which version of an entity it carries, if that matters.
    pub version: Option<Version>,
    /// What it shares with messages that must not apply before it, if that matters: its ordering key.
    pub order: Option<String>,
}

impl Delivery {
    /// A message that its producer's id tells from others.
    pub fn by_id(id: impl Into<String>) -> Result<Delivery, Invalid> {
        let id = named("id of a message", id.into(), MAX_ID_BYTES)?;
        Ok(Delivery { identity: Identity::Id(id), version: None, order: None })
    }

    /// One of Semel's own events, by its place.
    pub fn by_sequence(sequence: Sequence) -> Result<Delivery, Invalid> {
        named("incarnation of a message", sequence.incarnation.clone(), MAX_NAME_BYTES)?;
        named("topic of a message", sequence.topic.clone(), MAX_NAME_BYTES)?;
        // A range ends behind its last sequence, which has to be a number of the database, too.
        if sequence.sequence == 0 || sequence.sequence >= i64::MAX.unsigned_abs() {
            return Err(Invalid::Number { what: "sequence", value: i128::from(sequence.sequence) });
        }
        if sequence.lane > i16::MAX.unsigned_abs() {
            return Err(Invalid::Number { what: "lane", value: i128::from(sequence.lane) });
        }
        Ok(Delivery { identity: Identity::Sequence(sequence), version: None, order: None })
    }

    /// A record of Kafka, by its place.
    pub fn by_offset(offset: Offset) -> Result<Delivery, Invalid> {
        named("source of a message", offset.source.clone(), MAX_NAME_BYTES)?;
        named("topic of a message", offset.topic.clone(), MAX_NAME_BYTES)?;
        for (what, value) in [("partition", i64::from(offset.partition)), ("offset", offset.from)] {
            if value < 0 {
                return Err(Invalid::Number { what, value: i128::from(value) });
            }
        }
        if offset.offset < offset.from || offset.offset == i64::MAX {
            return Err(Invalid::Number { what: "offset", value: i128::from(offset.offset) });
        }
        Ok(Delivery { identity: Identity::Offset(offset), version: None, order: None })
    }

    /// The same message with the version that it carries.
    pub fn with_version(mut self, version: Version) -> Result<Delivery, Invalid> {
        named("entity of a message", version.entity.clone(), MAX_ID_BYTES)?;
        if version.version == 0 || version.version > i64::MAX.unsigned_abs() {
            return Err(Invalid::Number { what: "version", value: i128::from(version.version) });
        }
        self.version = Some(version);
        Ok(self)
    }

    /// The same message with its ordering key. If it fails, those behind it in a batch that share the key are not
    /// tried.
    #[must_use]
    pub fn in_order_of(mut self, ordering_key: impl Into<String>) -> Delivery {
        self.order = Some(ordering_key.into());
        self
    }
}

/// What an inbox says about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accepted {
    /// It has not been seen. It counts as seen if this transaction commits.
    First,
    /// It has been seen, and its effect was committed with that.
    Duplicate,
    /// It has not been seen, but its entity is past it. It counts as seen if this transaction commits.
    Stale,
    /// Its entity is not there yet. It does not count as seen: roll back to before its acceptance.
    Early,
}

/// Where it is kept what consumers have seen: the database that their effects go to.
///
/// Every implementation passes the same conformance suite.
pub trait Inbox: Store {
    /// Begins a transaction and accepts these messages in it. The answers are in the order of the messages; of two that
    /// are the same, the later is the duplicate.
    ///
    /// Whoever accepts the same message at the same time waits until this transaction has ended. [`Error::Fenced`] if a
    /// partition of Kafka was read on by somebody else; [`Error::Ahead`] if a lane has too many holes.
    fn accept(
        &self,
        consumer: &Consumer,
        deliveries: &[Delivery],
    ) -> impl Future<Output = Result<(Self::Tx, Vec<Accepted>), Error>> + Send;

    /// Which of these were seen by what is committed. It only reads, and waits for nobody: of one that is being
    /// accepted meanwhile it says `false`, so `true` settles a message and `false` settles nothing.
    fn seen(
        &self,
        consumer: &Consumer,
        deliveries: &[Delivery],
    ) -> impl Future<Output = Result<Vec<bool>, Error>> + Send;

    /// Begins a transaction in which messages are accepted one by one.
    fn begin_consuming(&self) -> impl Future<Output = Result<Self::Tx, Error>> + Send;

    /// Sets a savepoint and accepts one message behind it.
    fn accept_isolated(
        &self,
        tx: &mut Self::Tx,
        consumer: &Consumer,
        delivery: &Delivery,
    ) -> impl Future<Output = Result<Accepted, Error>> + Send;

    /// Ends the last message that was accepted behind a savepoint: runs what its effect deferred. After an error it has
    /// to be taken back.
    fn keep(&self, tx: &mut Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;

    /// Takes back the last message that was accepted behind a savepoint, with its effect and its events.
    fn take_back(&self, tx: &mut Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;

    /// Commits effects, events and what was accepted, together (I6).
    fn commit_consumed(&self, tx: Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;

    /// The offset at which a consumer reads on in a partition of Kafka; `None` if it has read nothing.
    fn next_offset(
        &self,
        consumer: &Consumer,
        source: &str,
        topic: &str,
        partition: i32,
    ) -> impl Future<Output = Result<Option<i64>, Error>> + Send;

    /// Registers a consumer, or finds it again, with what it declares, and returns it in its generation.
    ///
    /// [`Error::Settings`] if the generation recognises messages by something else already: proofs of one kind say
    /// nothing about another.
    fn declare(&self, name: &str, declaration: &Declaration) -> impl Future<Output = Result<Consumer, Error>> + Send;

    /// The generation that a consumer is in; `None` if there is no such consumer.
    fn generation(&self, name: &str) -> impl Future<Output = Result<Option<u32>, Error>> + Send;

    /// Sets a message aside: records it as seen, and with the letter, in one commit. `false` if it was seen before, and
    /// then nothing is done: its effect is committed, or it is set aside already.
    ///
    /// A message whose version comes early is set aside all the same, and its entity stays where it is.
    fn dead_letter(
        &self,
        consumer: &Consumer,
        delivery: &Delivery,
        letter: &Letter,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Up to `limit` dead letters of this consumer that are to be tried again, the oldest first.
    fn redriven(&self, consumer: &str, limit: u32) -> impl Future<Output = Result<Vec<LetterRecord>, Error>> + Send;

    /// Begins a transaction in which a redriven letter counts as applied, if it commits; `None` if it is not to be
    /// tried any more. Whoever takes the same letter at the same time waits until this transaction has ended (I6).
    ///
    /// The version that it carries is guarded as it would have been: a letter whose entity is past it counts as
    /// applied, and one whose entity is not there yet is dead again, both with `None`.
    fn take_letter(&self, id: LetterId) -> impl Future<Output = Result<Option<Self::Tx>, Error>> + Send;

    /// Notes that a redriven letter failed again: it is dead, with this cause and one attempt more.
    fn bury(&self, id: LetterId, cause: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Every consumer, or the one of this name, with what is kept of it.
    fn consumers(&self, name: Option<&str>) -> impl Future<Output = Result<Vec<ConsumerRecord>, Error>> + Send;

    /// Up to `limit` dead letters, the oldest first.
    fn letters(
        &self,
        filter: &LetterFilter,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<LetterRecord>, Error>> + Send;

    /// Wants these dead letters tried again, with an audit row in the same commit, and says how many they are.
    /// With `dry_run` nothing is changed.
    fn redrive_letters(
        &self,
        filter: &LetterFilter,
        audit: &Audit,
        dry_run: bool,
    ) -> impl Future<Output = Result<u64, Error>> + Send;

    /// Begins a new generation of a consumer, with an audit row in the same commit, and says which: history applies
    /// again. `None` if there is no such consumer. With `dry_run` nothing is changed.
    fn replay_consumer(
        &self,
        name: &str,
        audit: &Audit,
        dry_run: bool,
    ) -> impl Future<Output = Result<Option<u32>, Error>> + Send;

    /// Forgets up to `limit` ids that were seen longer ago than `keep`, of one consumer in all its generations, and
    /// dead letters that were applied longer ago, and says how many. Never waits for one that is being accepted.
    fn reap_inbox(&self, consumer: &str, keep: Duration, limit: u32)
    -> impl Future<Output = Result<u64, Error>> + Send;
}

/// A transaction that the caller began and will commit, in which messages are accepted.
pub trait JoinInbox<S> {
    /// Accepts messages inside the caller's transaction: they count as seen if and only if the caller commits (I6).
    fn accept(
        &mut self,
        consumer: &Consumer,
        deliveries: &[Delivery],
    ) -> impl Future<Output = Result<Vec<Accepted>, Error>>;
}

fn named(what: &'static str, name: String, limit: usize) -> Result<String, Invalid> {
    let fits = (1..=limit).contains(&name.len()) && !name.chars().any(char::is_control);
    if fits { Ok(name) } else { Err(Invalid::Name { what, limit }) }
}
