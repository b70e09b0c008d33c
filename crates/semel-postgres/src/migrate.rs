//! The schema, in numbered steps.

use std::collections::HashMap;

use semel::Error;
use sha2::{Digest, Sha256};
use tokio_postgres::types::{ToSql, Type};

use crate::error::classify;
use crate::store::Postgres;

/// One numbered step. Steps are only ever added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Its number, counted from one.
    pub version: i32,
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub sql: &'static str,
}

macro_rules! migrations {
    ($($version:literal $name:literal),* $(,)?) => {
        &[$(Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!("../migrations/", $name, ".sql")),
        }),*]
    };
}

macro_rules! functions {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../functions/", $name, ".sql")))),*]
    };
}

const MIGRATIONS: &[Migration] = migrations![
    1 "0001_installation", 2 "0002_keys", 3 "0003_audit", 4 "0004_outbox", 5 "0005_tick_xid", 6 "0006_inbox",
    7 "0007_letters", 8 "0008_letter_ids", 9 "0009_slots", 10 "0010_key_bounds", 11 "0011_flows",
    12 "0012_flow_lives", 13 "0013_functions", 14 "0014_cancelling", 15 "0015_begin_claim",
    16 "0016_key_row", 17 "0017_event_bounds",
];

/// In the order of their dependencies.
const FUNCTIONS: &[(&str, &str)] = functions![
    "fingerprint",
    "lock_id",
    "require_first_statement",
    "require_durable_commit",
    "require_rows",
    "forget_flows",
    "claim",
    "begin_claim",
    "completing",
    "complete",
    "wait",
    "lease",
    "fence",
    "require_wanted",
    "fencing",
    "completing_leased",
    "recording",
    "renew",
    "release",
    "abandon",
    "advance",
    "complete_leased",
    "reap",
    "evict",
    "incarnation",
    "incarnation_hash",
    "lane",
    "event_id",
    "emitting_execution",
    "next_ordinal",
    "lock_ordering_keys",
    "require_headers",
    "emit",
    "emit_all",
    "require_incarnation",
    "require_no_prepared",
    "require_read_committed",
    "event_slots",
    "next_tick",
    "head_tick",
    "tick",
    "page",
    "latest_positions",
    "uncovered",
    "covered_upto",
    "settle_slots",
    "reselect",
    "begin_incarnation",
    "join_relays",
    "require_relay",
    "renew_relay",
    "take_lanes",
    "checkpoint",
    "leave_lanes",
    "leave_relays",
    "hold_key",
    "hold_events",
    "release_key",
    "renumber_key",
    "redrive",
    "skip_event",
    "backlog",
    "rebase",
    "prepare_slot",
    "switch_slot",
    "record_switch",
    "writers_before",
    "empty_slot",
    "accepting_consumer",
    "accept",
    "accept_ids",
    "require_few_ranges",
    "accept_sequence",
    "accept_sequences",
    "accept_offsets",
    "accept_versions",
    "next_offset",
    "reap_inbox",
    "declare_consumer",
    "dead_letter",
    "take_letter",
    "bury_letter",
    "redrive_letters",
    "replay_consumer",
    "take_flow",
    "begin_flow",
    "take_flows",
    "flow_journal",
    "next_step",
    "record_step",
    "settle_step",
    "count_attempt",
    "end_attempt",
    "park_flow",
    "hold_flow",
    "unwind_flow",
    "flow_state",
    "lock_flow",
    "release_flow",
    "audit_flow",
    "retry_flow",
    "resolve_flow",
    "cancel_flow",
    "job_key",
    "next_job",
    "stage_all",
    "stage",
];

const PROLOGUE: &str = include_str!("sql/prologue.sql");

const KNOWN_FUNCTIONS: &str = include_str!("sql/known_functions.sql");
const NOTE_FUNCTIONS: &str = include_str!("sql/note_functions.sql");

/// Serialises migrations of several processes: "semel" in ASCII.
const MIGRATION_LOCK: i64 = 0x0073_656d_656c;

/// The numbered steps that make the tables, in order.
pub fn migrations() -> &'static [Migration] {
    MIGRATIONS
}

/// The functions, by name. Those that have changed are replaced when the schema is migrated. Run them after the steps.
pub fn functions() -> &'static [(&'static str, &'static str)] {
    FUNCTIONS
}

/// The whole schema as one script in one transaction, for databases whose changes go through other hands. It leaves the
/// same record as [`crate::Postgres::migrate`], so that services take the database as migrated.
pub fn schema_sql() -> String {
    let mut script = format!(
        "-- Semel {} on PostgreSQL, for a database that has no Semel schema yet.\n\nBEGIN;\n\n{PROLOGUE}",
        env!("CARGO_PKG_VERSION")
    );
    for Migration { version, name, sql } in MIGRATIONS {
        let checksum = hex(sql);
        script.push_str(&format!(
            "\n-- {name}\n{sql}\nINSERT INTO semel.migrations (version, name, checksum)\n\
             VALUES ({version}, '{name}', '\\x{checksum}');\n"
        ));
    }
    for (name, sql) in FUNCTIONS {
        script.push_str(&format!(
            "\n-- function semel.{name}\n{sql}INSERT INTO semel.functions VALUES ('{name}', '\\x{}');\n",
            hex(sql)
        ));
    }
    script.push_str("\nCOMMIT;\n");
    script
}

