//! A database whose table of keys is filled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use semel_bench::stage::{Database, Stage, session};
use semel_postgres::tokio_postgres::Client;
use semel_postgres::{Options, Postgres};
use tokio::task::JoinSet;

use crate::operation::fingerprint;

const SLOW_TO_FILL: &str = include_str!("sql/slow_to_fill.sql");
const FILL: &str = include_str!("sql/fill.sql");
const COUNTED: &str = include_str!("sql/counted.sql");
const CONNECTED: &str = include_str!("sql/connected.sql");

/// How many sessions fill a table.
const FILLERS: u64 = 2;

/// How many keys one statement fills in.
const CHUNK: u64 = 500_000;

/// What a key takes on the disk at most while the table is filled, with its share of indexes, sorting and log.
const BYTES_PER_KEY: u64 = 900;

/// What a server takes besides.
const BYTES_BESIDES: u64 = 2 << 30;

/// Keys that were made so many hours ago are kept for a day, and so either live or have expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    Today = 1,
    DaysAgo = 72,
}

/// A database whose table of keys is filled.
#[derive(Debug)]
pub(crate) struct Stored {
    /// How many keys it was filled with.
    pub(crate) keys: u64,
    pub(crate) database: Database,
    /// What the fill stored expires before this, and what operations store after it.
    boundary: SystemTime,
    /// How many operations have run since.
    operations: AtomicU64,
}

impl Stored {
    /// Fills a new database. Constraints and indexes are made again when the keys are in, as they were.
    pub(crate) async fn fill(stage: &Stage, keys: u64, made: Made) -> Result<Stored> {
        let (database, begun) = (stage.database().await?, Instant::now());
        let client = session(&database.url).await?;
        client.batch_execute("ALTER TABLE semel.keys SET (autovacuum_enabled = false)").await?;
        let slow = client.query(SLOW_TO_FILL, &[]).await?;
        for row in &slow {
            client.batch_execute(row.try_get(0)?).await?;
        }
        insert(&database, keys, made).await?;
        client.batch_execute("SET maintenance_work_mem = '512MB'").await?;
        for row in &slow {
            let again: &str = row.try_get(1)?;
            eprintln!("{:.0} s: {again}", begun.elapsed().as_secs_f64());
            client.batch_execute(again).await?;
        }
        eprintln!("{:.0} s: vacuum and checkpoint", begun.elapsed().as_secs_f64());
        client.batch_execute("ALTER TABLE semel.keys RESET (autovacuum_enabled)").await?;
        client.batch_execute("VACUUM ANALYZE semel.keys").await?;
        client.batch_execute("CHECKPOINT").await?;
        eprintln!("{:.0} s: a table of {keys} keys is ready", begun.elapsed().as_secs_f64());
        let boundary = "SELECT now() + interval '23 hours 30 minutes'";
        let boundary = client.query_one(boundary, &[]).await?.try_get(0)?;
        let stored = Stored { keys, database, boundary, operations: AtomicU64::new(0) };
        stored.check_all(keys).await?;
        Ok(stored)
    }

    /// A store with a connection for each client.
    pub(crate) async fn connect(&self, clients: u64) -> Result<Postgres> {
        let options = Options { pool_size: usize::try_from(clients)?, ..Options::default() };
        Ok(Postgres::connect(&self.database.url, options).await?)
    }

    /// Checks that operations left a line and a key each, with so many that have just run, and nothing else did.
    pub(crate) async fn check(&self, ran: u64) -> Result<()> {
        let operations = self.operations.fetch_add(ran, Ordering::Relaxed) + ran;
        let row = session(&self.database.url).await?.query_one(COUNTED, &[&self.boundary]).await?;
        let (lines, keys): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        if (lines.unsigned_abs(), keys.unsigned_abs()) != (operations, operations) {
            bail!("{operations} operations left {lines} lines and {keys} keys");
        }
        Ok(())
    }

    /// Checks that so many of the keys that were filled in are there, and those of operations: all rows are counted.
    pub(crate) async fn check_all(&self, filled: u64) -> Result<()> {
        let row = session(&self.database.url).await?.query_one("SELECT count(*) FROM semel.keys", &[]).await?;
        let (keys, operations): (i64, u64) = (row.try_get(0)?, self.operations.load(Ordering::Relaxed));
        if keys.unsigned_abs() != filled + operations {
            bail!("{filled} keys that were filled in and {operations} operations left {keys} keys");
        }
        Ok(())
    }

    /// Waits until everybody has left. A session tells at the latest when it ends what it wrote to the log.
    pub(crate) async fn left(&self, admin: &Client) -> Result<()> {
        let begun = Instant::now();
        loop {
            let connected: i64 = admin.query_one(CONNECTED, &[&self.database.name]).await?.try_get(0)?;
            if connected == 0 {
                return Ok(());
            }
            if begun.elapsed() > Duration::from_secs(10) {
                bail!("{connected} sessions do not end");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Fails where the disk of the server has too little room for a table of so many keys.
pub(crate) async fn require_room(stage: &Stage, keys: u64) -> Result<()> {
    let row = stage.admin().await?.query_one("SELECT current_setting('data_directory')", &[]).await?;
    let directory: String = row.try_get(0)?;
    let df = std::process::Command::new("df").args(["--output=avail", "--block-size=1"]).arg(&directory).output()?;
    let told = String::from_utf8_lossy(&df.stdout);
    let free: Option<u64> = told.lines().nth(1).and_then(|bytes| bytes.trim().parse().ok());
    let free = free.with_context(|| format!("df does not tell how much room there is in {directory}"))?;
    let needed = keys * BYTES_PER_KEY + BYTES_BESIDES;
    if free < needed {
        bail!(
            "{keys} keys take up to {} MiB while the table is filled, and {directory} has {} MiB left: give it more \
             room, or measure with fewer (--keys)",
            needed >> 20,
            free >> 20
        );
    }
    Ok(())
}

async fn insert(database: &Database, keys: u64, made: Made) -> Result<()> {
    let done = Arc::new(AtomicU64::new(0));
    let mut fillers = JoinSet::new();
    for filler in 0..FILLERS {
        let (client, done) = (session(&database.url).await?, Arc::clone(&done));
        fillers.spawn(async move {
            let statement = client.prepare(FILL).await?;
            let (of, fingerprint, hours) = (keys as f64, fingerprint(), made as i32);
            for first in (filler * CHUNK..keys).step_by((FILLERS * CHUNK) as usize) {
                let (first, last) = (first.cast_signed(), (first + CHUNK).min(keys).cast_signed() - 1);
                let fingerprint = fingerprint.as_bytes().as_slice();
                let count = client.execute(&statement, &[&first, &last, &of, &fingerprint, &hours]).await?;
                let done = done.fetch_add(count, Ordering::Relaxed) + count;
                eprintln!("{done} of {keys} keys are in");
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = fillers.join_next().await {
        ended??;
    }
    Ok(())
}
