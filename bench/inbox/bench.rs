//! The servers and databases that everything runs on: private, durable, gone afterwards.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use semel_bench::processor;
use semel_postgres::tokio_postgres::{Client, NoTls};
use semel_postgres::{Options as PostgresOptions, Postgres};
use semel_sqlite::{Options as SqliteOptions, Sqlite};
use semel_testkit::cluster::{Cluster, target_dir};
use semel_testkit::kafka::Kafka;

use crate::cache::Cache;
use crate::case::{Case, Run, Tier};
use crate::options::Options;
use crate::{postgres, sqlite};

/// The database that others are copied from.
const TEMPLATE: &str = "bench_template";

/// A run.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) options: Options,
    /// The process of the PostgreSQL server.
    pub(crate) postmaster: i32,
    /// What makes its commits durable, as the server itself says.
    pub(crate) durability: String,
    cluster: Cluster,
    cache: Option<Cache>,
    kafka: Option<Kafka>,
    serial: AtomicU32,
}

impl Bench {
    /// Starts what these cases need.
    pub(crate) async fn start(options: Options, cases: &[Case]) -> Result<Bench> {
        let cache = cases.iter().any(|case| matches!(case, Case::Runner(Run { tier: Tier::Redis, .. })));
        let kafka = cases.iter().any(|case| matches!(case, Case::Pipeline(_)));
        let (cluster, cache, kafka) = tokio::task::spawn_blocking(move || -> Result<_> {
            let cluster = Cluster::temporary()?;
            Ok((cluster, cache.then(Cache::temporary).transpose()?, kafka.then(Kafka::temporary).transpose()?))
        })
        .await??;
        let admin = session(&cluster.url()).await?;
        let pid: i32 = admin.query_one("SELECT pg_backend_pid()", &[]).await?.try_get(0)?;
        let postmaster = processor::parent(pid).context("the server's process was not found")?;
        let asking = "SELECT current_setting('fsync'), current_setting('synchronous_commit')";
        let row = admin.query_one(asking, &[]).await?;
        let (fsync, commit): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let durability = format!("fsync {fsync}, synchronous_commit {commit}");
        admin.batch_execute(&format!("CREATE DATABASE {TEMPLATE} TEMPLATE template0")).await?;
        let template = url(&cluster, TEMPLATE);
        Postgres::open(&template, PostgresOptions::default())?.migrate().await?;
        session(&template).await?.batch_execute(postgres::SCHEMA).await?;
        Ok(Bench { options, postmaster, durability, cluster, cache, kafka, serial: AtomicU32::new(0) })
    }

    /// A name that nothing had before.
    pub(crate) fn fresh_name(&self) -> String {
        format!("bench{}", self.serial.fetch_add(1, Ordering::Relaxed))
    }

    /// A database that holds the tables and no messages, and its name.
    pub(crate) async fn postgres(&self) -> Result<(Postgres, String)> {
        let name = self.fresh_name();
        let admin = session(&self.cluster.url()).await?;
        // A session that has just ended may count for a moment as connected.
        let disconnect = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{TEMPLATE}'");
        admin.batch_execute(&disconnect).await?;
        admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}")).await?;
        // What the copy has left to write to the disk is nobody's throughput.
        admin.batch_execute("CHECKPOINT").await?;
        let store = Postgres::connect(&url(&self.cluster, &name), PostgresOptions::default()).await?;
        Ok((store, name))
    }

    pub(crate) async fn drop_postgres(&self, name: &str) -> Result<()> {
        let admin = session(&self.cluster.url()).await?;
        Ok(admin.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await?)
    }

    /// A file that holds the tables and no messages, below a directory of its own.
    pub(crate) async fn sqlite(&self) -> Result<(Sqlite, PathBuf)> {
        let directory = target_dir().join("bench").join(format!("{}-{}", std::process::id(), self.fresh_name()));
        std::fs::create_dir_all(&directory)?;
        let file = directory.join("inbox.db");
        semel_sqlite::migrate(&file).await?;
        let store = Sqlite::open(&file, SqliteOptions::default()).await?;
        let mut tx = store.begin().await?;
        tx.execute_batch(sqlite::SCHEMA).await?;
        tx.commit().await?;
        Ok((store, directory))
    }

    /// How a tier of its own reaches Redis.
    pub(crate) fn cache_url(&self) -> Result<String> {
        let url = self.cache.as_ref().context("no Redis was started")?.url();
        Ok(format!("{url}?prefix={}", self.fresh_name()))
    }

    pub(crate) fn kafka(&self) -> Result<&Kafka> {
        self.kafka.as_ref().context("no Kafka was started")
    }
}

fn url(cluster: &Cluster, database: &str) -> String {
    let server = cluster.url();
    let (base, _) = server.rsplit_once('/').unwrap_or_default();
    format!("{base}/{database}")
}

/// Opens a session whose connection is driven in the background.
async fn session(url: &str) -> Result<Client> {
    let (client, connection) = semel_postgres::tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
