//! The schema as one script, for databases whose changes go through other hands.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::config::DatabaseUrl;

/// Keeps the script's record of what was applied equal to that of `semel migrate`.
const POSTGRES_MIGRATIONS: &str = include_str!("../../sql/postgres_migrations.sql");
const SQLITE_MIGRATIONS: &str = include_str!("../../sql/sqlite_migrations.sql");

/// Everything that `semel migrate` would do to an empty database, in one transaction. Applied by hand, it leaves the
/// same record, so that services and `semel migrate` take the database as migrated.
pub(crate) fn script(url: &DatabaseUrl) -> String {
    match url {
        DatabaseUrl::Postgres(_) => postgres(),
        DatabaseUrl::Sqlite(_) => sqlite(),
    }
}

fn postgres() -> String {
    let mut script = opened("PostgreSQL", POSTGRES_MIGRATIONS);
    for migration in semel_postgres::migrations() {
        let (version, name, checksum) = (migration.version, migration.name, checksum(migration.sql));
        append(&mut script, name, migration.sql);
        let record = "INSERT INTO semel.migrations (version, name, checksum)";
        // Writing to a String cannot fail.
        let _ = writeln!(script, "{record}\nVALUES ({version}, '{name}', '\\x{checksum}');");
    }
    for (name, sql) in semel_postgres::functions() {
        append(&mut script, &format!("function semel.{name}"), sql);
    }
    script + "\nCOMMIT;\n"
}

fn sqlite() -> String {
    let mut script = opened("SQLite", SQLITE_MIGRATIONS);
    for (version, name, sql) in semel_sqlite::migrations() {
        append(&mut script, name, sql);
        let record = "INSERT INTO semel_migrations (version, name, checksum, applied_at)";
        let now = "CAST(strftime('%s', 'now') AS INTEGER) * 1000";
        // Writing to a String cannot fail.
        let _ = writeln!(script, "{record}\nVALUES ({version}, '{name}', '{}', {now});", checksum(sql));
    }
    script + "\nCOMMIT;\n"
}

fn opened(store: &str, migrations: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("-- Semel {version} on {store}, for a database that has no Semel schema yet.\n\nBEGIN;\n\n{migrations}")
}

fn append(script: &mut String, name: &str, sql: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(script, "\n-- {name}\n{}", sql.trim_end());
}

fn checksum(sql: &str) -> String {
    Sha256::digest(sql).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}
