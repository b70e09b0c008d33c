//! What all measurements of one run share.

use anyhow::{Context, Result};
use semel_bench::processor;
use tokio::sync::OnceCell;

use crate::database::{self, Database};
use crate::load::Load;
use crate::options::Options;
use crate::servers::Servers;
use crate::table::Table;

/// A run.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) options: Options,
    pub(crate) load: Load,
    pub(crate) servers: Servers,
    semel: OnceCell<Database>,
    polling: OnceCell<Database>,
}

impl Bench {
    pub(crate) fn new(options: Options, servers: Servers) -> Bench {
        let load = Load { payload_bytes: options.payload_bytes, keys: options.keys };
        Bench { options, load, servers, semel: OnceCell::new(), polling: OnceCell::new() }
    }

    /// The process of the PostgreSQL server.
    pub(crate) async fn postmaster(&self) -> Result<i32> {
        let session = database::session(&self.servers.postgres.url()).await?;
        let pid: i32 = session.query_one("SELECT pg_backend_pid()", &[]).await?.try_get(0)?;
        processor::parent(pid).context("the server's process was not found")
    }

    /// The database whose copies are drained, filled when it is first asked for.
    pub(crate) async fn backlog(&self, table: Table) -> Result<&Database> {
        let cell = match table {
            Table::Semel => &self.semel,
            Table::Polling => &self.polling,
        };
        let events = self.options.events();
        cell.get_or_try_init(|| async {
            eprintln!("writing a backlog of {events} events");
            Database::filled(&self.servers, table, self.load, events).await
        })
        .await
    }
}
