//! The file that a measurement runs on: fresh, on disk, gone afterwards.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};
use rusqlite::Connection;
use rusqlite::types::Value;
use semel_sqlite::{Options, Sqlite};
use semel_testkit::cluster::target_dir;

const SCHEMA: &str = include_str!("sql/schema.sql");
const COUNTED: &str = include_str!("sql/counted.sql");

/// What decides how much a commit costs.
const SETTINGS: [&str; 7] = [
    "journal_mode",
    "synchronous",
    "page_size",
    "cache_size",
    "wal_autocheckpoint",
    "journal_size_limit",
    "foreign_keys",
];

static SERIAL: AtomicU32 = AtomicU32::new(0);

/// A file with Semel's tables and those of the business, in a directory of its own that goes with it.
#[derive(Debug)]
pub(crate) struct File {
    directory: PathBuf,
    path: PathBuf,
}

impl File {
    pub(crate) async fn fresh() -> Result<File> {
        let name = format!("{}-embedded{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        // Below the target directory and not in /tmp, which may be memory: commits shall meet a real file system.
        let directory = target_dir().join("bench").join(name);
        std::fs::create_dir_all(&directory)?;
        let file = File { path: directory.join("bench.db"), directory };
        semel_sqlite::migrate(&file.path).await?;
        file.connect()?.execute_batch(SCHEMA)?;
        Ok(file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A connection of one's own, with the settings of Semel's.
    pub(crate) fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.path)?;
        for (pragma, value) in [
            ("journal_mode", "wal"),
            ("synchronous", "FULL"),
            ("foreign_keys", "ON"),
            ("journal_size_limit", "67108864"),
        ] {
            connection.pragma_update(None, pragma, value)?;
        }
        Ok(connection)
    }

    /// How many lines, changes, keys and events it holds, as one sees it who opens it anew.
    pub(crate) fn counted(&self) -> Result<[u64; 4]> {
        let counted = self
            .connect()?
            .query_row(COUNTED, (), |row| Ok([row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?, row.get(3)?]))?;
        Ok(counted.map(i64::unsigned_abs))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            eprintln!("{} is left: {error}", self.directory.display());
        }
    }
}

/// The settings that everybody has. Fails if Semel's are not those by hand, or do not make commits durable.
pub(crate) async fn settings() -> Result<String> {
    let file = File::fresh().await?;
    let by_hand = described(&file.connect()?)?;
    let ours = Sqlite::open(file.path(), Options::default()).await?.read(described).await?;
    if ours != by_hand {
        bail!("the settings differ: {ours}; by hand: {by_hand}");
    }
    if !ours.contains("journal_mode wal, synchronous 2,") {
        bail!("commits are not durable: {ours}");
    }
    Ok(ours)
}

fn described(connection: &Connection) -> rusqlite::Result<String> {
    let mut said = vec![format!("SQLite {}", rusqlite::version())];
    for pragma in SETTINGS {
        let value: Value = connection.pragma_query_value(None, pragma, |row| row.get(0))?;
        let value = match value {
            Value::Integer(number) => number.to_string(),
            Value::Text(text) => text,
            other => format!("{other:?}"),
        };
        said.push(format!("{pragma} {value}"));
    }
    Ok(said.join(", "))
}
