//! A message with what is to happen when it applies.

use semel::inbox::{Offset, Rule, Sequence, Version};
use semel::{Delivery, Error, Event, Store, Tx};

use super::harness::Harness;

/// What a message's effect does. Each adds a row to `effects` with the message's label and emits an event that carries
/// it, save for [`Deed::Nothing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// No more than that.
    Apply,
    /// The row is added by a deferred statement.
    Defer,
    /// Then it fails.
    Fail,
    /// Then a statement is refused, and it fails with that.
    Refuse,
    /// Then a statement is refused, and it says nothing of it.
    Hide,
    /// The row is added by a deferred statement that claims to touch two.
    Misdefer,
    /// Then it panics.
    Panic,
    /// Nothing at all.
    Nothing,
}

/// A message as a test delivers it.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) delivery: Delivery,
    pub(super) label: String,
    pub(super) deed: Deed,
}

/// Why an effect failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The test wanted it.
    Wanted,
    /// The store refused a statement.
    Store(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

/// What identifies a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Id,
    Sequence,
    Offset,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Id, Kind::Sequence, Kind::Offset];

    /// The nth message of this kind, counted from one. Records follow each other without gaps.
    pub(super) fn message(self, n: u64) -> Message {
        match self {
            Kind::Id => id(&format!("id-{n}")),
            Kind::Sequence => sequence(n),
            Kind::Offset => record(n, n),
        }
    }
}

impl Message {
    pub(super) fn new(delivery: Delivery, label: impl Into<String>) -> Message {
        Message { delivery, label: label.into(), deed: Deed::Apply }
    }

    /// The same message with another effect.
    pub(super) fn that(&self, deed: Deed) -> Message {
        Message { deed, ..self.clone() }
    }

    /// The same message with a version of an entity.
    pub(super) fn with_version(self, entity: &str, version: u64, rule: Rule) -> Message {
        let version = Version { entity: entity.to_owned(), version, rule };
        Message { delivery: self.delivery.with_version(version).unwrap(), ..self }
    }
}

impl AsRef<Delivery> for Message {
    fn as_ref(&self) -> &Delivery {
        &self.delivery
    }
}

/// A message with an id, which is its label, too.
pub(super) fn id(id: &str) -> Message {
    Message::new(Delivery::by_id(id).unwrap(), id)
}

/// The lane that tests use if it does not matter which.
pub(super) fn lane() -> Sequence {
    Sequence { incarnation: "7412-1".to_owned(), topic: "charges".to_owned(), lane: 17, sequence: 1 }
}

/// A message of that lane.
pub(super) fn sequence(n: u64) -> Message {
    placed(Sequence { sequence: n, ..lane() })
}

/// A message at any place.
pub(super) fn placed(place: Sequence) -> Message {
    let label = format!("{}/{}/{}/{}", place.incarnation, place.topic, place.lane, place.sequence);
    Message::new(Delivery::by_sequence(place).unwrap(), label)
}

/// The partition that tests use if it does not matter which.
pub(super) fn partition() -> Offset {
    Offset { source: "cluster".to_owned(), topic: "charges".to_owned(), partition: 3, from: 0, offset: 0 }
}

/// A record of that partition, held by a worker that read on at `from`.
pub(super) fn record(from: u64, offset: u64) -> Message {
    let [from, offset] = [from, offset].map(|n| i64::try_from(n).unwrap());
    recorded(Offset { from, offset, ..partition() })
}

/// A record of any partition.
pub(super) fn recorded(place: Offset) -> Message {
    let label = format!("{}/{}/{}@{}", place.source, place.topic, place.partition, place.offset);
    Message::new(Delivery::by_offset(place).unwrap(), label)
}

/// A message with an id of its own that carries a version of the entity.
pub(super) fn versioned(entity: &str, version: u64, rule: Rule) -> Message {
    id(&format!("{entity}-{version}")).with_version(entity, version, rule)
}

/// The message's effect.
pub(super) async fn perform<H: Harness>(tx: &mut <H::Store as Store>::Tx, message: &Message) -> Result<(), Failure> {
    let label = &message.label;
    match message.deed {
        Deed::Nothing => return Ok(()),
        Deed::Defer => H::defer(tx, label, 1),
        Deed::Misdefer => H::defer(tx, label, 2),
        _ => H::insert(tx, label).await?,
    }
    tx.emit(event(label));
    match message.deed {
        Deed::Fail => Err(Failure::Wanted),
        Deed::Refuse => Err(Failure::Store(H::refuse(tx).await)),
        Deed::Hide => {
            drop(H::refuse(tx).await);
            Ok(())
        }
        Deed::Panic => panic!("the effect of {label} ran"),
        _ => Ok(()),
    }
}

/// What an effect emits. All have one ordering key, so that their order is the order of the effects.
pub(super) fn event(label: &str) -> Event {
    Event::new("applied", "all", "test.applied", &label).unwrap()
}
