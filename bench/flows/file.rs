//! The file that a round on SQLite runs on: fresh, on disk, gone afterwards.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use rusqlite::Connection;
use semel_testkit::cluster::target_dir;

const SCHEMA: &str = include_str!("sql/sqlite/schema.sql");
const COUNTED: &str = include_str!("sql/sqlite/counted.sql");

static SERIAL: AtomicU32 = AtomicU32::new(0);

/// A file with the business's table, in a directory of its own that goes with it.
#[derive(Debug)]
pub(crate) struct File {
    directory: PathBuf,
    path: PathBuf,
}

impl File {
    /// With Semel's tables, or for a peer, who makes his own.
    pub(crate) async fn fresh(is_ours: bool) -> Result<File> {
        let name = format!("{}-flows{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        // Below the target directory and not in /tmp, which may be memory: commits shall meet a real file system.
        let directory = target_dir().join("bench").join(name);
        std::fs::create_dir_all(&directory)?;
        let file = File { path: directory.join("bench.db"), directory };
        if is_ours {
            semel_sqlite::migrate(&file.path).await?;
        }
        let connection = file.connect()?;
        // It stays with the file, whoever opens it next.
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.execute_batch(SCHEMA)?;
        Ok(file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How peers are told where it is.
    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}", self.path.display())
    }

    /// How many lines it holds, how many whole flows, and how many that have ended by this query.
    pub(crate) fn counted(&self, ended: &str) -> Result<[u64; 3]> {
        let connection = self.connect()?;
        let (lines, whole) = connection.query_row(COUNTED, (), |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?;
        let ended: i64 = connection.query_row(ended, (), |row| row.get(0))?;
        Ok([lines, whole, ended].map(i64::unsigned_abs))
    }

    fn connect(&self) -> Result<Connection> {
        Ok(Connection::open(&self.path)?)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            eprintln!("{} is left: {error}", self.directory.display());
        }
    }
}

/// What makes the commits of a connection durable: its journal, and how far a commit is synced.
pub(crate) fn settings(connection: &Connection) -> rusqlite::Result<(String, i64)> {
    let journal = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    Ok((journal, connection.pragma_query_value(None, "synchronous", |row| row.get(0))?))
}
