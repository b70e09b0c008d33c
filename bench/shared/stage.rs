//! The PostgreSQL server that a benchmark runs on, and databases on it: private, durable, gone afterwards.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use semel_postgres::tokio_postgres::{Client, NoTls};
use semel_postgres::{Options, Postgres};
use semel_testkit::cluster::Cluster;

use crate::processor;

/// The database that others are copied from.
const TEMPLATE: &str = "bench_template";

/// A server.
#[derive(Debug)]
pub struct Stage {
    /// Its process.
    pub postmaster: i32,
    /// Which it is, and what makes its commits durable, as it says itself.
    pub described: String,
    cluster: Cluster,
    serial: AtomicU32,
}

/// A database that is dropped by [`Stage::drop_database`], or with the server.
#[derive(Debug, Clone)]
pub struct Database {
    /// Its name on the server.
    pub name: String,
    /// How to connect to it.
    pub url: String,
}

impl Stage {
    /// Starts a server with a template that has Semel's tables and those of this schema.
    pub async fn start(schema: &str) -> Result<Stage> {
        let cluster = tokio::task::spawn_blocking(Cluster::temporary).await??;
        let admin = session(&cluster.url()).await?;
        let pid: i32 = admin.query_one("SELECT pg_backend_pid()", &[]).await?.try_get(0)?;
        let postmaster = processor::parent(pid).context("the server's process was not found")?;
        let described: String = admin.query_one(include_str!("sql/described.sql"), &[]).await?.try_get(0)?;
        admin.batch_execute(&format!("CREATE DATABASE {TEMPLATE} TEMPLATE template0")).await?;
        let template = url(&cluster, TEMPLATE);
        Postgres::open(&template, Options::default())?.migrate().await?;
        session(&template).await?.batch_execute(schema).await?;
        Ok(Stage { postmaster, described, cluster, serial: AtomicU32::new(0) })
    }

    /// A name that nothing had before.
    pub fn fresh_name(&self) -> String {
        format!("bench{}", self.serial.fetch_add(1, Ordering::Relaxed))
    }

    /// A copy of the template.
    pub async fn database(&self) -> Result<Database> {
        let name = self.fresh_name();
        let admin = self.admin().await?;
        // A session that has just ended may count for a moment as connected.
        let disconnect = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{TEMPLATE}'");
        admin.batch_execute(&disconnect).await?;
        admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}")).await?;
        // What the copy has left to write to the disk is nobody's throughput.
        admin.batch_execute("CHECKPOINT").await?;
        let url = url(&self.cluster, &name);
        Ok(Database { name, url })
    }

    /// Drops a database, whoever is connected to it.
    pub async fn drop_database(&self, database: &Database) -> Result<()> {
        let drop = format!("DROP DATABASE {} WITH (FORCE)", database.name);
        Ok(self.admin().await?.batch_execute(&drop).await?)
    }

    /// A session of the server's owner.
    pub async fn admin(&self) -> Result<Client> {
        session(&self.cluster.url()).await
    }
}

fn url(cluster: &Cluster, database: &str) -> String {
    let server = cluster.url();
    let (base, _) = server.rsplit_once('/').unwrap_or_default();
    format!("{base}/{database}")
}

/// Opens a session whose connection is driven in the background.
pub async fn session(url: &str) -> Result<Client> {
    let (client, connection) = semel_postgres::tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
