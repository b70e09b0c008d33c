//! Where events go.

use std::future::Future;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::event::{Event, EventId};
use crate::outbox::LANES;

/// One of the fixed number of hash partitions of the ordering key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane(pub u16);

impl Lane {
    /// The lane of an ordering key: the first two bytes of its SHA-256, modulo [`LANES`]. Databases compute the same.
    pub fn of(ordering_key: &str) -> Lane {
        let hash = Sha256::digest(ordering_key);
        Lane(u16::from_be_bytes([hash[0], hash[1]]) % LANES)
    }

    /// Every lane.
    pub fn all() -> impl Iterator<Item = Lane> {
        (0..LANES).map(Lane)
    }
}

/// An event on its way out, with what identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// Stable over every publication: the CloudEvents attribute `id`.
    pub id: EventId,
    /// Who emitted it: the CloudEvents attribute `source`.
    pub source: String,
    /// When it was emitted, in milliseconds since the Unix epoch: the CloudEvents attribute `time`.
    pub time_ms: i64,
    /// The partition of its ordering key.
    pub lane: Lane,
    /// Dense per topic and lane, and the same on every publication.
    pub sequence: u64,
    /// Which history of the producer's database the sequence counts in.
    pub incarnation: String,
    /// What was emitted.
    pub event: Event,
}

/// What a sink promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// An event may arrive more than once.
    AtLeastOnce,
    /// The broker drops a repeated id within this window.
    Deduplicated {
        /// How long the broker remembers.
        window: Duration,
    },
    /// Events and the lane's position are committed together at the broker: readers of committed records see each once.
    Transactional,
}

/// Why an event was not published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The broker cannot be reached or is overloaded: no event's fault, try again later.
    #[error("the broker cannot take events now")]
    Unavailable(#[source] Source),
    /// The broker refuses this event and will refuse it again: too large, no such topic, not routable.
    #[error("the broker refuses this event")]
    Refused(#[source] Source),
    /// Not tried, because an earlier event of the same ordering key failed.
    #[error("an earlier event of the same ordering key was not published")]
    Behind,
    /// Another relay has taken the lane over at the broker.
    #[error("another relay publishes this lane now")]
    Fenced,
}

/// The cause beneath an error.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// How far a lane has been published: opaque bytes of at most 1 KiB that the relay can read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position(pub Vec<u8>);

/// A broker, or anything else that takes events.
pub trait Sink: Send + Sync + 'static {
    /// What it promises.
    fn guarantee(&self) -> Guarantee;

    /// Takes a lane. A transactional sink fences whoever published it before, and returns the position that was
    /// committed last, if any; others return `None`.
    fn take_lane(&self, lane: Lane) -> impl Future<Output = Result<Option<Position>, Error>> + Send;

    /// Publishes a batch of one lane, and returns one result per event, in order.
    ///
    /// `Ok` means that the broker has acknowledged it durably, as far as it can. Events of one ordering key reach the
    /// broker in the batch's order: after one that failed, the later ones of its key are [`Error::Behind`]; other keys
    /// go on. A transactional sink publishes all of the batch and `position`, or nothing.
    fn publish(
        &self,
        lane: Lane,
        batch: &[Outgoing],
        position: &Position,
    ) -> impl Future<Output = Vec<Result<(), Error>>> + Send;

    /// Whether consumers of this sink count sequences, so that a placeholder is published for an event that is parked.
    fn fills_gaps(&self) -> bool {
        true
    }

    /// Ends in good order: what was accepted is flushed.
    fn close(&self) -> impl Future<Output = ()> + Send;
}
