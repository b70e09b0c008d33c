//! The messages that everybody applies, by their number.

use anyhow::Result;
use semel::inbox::{Delivery, Offset, Sequence};
use semel_bench::drive::scattered;

use crate::case::Proof;

/// How many accounts there are. The schemas fill in as many.
const ACCOUNTS: u64 = 1024;

/// How many lanes Semel's own events have.
const LANES: u64 = 64;

/// How many partitions the messages from Kafka come in, and how many workers there are at most. Whoever shares an
/// account shares its lane and its partition.
pub(crate) const PARTITIONS: u64 = 8;

/// What its effect adds to a balance.
pub(crate) const AMOUNT: i64 = 42;

/// A message, counted from zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbered(pub(crate) u64);

/// A message as an inbox is asked about it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) message: Numbered,
    delivery: Delivery,
}

impl Numbered {
    /// An id such as producers give, without order: where its row goes in an index is anybody's guess.
    pub(crate) fn id(self) -> String {
        format!("{:016x}{:016x}", scattered(self.0), scattered(!self.0))
    }

    /// The account whose balance it changes.
    pub(crate) fn account(self) -> i64 {
        (self.0 % ACCOUNTS).cast_signed()
    }

    /// Its place among Semel's own events.
    pub(crate) fn sequence(self) -> Sequence {
        Sequence {
            incarnation: "bench".to_owned(),
            topic: "charges".to_owned(),
            lane: u16::try_from(self.0 % LANES).unwrap_or(0),
            sequence: self.0 / LANES + 1,
        }
    }

    /// Its place in Kafka.
    pub(crate) fn offset(self) -> Offset {
        let offset = (self.0 / PARTITIONS).cast_signed();
        Offset {
            source: "bench".to_owned(),
            topic: "charges".to_owned(),
            partition: i32::try_from(self.0 % PARTITIONS).unwrap_or(0),
            from: offset,
            offset,
        }
    }

    /// The message as an inbox is asked about it.
    pub(crate) fn asked(self, proof: Proof) -> Result<Asked> {
        let delivery = match proof {
            Proof::Nothing | Proof::Id => Delivery::by_id(self.id())?,
            Proof::Sequence => Delivery::by_sequence(self.sequence())?,
            Proof::Offset => Delivery::by_offset(self.offset())?,
        };
        Ok(Asked { message: self, delivery })
    }
}

impl AsRef<Delivery> for Asked {
    fn as_ref(&self) -> &Delivery {
        &self.delivery
    }
}
