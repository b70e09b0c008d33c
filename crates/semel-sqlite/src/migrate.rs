//! The schema, and how it gets into a file.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use semel::{Clock, Error, SystemClock};
use sha2::{Digest, Sha256};

use crate::connect;
use crate::error::classify;

const MIGRATIONS_TABLE: &str = include_str!("sql/migrations.sql");

const MIGRATIONS: &[Migration] =
    &[Migration { version: 1, name: "keys", sql: include_str!("../migrations/0001_keys.sql") }];

/// How long a migration waits for other processes that write to the file.
const PATIENCE: Duration = Duration::from_secs(30);

/// One numbered step of the schema. Steps are only ever added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Its number, counted from one.
    pub version: u32,
    /// What it is about.
    pub name: &'static str,
    /// Its statements.
    pub sql: &'static str,
}

impl Migration {
    fn checksum(&self) -> String {
        Sha256::digest(self.sql).iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

/// Every migration, in order.
pub fn migrations() -> impl Iterator<Item = Migration> {
    MIGRATIONS.iter().copied()
}

/// All migrations as one script, for those who apply schema changes by other means. It records what it did, so that
/// [`migrate`] and the service see a migrated file.
pub fn script() -> String {
    let mut script = format!("BEGIN IMMEDIATE;\n\n{MIGRATIONS_TABLE}");
    for migration in MIGRATIONS {
        let (Migration { version, name, sql }, checksum) = (migration, migration.checksum());
        let _ = write!(
            script,
            "\n{sql}\nINSERT INTO semel_migrations (version, name, checksum, applied_at)\n\
             VALUES ({version}, '{name}', '{checksum}', unixepoch() * 1000);\n"
        );
    }
    script.push_str("\nCOMMIT;\n");
    script
}

/// Brings a file's schema to this version, making the file if there is none, and says which migrations that took.
///
/// All of them apply in one commit: after a crash the schema is as it was. Again, it does nothing. Several processes may
/// call it at once; one migrates and the others find it done.
pub async fn migrate(path: impl AsRef<Path>) -> Result<Vec<Migration>, Error> {
    let mut connection = connect::open(path.as_ref(), PATIENCE)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(classify)?;
    let applied = apply(&transaction, SystemClock.now_ms())?;
    transaction.commit().map_err(classify)?;
    Ok(applied)
}

/// Applies what is missing, in the caller's write transaction.
pub(crate) fn apply(connection: &Connection, now_ms: i64) -> Result<Vec<Migration>, Error> {
    connection.execute_batch(MIGRATIONS_TABLE).map_err(classify)?;
    let recorded = recorded(connection)?;
    check_recorded(&recorded)?;
    let missing = MIGRATIONS.iter().skip(recorded.len());
    for migration in missing.clone() {
        connection.execute_batch(migration.sql).map_err(classify)?;
        let row = (migration.version, migration.name, migration.checksum(), now_ms);
        connection
            .execute("INSERT INTO semel_migrations (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)", row)
            .map_err(classify)?;
    }
    Ok(missing.copied().collect())
}

/// Checks that the file has exactly this version's schema.
pub(crate) fn check(connection: &Connection) -> Result<(), Error> {
    let recorded = recorded(connection)?;
    check_recorded(&recorded)?;
    if recorded.len() < MIGRATIONS.len() {
        let have = match recorded.last() {
            None => "no Semel schema".to_owned(),
            Some((version, _)) => format!("version {version} of the Semel schema"),
        };
        return Err(Error::Schema(format!(
            "the file has {have} and this program needs version {}; run `semel migrate`",
            MIGRATIONS.len()
        )));
    }
    Ok(())
}

/// The versions and checksums in the file, in order; none if it was never migrated.
fn recorded(connection: &Connection) -> Result<Vec<(u32, String)>, Error> {
    if !connection.table_exists(None, "semel_migrations").map_err(classify)? {
        return Ok(Vec::new());
    }
    let mut select =
        connection.prepare("SELECT version, checksum FROM semel_migrations ORDER BY version").map_err(classify)?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(classify)?;
    rows.collect::<rusqlite::Result<_>>().map_err(classify)
}

fn check_recorded(recorded: &[(u32, String)]) -> Result<(), Error> {
    for (position, (version, checksum)) in recorded.iter().enumerate() {
        let Some(migration) = MIGRATIONS.get(position) else {
            return Err(Error::Schema(format!(
                "the file has version {version} of the Semel schema, which is newer than this program's {}; use a newer \
                 semel",
                MIGRATIONS.len()
            )));
        };
        if migration.version != *version || migration.checksum() != *checksum {
            return Err(Error::Schema(format!(
                "migration {version} in the file is not the one this program knows; the file was migrated by another \
                 build"
            )));
        }
    }
    Ok(())
}