/// The checksum of a file, as SQL writes bytes.
fn hex(sql: &str) -> String {
    Sha256::digest(sql).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) async fn run(store: &Postgres) -> Result<Vec<String>, Error> {
    let session = store.session().await?;
    let applied = apply(session.connection()?).await?;
    session.release();
    Ok(applied)
}

async fn apply(connection: &deadpool_postgres::Object) -> Result<Vec<String>, Error> {
    let begin =
        format!("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({MIGRATION_LOCK}); {PROLOGUE}");
    connection.batch_execute(&begin).await.map_err(classify)?;
    let rows = connection
        .query_typed("SELECT version, name, checksum FROM semel.migrations ORDER BY version", &[])
        .await
        .map_err(classify)?;
    let mut done: Vec<(i32, String, Vec<u8>)> = Vec::new();
    for row in rows {
        done.push((
            row.try_get(0).map_err(classify)?,
            row.try_get(1).map_err(classify)?,
            row.try_get(2).map_err(classify)?,
        ));
    }
    refuse_newer(done.iter().map(|(version, ..)| *version).max())?;
    let mut names = Vec::new();
    for migration in MIGRATIONS {
        let checksum = Sha256::digest(migration.sql).to_vec();
        if let Some((.., known)) = done.iter().find(|(version, ..)| *version == migration.version) {
            if *known != checksum {
                return Err(Error::Schema(format!(
                    "migration {} was applied with another content than this version has; migrations are never edited",
                    migration.name
                )));
            }
            continue;
        }
        connection.batch_execute(migration.sql).await.map_err(classify)?;
        let record = "INSERT INTO semel.migrations (version, name, checksum) VALUES ($1, $2, $3)";
        connection
            .execute_typed(
                record,
                &[(&migration.version, Type::INT4), (&migration.name, Type::TEXT), (&checksum, Type::BYTEA)],
            )
            .await
            .map_err(classify)?;
        names.push(migration.name.to_owned());
    }
    replace_functions(connection).await?;
    connection.batch_execute("COMMIT").await.map_err(classify)?;
    Ok(names)
}

/// Makes the functions that are not as this program has them. Replacing them all would rewrite the catalog whenever a
/// service starts.
async fn replace_functions(connection: &deadpool_postgres::Object) -> Result<(), Error> {
    let mut known: HashMap<String, Vec<u8>> = HashMap::new();
    for row in connection.query_typed(KNOWN_FUNCTIONS, &[]).await.map_err(classify)? {
        known.insert(row.try_get(0).map_err(classify)?, row.try_get(1).map_err(classify)?);
    }
    let (mut names, mut checksums, mut script) = (Vec::new(), Vec::new(), String::new());
    for (name, sql) in FUNCTIONS {
        let checksum = Sha256::digest(sql).to_vec();
        if known.get(*name) != Some(&checksum) {
            script.push_str(sql);
            names.push(*name);
            checksums.push(checksum);
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    connection.batch_execute(&script).await.map_err(classify)?;
    let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&names, Type::TEXT_ARRAY), (&checksums, Type::BYTEA_ARRAY)];
    connection.execute_typed(NOTE_FUNCTIONS, &parameters).await.map_err(classify)?;
    Ok(())
}

pub(crate) async fn check(store: &Postgres) -> Result<(), Error> {
    let row = store.call("SELECT to_regclass('semel.migrations') IS NOT NULL", &[]).await?;
    if !row.try_get::<_, bool>(0).map_err(classify)? {
        return Err(Error::Schema("the database has no Semel schema; run `semel migrate`".to_owned()));
    }
    let row = store.call("SELECT max(version) FROM semel.migrations", &[]).await?;
    let found: Option<i32> = row.try_get(0).map_err(classify)?;
    refuse_newer(found)?;
    let needed = MIGRATIONS.len();
    match found {
        Some(version) if usize::try_from(version) == Ok(needed) => Ok(()),
        found => Err(Error::Schema(format!(
            "the database has version {} of the Semel schema and this program needs {needed}; run `semel migrate`",
            found.unwrap_or(0)
        ))),
    }
}

fn refuse_newer(found: Option<i32>) -> Result<(), Error> {
    let needed = MIGRATIONS.len();
    match found {
        Some(version) if usize::try_from(version).is_ok_and(|version| version > needed) => Err(Error::Schema(format!(
            "the database has version {version} of the Semel schema and this program knows only {needed}; use a newer \
             program"
        ))),
        _ => Ok(()),
    }
}
