//! The work on SQLite.

use anyhow::Result;
use semel_sqlite::{Deferred, Sqlite, Tx};

use crate::business::{Bare, Business, Counted};
use crate::case::Sending;
use crate::load::{AMOUNT, Numbered};

pub(crate) const SCHEMA: &str = include_str!("sql/sqlite/schema.sql");
const RECEIPT: &str = include_str!("sql/sqlite/receipt.sql");
const BALANCE: &str = include_str!("sql/sqlite/balance.sql");
const COUNTED: &str = include_str!("sql/sqlite/counted.sql");

/// The store's own writer, which commits waiting transactions as a group: what there is without an inbox, too.
pub(crate) struct Writer(Sqlite);

impl Business for Sqlite {
    type Bare = Writer;

    async fn charge(tx: &mut Tx, message: Numbered, sending: Sending) -> Result<(), semel::Error> {
        let (id, account) = (message.id(), message.account());
        match sending {
            Sending::Awaited | Sending::ByHand => {
                tx.execute(RECEIPT, (id, account, AMOUNT)).await?;
                tx.execute(BALANCE, (account, AMOUNT)).await?;
            }
            Sending::Deferred => {
                tx.defer(Deferred::expecting(1, RECEIPT).bind(id).bind(account).bind(AMOUNT));
                tx.defer(Deferred::expecting(1, BALANCE).bind(account).bind(AMOUNT));
            }
        }
        Ok(())
    }

    async fn without_inbox(&self) -> Result<Writer> {
        Ok(Writer(self.clone()))
    }

    async fn counted(&self) -> Result<Counted> {
        let numbers = self.read(|connection| {
            connection
                .query_row(COUNTED, (), |row| Ok([row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?]))
        });
        let [receipts, different, changes] = numbers.await?.map(i64::unsigned_abs);
        Ok(Counted { receipts, different, changes })
    }

    async fn journal_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn commits(&self) -> Option<u64> {
        Some(Sqlite::commits(self))
    }
}

impl Bare for Writer {
    async fn apply(&mut self, messages: &[Numbered], sending: Sending) -> Result<()> {
        let mut tx = self.0.begin().await?;
        for message in messages {
            Sqlite::charge(&mut tx, *message, sending).await?;
        }
        Ok(tx.commit().await?)
    }
}
