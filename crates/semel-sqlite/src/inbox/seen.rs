//! Looking whether messages were seen, without recording anything.

use rusqlite::Connection;
use semel::Error;
use semel::inbox::{Consumer, Delivery, Identity};

use super::accept::{Lanes, Proofs, check_batch};
use super::offset::Partitions;
use crate::error::classify;
use crate::store::Sqlite;

impl Sqlite {
    /// Reads beside the writer, in one snapshot: what is committed, and durable. A group that is still open counts for
    /// nothing.
    pub(super) async fn read_seen(&self, consumer: &Consumer, deliveries: &[Delivery]) -> Result<Vec<bool>, Error> {
        check_batch(deliveries)?;
        let seen = self.readers().read(|connection| {
            let snapshot = connection.unchecked_transaction().map_err(classify)?;
            seen(&snapshot, consumer, deliveries.iter())
        });
        let seen = seen.await?;
        self.writer().check_settled()?;
        Ok(seen)
    }

    /// Whether all of these were seen by what is committed, which those beside the writer see.
    pub(super) async fn are_committed(&self, consumer: &Consumer, deliveries: &[&Delivery]) -> Result<bool, Error> {
        let seen = self.readers().read(|connection| seen(connection, consumer, deliveries.iter().copied()));
        Ok(seen.await?.into_iter().all(|seen| seen))
    }
}

/// Which of these were seen by what the connection sees. Nothing is recorded.
fn seen<'d>(
    connection: &Connection,
    consumer: &Consumer,
    deliveries: impl ExactSizeIterator<Item = &'d Delivery>,
) -> Result<Vec<bool>, Error> {
    let Some(proofs) = Proofs::find(connection, consumer)? else { return Ok(vec![false; deliveries.len()]) };
    let (mut lanes, mut partitions) = (Lanes::default(), Partitions::default());
    let seen = deliveries.map(|delivery| match &delivery.identity {
        Identity::Id(id) => proofs.has_id(id),
        Identity::Sequence(sequence) => lanes.has(&proofs, sequence),
        Identity::Offset(offset) => partitions.is_behind(&proofs, offset),
        _ => Ok(false),
    });
    seen.collect()
}
