//! Databases that begin every measurement in the same state.

use anyhow::{Context, Result};
use tokio_postgres::{Client, NoTls};

use crate::load::Load;
use crate::servers::Servers;
use crate::table::Table;
use crate::writers;

/// How long the server may take to report a session's last statistics.
const STATISTICS_LAG: std::time::Duration = std::time::Duration::from_millis(1200);

/// A database of one measurement. It is dropped by [`Database::end`], or with the server.
#[derive(Debug)]
pub(crate) struct Database {
    server: String,
    name: String,
    /// What copies of it are numbered, if not by the server.
    copies: Option<u32>,
}

impl Database {
    /// One that holds the tables and nothing else.
    pub(crate) async fn empty(servers: &Servers, table: Table) -> Result<Database> {
        let server = servers.postgres.url();
        let database = Database { server, name: servers.fresh_name(), copies: None };
        database.order(&format!("CREATE DATABASE {} TEMPLATE template0", database.name)).await?;
        table.create(&database.url()).await?;
        Ok(database)
    }

    /// One that holds a backlog of this many events, with the planner's statistics up to date, to be copied.
    ///
    /// The events were written in a database of another number, which is gone; copies get that number. In a database of
    /// any other they would be those of another incarnation, and the first relay would write them all anew.
    pub(crate) async fn filled(servers: &Servers, table: Table, load: Load, events: u64) -> Result<Database> {
        let written = Database::empty(servers, table).await?;
        writers::fill(&written.url(), table, load, events).await?;
        let session = session(&written.url()).await?;
        session.batch_execute("ANALYZE").await?;
        let number = "SELECT oid FROM pg_database WHERE datname = current_database()";
        let number: u32 = session.query_one(number, &[]).await?.try_get(0)?;
        drop(session);
        let kept = Database { copies: Some(number), ..written.copy(servers).await? };
        written.end().await?;
        Ok(kept)
    }

    /// A copy of this one, file by file. Nobody may be connected to it, and there is one at a time.
    pub(crate) async fn copy(&self, servers: &Servers) -> Result<Database> {
        let copy = Database { server: self.server.clone(), name: servers.fresh_name(), copies: None };
        let number = self.copies.map(|number| format!("OID {number}")).unwrap_or_default();
        let copying = format!("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY {number}", copy.name, self.name);
        // A session that has just ended may count for a moment as connected.
        let disconnect =
            format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'", self.name);
        self.order(&disconnect).await?;
        self.order(&copying).await?;
        // What the copy has left to write to the disk is nobody's throughput.
        self.order("CHECKPOINT").await?;
        Ok(copy)
    }

    pub(crate) fn url(&self) -> String {
        let (base, _) = self.server.rsplit_once('/').unwrap_or_default();
        format!("{base}/{}", self.name)
    }

    /// Opens a transaction that holds `xmin` until the session is dropped, as a forgotten one does.
    pub(crate) async fn hold(&self) -> Result<Client> {
        let session = session(&self.url()).await?;
        session.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()").await?;
        Ok(session)
    }

    /// How many dead rows the tables with events have.
    pub(crate) async fn dead_rows(&self, table: Table) -> Result<i64> {
        tokio::time::sleep(STATISTICS_LAG).await;
        let row = session(&self.url()).await?.query_one(table.dead_rows(), &[]).await?;
        Ok(row.try_get(0)?)
    }

    pub(crate) async fn end(self) -> Result<()> {
        self.order(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await
    }

    async fn order(&self, sql: &str) -> Result<()> {
        session(&self.server).await?.batch_execute(sql).await.with_context(|| sql.to_owned())
    }
}

/// Opens a session whose connection is driven in the background.
pub(crate) async fn session(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
