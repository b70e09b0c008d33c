//! How far a consumer has read the partitions of Kafka.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rusqlite::OptionalExtension;
use semel::Error;
use semel::inbox::{Consumer, Offset};

use super::accept::{Proofs, out_of_bounds};
use crate::error::classify;
use crate::store::Sqlite;

const OFFSET: &str = include_str!("../sql/inbox/offset.sql");
const STORE_OFFSET: &str = include_str!("../sql/inbox/store_offset.sql");
const NEXT_OFFSET: &str = include_str!("../sql/inbox/next_offset.sql");

/// The source, the topic and the number of a partition.
type PartitionName<'d> = (&'d str, &'d str, i32);

/// The partitions that a batch of messages comes from. Each is read once and stored once.
#[derive(Default)]
pub(super) struct Partitions<'d>(BTreeMap<PartitionName<'d>, Partition>);

struct Partition {
    /// Where reading goes on, unless nothing was read.
    next: Option<i64>,
    moved: bool,
}

impl<'d> Partitions<'d> {
    /// Whether the message had not been seen. It moves the offset from where its reader read on to behind it, and
    /// nowhere else: [`Error::Fenced`] if the offset has been moved by somebody who reads the partition now.
    pub(super) fn accept(&mut self, proofs: &Proofs<'_>, message: &'d Offset) -> Result<bool, Error> {
        if !(0..i64::MAX).contains(&message.offset) || !(0..=message.offset).contains(&message.from) {
            return Err(out_of_bounds("offset", format_args!("{} read on from {}", message.offset, message.from)));
        }
        let partition = self.partition(proofs, message)?;
        match partition.next {
            Some(next) if message.offset < next => return Ok(false),
            Some(next) if message.from != next => return Err(Error::Fenced),
            _ => {}
        }
        *partition = Partition { next: message.offset.checked_add(1), moved: true };
        Ok(true)
    }

    /// Whether the message was seen.
    pub(super) fn is_behind(&mut self, proofs: &Proofs<'_>, message: &'d Offset) -> Result<bool, Error> {
        Ok(self.partition(proofs, message)?.next.is_some_and(|next| message.offset < next))
    }

    fn partition(&mut self, proofs: &Proofs<'_>, message: &'d Offset) -> Result<&mut Partition, Error> {
        let name = (message.source.as_str(), message.topic.as_str(), message.partition);
        Ok(match self.0.entry(name) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(Partition { next: stored(proofs, name)?, moved: false }),
        })
    }

    pub(super) fn store(&self, proofs: &Proofs<'_>) -> Result<(), Error> {
        let mut store = proofs.connection.prepare_cached(STORE_OFFSET).map_err(classify)?;
        for ((source, topic, number), partition) in self.0.iter().filter(|(_, partition)| partition.moved) {
            store
                .execute((proofs.consumer, proofs.generation, source, topic, number, partition.next))
                .map_err(classify)?;
        }
        Ok(())
    }
}

fn stored(proofs: &Proofs<'_>, (source, topic, partition): PartitionName<'_>) -> Result<Option<i64>, Error> {
    let mut offset = proofs.connection.prepare_cached(OFFSET).map_err(classify)?;
    let params = (proofs.consumer, proofs.generation, source, topic, partition);
    offset.query_row(params, |row| row.get(0)).optional().map_err(classify)
}

impl Sqlite {
    /// Read beside the writer: what is committed, and durable.
    pub(crate) async fn read_next_offset(
        &self,
        consumer: &Consumer,
        source: &str,
        topic: &str,
        partition: i32,
    ) -> Result<Option<i64>, Error> {
        let next = self.readers().read(|connection| {
            let mut next = connection.prepare_cached(NEXT_OFFSET).map_err(classify)?;
            let params = (consumer.name(), consumer.generation(), source, topic, partition);
            next.query_row(params, |row| row.get(0)).optional().map_err(classify)
        });
        let next = next.await?;
        self.writer().check_settled()?;
        Ok(next)
    }
}
