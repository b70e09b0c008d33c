//! The inbox: what consumers have seen.
//!
//! Everything that keeps a promise is a function in the schema `semel`; decision 4 lists the interleavings behind them.

pub(crate) mod accept;

mod isolated;
mod offset;
mod reap;

use std::time::Duration;

use semel::Error;
use semel::inbox::{Accepted, Consumer, Delivery, Inbox};

use crate::store::Postgres;
use crate::tx::Tx;

pub(crate) use isolated::Isolated;

impl Inbox for Postgres {
    async fn accept(&self, consumer: &Consumer, deliveries: &[Delivery]) -> Result<(Tx, Vec<Accepted>), Error> {
        accept::begin(self, consumer, deliveries).await
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

    async fn reap_inbox(&self, consumer: &str, keep: Duration, limit: u32) -> Result<u64, Error> {
        reap::reap(self, consumer, keep, limit).await
    }
}
