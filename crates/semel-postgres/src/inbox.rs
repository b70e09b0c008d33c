//! The inbox: what consumers have seen.
//!
//! Everything that keeps a promise is a function in the schema `semel`; decision 4 lists the interleavings behind them.

pub(crate) mod accept;

mod declare;
mod isolated;
mod letter;
mod offset;
mod operator;
mod reap;
mod row;
mod seen;

use std::time::Duration;

use semel::Error;
use semel::inbox::{Accepted, Consumer, Delivery, Inbox};
use semel::letter::{ConsumerRecord, Declaration, Letter, LetterFilter, LetterId, LetterRecord};
use semel::operator::Audit;

use crate::store::Postgres;
use crate::tx::Tx;

pub(crate) use isolated::Isolated;

impl Inbox for Postgres {
    async fn accept(&self, consumer: &Consumer, deliveries: &[Delivery]) -> Result<(Tx, Vec<Accepted>), Error> {
        accept::begin(self, consumer, deliveries).await
    }

    async fn seen(&self, consumer: &Consumer, deliveries: &[Delivery]) -> Result<Vec<bool>, Error> {
        seen::seen(self, consumer, deliveries).await
    }

    async fn begin_consuming(&self) -> Result<Tx, Error> {
        accept::begin_with_nothing(self).await
    }

    async fn accept_isolated(&self, tx: &mut Tx, consumer: &Consumer, delivery: &Delivery) -> Result<Accepted, Error> {
        isolated::accept(tx, consumer, delivery).await
    }

    async fn keep(&self, tx: &mut Tx) -> Result<(), Error> {
        isolated::keep(tx).await
    }

    async fn take_back(&self, tx: &mut Tx) -> Result<(), Error> {
        isolated::take_back(tx).await
    }

    async fn commit_consumed(&self, tx: Tx) -> Result<(), Error> {
        tx.commit().await
    }

    async fn next_offset(
        &self,
        consumer: &Consumer,
        source: &str,
        topic: &str,
        partition: i32,
    ) -> Result<Option<i64>, Error> {
        offset::next(self, consumer, source, topic, partition).await
    }

    async fn declare(&self, name: &str, declaration: &Declaration) -> Result<Consumer, Error> {
        declare::declare(self, name, declaration).await
    }

    async fn generation(&self, name: &str) -> Result<Option<u32>, Error> {
        declare::generation(self, name).await
    }

    async fn dead_letter(&self, consumer: &Consumer, delivery: &Delivery, letter: &Letter) -> Result<bool, Error> {
        letter::set_aside(self, consumer, delivery, letter).await
    }

    async fn redriven(&self, consumer: &str, limit: u32) -> Result<Vec<LetterRecord>, Error> {
        letter::redriven(self, consumer, limit).await
    }

    async fn take_letter(&self, id: LetterId) -> Result<Option<Tx>, Error> {
        letter::take(self, id).await
    }

    async fn bury(&self, id: LetterId, cause: &str) -> Result<(), Error> {
        letter::bury(self, id, cause).await
    }

    async fn consumers(&self, name: Option<&str>) -> Result<Vec<ConsumerRecord>, Error> {
        operator::consumers(self, name).await
    }

    async fn letters(&self, filter: &LetterFilter, limit: u32) -> Result<Vec<LetterRecord>, Error> {
        operator::letters(self, filter, limit).await
    }

    async fn redrive_letters(&self, filter: &LetterFilter, audit: &Audit, dry_run: bool) -> Result<u64, Error> {
        operator::redrive(self, filter, audit, dry_run).await
    }

    async fn replay_consumer(&self, name: &str, audit: &Audit, dry_run: bool) -> Result<Option<u32>, Error> {
        operator::replay(self, name, audit, dry_run).await
    }

    async fn reap_inbox(&self, consumer: &str, keep: Duration, limit: u32) -> Result<u64, Error> {
        reap::reap(self, consumer, keep, limit).await
    }
}
