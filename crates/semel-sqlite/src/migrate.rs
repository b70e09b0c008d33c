//! The schema, and how it gets into a file.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use semel::{Clock, Error, SystemClock};
use sha2::{Digest, Sha256};

use crate::connect;
use crate::error::classify;

const MIGRATIONS_TABLE: &str = include_str!("sql/migrations.sql");

const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "0001_keys", sql: include_str!("../migrations/0001_keys.sql") },
    Migration { version: 2, name: "0002_outbox", sql: include_str!("../migrations/0002_outbox.sql") },
    Migration { version: 3, name: "0003_inbox", sql: include_str!("../migrations/0003_inbox.sql") },
    Migration { version: 4, name: "0004_letters", sql: include_str!("../migrations/0004_letters.sql") },
    Migration { version: 5, name: "0005_letter_ids", sql: include_str!("../migrations/0005_letter_ids.sql") },
    Migration { version: 6, name: "0006_flows", sql: include_str!("../migrations/0006_flows.sql") },
    Migration { version: 7, name: "0007_flow_lives", sql: include_str!("../migrations/0007_flow_lives.sql") },
];

/// How long a migration waits for other processes that write to the file.
const PATIENCE: Duration = Duration::from_secs(30);

/// Every migration, in order: version, name and statements. Steps are only ever added.
pub fn migrations() -> impl Iterator<Item = (u32, &'static str, &'static str)> {
    MIGRATIONS.iter().map(|migration| (migration.version, migration.name, migration.sql))
}

/// The whole schema as one script in one transaction, for files whose changes go through other hands. It leaves the
/// same record as [`migrate`], so that services take the file as migrated.
pub fn schema_sql() -> String {
    let mut script = format!(
        "-- Semel {} on SQLite, for a file that has no Semel schema yet.\n\nBEGIN;\n\n{MIGRATIONS_TABLE}",
        env!("CARGO_PKG_VERSION")
    );
    for migration in MIGRATIONS {
        let Migration { version, name, sql } = migration;
        script.push_str(&format!(
            "\n-- {name}\n{sql}\nINSERT INTO semel_migrations (version, name, checksum, applied_at)\n\
             VALUES ({version}, '{name}', '{}', CAST(strftime('%s', 'now') AS INTEGER) * 1000);\n",
            migration.checksum()
        ));
    }
    script.push_str("\nCOMMIT;\n");
    script
}

struct Migration {
    version: u32,
    name: &'static str,
    sql: &'static str,
}

impl Migration {
    /// What is recorded of the text, so that a file migrated by another text is noticed.
    fn checksum(&self) -> String {
        Sha256::digest(self.sql).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }
}

/// Brings a file's schema to this version, making the file if there is none, and names the migrations that took.
///
/// All of them apply in one commit: after a crash the schema is as it was. Again, it does nothing. Several processes
/// may call it at once; one migrates and the others find it done.
pub async fn migrate(path: impl AsRef<Path>) -> Result<Vec<String>, Error> {
    let mut connection = connect::open(path.as_ref(), PATIENCE)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(classify)?;
    let applied = apply(&transaction, SystemClock.now_ms())?;
    transaction.commit().map_err(classify)?;
    Ok(applied)
}

/// Applies what is missing, in the caller's write transaction.
pub(crate) fn apply(connection: &Connection, now_ms: i64) -> Result<Vec<String>, Error> {
    connection.execute_batch(MIGRATIONS_TABLE).map_err(classify)?;
    let recorded = recorded(connection)?;
    check_recorded(&recorded)?;
    let mut applied = Vec::new();
    for migration in MIGRATIONS.iter().skip(recorded.len()) {
        connection.execute_batch(migration.sql).map_err(classify)?;
        let row = (migration.version, migration.name, migration.checksum(), now_ms);
        connection
            .execute("INSERT INTO semel_migrations (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)", row)
            .map_err(classify)?;
        applied.push(migration.name.to_owned());
    }
    Ok(applied)
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
    // A query, because the connection's own idea of the schema may be older than what another one has committed.
    let exists = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'semel_migrations')";
    if !connection.query_row(exists, (), |row| row.get::<_, bool>(0)).map_err(classify)? {
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
                "the file has version {version} of the Semel schema, which is newer than this program's {}; use a \
                 newer semel",
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
