//! The two kinds of outbox table, and how a service writes to each.

use anyhow::Result;
use semel_postgres::{Options, Postgres};
use tokio_postgres::{Client, Statement};

use crate::load::{Numbered, TOPIC};
use crate::{database, polling};

const SEMEL_EMIT: &str = include_str!("sql/semel_emit.sql");
const POLLING_EMIT: &str = include_str!("sql/polling_emit.sql");

const SEMEL_DEAD_ROWS: &str = include_str!("sql/semel_dead_rows.sql");
const POLLING_DEAD_ROWS: &str = include_str!("sql/polling_dead_rows.sql");

/// Which outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    /// Semel's.
    Semel,
    /// The one that a polling relay updates.
    Polling,
}

/// A session that writes events.
#[derive(Debug)]
pub(crate) struct Writer {
    session: Client,
    emit: Statement,
}

impl Table {
    pub(crate) async fn create(self, url: &str) -> Result<()> {
        match self {
            Table::Semel => {
                Postgres::open(url, Options::default())?.migrate().await?;
            }
            Table::Polling => database::session(url).await?.batch_execute(polling::SCHEMA).await?,
        }
        Ok(())
    }

    pub(crate) async fn writer(self, url: &str) -> Result<Writer> {
        let session = database::session(url).await?;
        let emit = session.prepare(if self == Table::Semel { SEMEL_EMIT } else { POLLING_EMIT }).await?;
        Ok(Writer { session, emit })
    }

    /// Counts the dead rows of the tables that hold events, as the server's statistics have them.
    pub(crate) fn dead_rows(self) -> &'static str {
        match self {
            Table::Semel => SEMEL_DEAD_ROWS,
            Table::Polling => POLLING_DEAD_ROWS,
        }
    }
}

impl Writer {
    /// Writes these events in one transaction of their own.
    pub(crate) async fn emit(&self, events: &[Numbered]) -> Result<()> {
        let keys: Vec<&str> = events.iter().map(|event| event.key.as_str()).collect();
        let payloads: Vec<&[u8]> = events.iter().map(|event| event.payload.as_ref()).collect();
        self.session.execute(&self.emit, &[&TOPIC, &keys, &payloads]).await?;
        Ok(())
    }
}
