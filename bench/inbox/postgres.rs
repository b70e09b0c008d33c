//! The work on PostgreSQL.

use anyhow::{Result, bail};
use semel_postgres::deadpool_postgres::Object;
use semel_postgres::tokio_postgres::Statement;
use semel_postgres::{Deferred, Postgres, Tx};

use crate::business::{Bare, Business, Counted};
use crate::case::Sending;
use crate::load::{AMOUNT, Numbered};

pub(crate) const SCHEMA: &str = include_str!("sql/postgres/schema.sql");
const RECEIPT: &str = include_str!("sql/postgres/receipt.sql");
const INBOX: &str = include_str!("sql/postgres/inbox.sql");
const BALANCE: &str = include_str!("sql/postgres/balance.sql");
const COUNTED: &str = include_str!("sql/postgres/counted.sql");

/// The driver alone, with prepared statements.
pub(crate) struct Session {
    client: Object,
    inbox: Statement,
    receipt: Statement,
    balance: Statement,
}

impl Business for Postgres {
    type Bare = Session;

    async fn charge(tx: &mut Tx, message: Numbered, sending: Sending) -> Result<(), semel::Error> {
        let (id, account) = (message.id(), message.account());
        match sending {
            Sending::Awaited | Sending::ByHand => {
                tx.execute(RECEIPT, &[&id, &account, &AMOUNT]).await?;
                tx.execute(BALANCE, &[&account, &AMOUNT]).await?;
            }
            Sending::Deferred => {
                tx.defer(Deferred::expecting(1, RECEIPT).bind(id).bind(account).bind(AMOUNT));
                tx.defer(Deferred::expecting(1, BALANCE).bind(account).bind(AMOUNT));
            }
        }
        Ok(())
    }

    async fn without_inbox(&self) -> Result<Session> {
        let client = self.client().await?;
        let (receipt, balance) = (client.prepare(RECEIPT).await?, client.prepare(BALANCE).await?);
        let inbox = client.prepare(INBOX).await?;
        Ok(Session { client, inbox, receipt, balance })
    }

    async fn counted(&self) -> Result<Counted> {
        let row = self.client().await?.query_one(COUNTED, &[]).await?;
        let number = |column: usize| row.try_get::<_, i64>(column).map(i64::unsigned_abs);
        Ok(Counted { receipts: number(0)?, different: number(1)?, changes: number(2)? })
    }

    async fn journal_bytes(&self) -> Result<Option<u64>> {
        let asking = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
        let row = self.client().await?.query_one(asking, &[]).await?;
        Ok(Some(row.try_get::<_, i64>(0)?.unsigned_abs()))
    }

    fn commits(&self) -> Option<u64> {
        None
    }
}

impl Bare for Session {
    async fn apply(&mut self, messages: &[Numbered], sending: Sending) -> Result<()> {
        let Session { client, inbox, receipt, balance } = self;
        match (sending, messages) {
            (Sending::Awaited, messages) => {
                client.batch_execute("BEGIN").await?;
                for message in messages {
                    client.execute(receipt, &[&message.id(), &message.account(), &AMOUNT]).await?;
                    client.execute(balance, &[&message.account(), &AMOUNT]).await?;
                }
                client.batch_execute("COMMIT").await?;
            }
            (Sending::Deferred, [message]) => {
                let (id, account) = (message.id(), message.account());
                let receipt_params: [&(dyn semel_postgres::tokio_postgres::types::ToSql + Sync); 3] =
                    [&id, &account, &AMOUNT];
                let balance_params: [&(dyn semel_postgres::tokio_postgres::types::ToSql + Sync); 2] =
                    [&account, &AMOUNT];
                // The driver sends each when it is first polled, which is in this order, and waits for none before.
                futures_util::try_join!(
                    client.batch_execute("BEGIN"),
                    client.execute(receipt, &receipt_params),
                    client.execute(balance, &balance_params),
                    client.batch_execute("COMMIT"),
                )?;
            }
            (Sending::ByHand, [message]) => {
                let (id, account) = (message.id(), message.account());
                let id_params: [&(dyn semel_postgres::tokio_postgres::types::ToSql + Sync); 1] = [&id];
                let ((), first) =
                    futures_util::try_join!(client.batch_execute("BEGIN"), client.execute(inbox, &id_params))?;
                if first != 1 {
                    bail!("a message that nobody had seen was a duplicate");
                }
                client.execute(receipt, &[&id, &account, &AMOUNT]).await?;
                client.execute(balance, &[&account, &AMOUNT]).await?;
                client.batch_execute("COMMIT").await?;
            }
            (Sending::Deferred | Sending::ByHand, _) => bail!("this is done without an inbox for single messages only"),
        }
        Ok(())
    }
}
