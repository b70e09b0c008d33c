//! psql alone can claim, act, complete and replay.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;

use semel::{Fingerprint, Key, Outcome, Reply, Scope, Semel};
use semel_postgres::{Options, Postgres};
use semel_testkit::database::TempDatabase;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/charge.sql");

async fn shop() -> (TempDatabase, Postgres) {
    let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
    let store = Postgres::open(&database.url(), Options::default()).unwrap();
    let table = "CREATE TABLE charges (id uuid PRIMARY KEY, tenant text NOT NULL, amount bigint NOT NULL)";
    database.connect().await.batch_execute(table).await.unwrap();
    (database, store)
}

fn charge(database: &TempDatabase, key: &str, amount: &str) -> String {
    let output = Command::new("psql")
        .arg(database.url())
        .args(["--no-psqlrc", "-v", "tenant=shop-7", "-v", &format!("key={key}"), "-v", &format!("amount={amount}")])
        .args(["-f", SCRIPT])
        .output()
        .expect("psql is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

async fn charges(database: &TempDatabase) -> i64 {
    database.connect().await.query_one("SELECT count(*) FROM charges", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn psql_alone_claims_acts_completes_and_replays() {
    let (database, _store) = shop().await;
    let first = charge(&database, "k-1", "4200");
    let execution = first.strip_prefix("fresh 201 ").unwrap().to_owned();
    let again = charge(&database, "k-1", "4200");
    assert_eq!(again, format!("replay 201 {{\"id\" : \"{execution}\", \"amount\" : 4200}}"));
    assert_eq!(charge(&database, "k-1", "9999"), "mismatch");
    assert_eq!(charges(&database).await, 1);
    assert!(charge(&database, "k-2", "4200").starts_with("fresh"));
    assert_eq!(charges(&database).await, 2);
}

#[tokio::test]
async fn a_key_that_psql_ran_replays_in_rust_and_the_other_way_round() {
    let (database, store) = shop().await;
    charge(&database, "k-1", "4200");
    let semel = Semel::new(store);
    let scope = Scope::new("shop-7", "charges.create").unwrap();
    let fingerprint = Fingerprint::of_bytes(b"4200");
    let run = async |key: &str| {
        let key = Key::new(key).unwrap();
        semel
            .once(&scope, &key, &fingerprint, async |tx| {
                let id = semel::Tx::execution(tx).as_uuid();
                tx.execute("INSERT INTO charges (id, tenant, amount) VALUES ($1, 'shop-7', 4200)", &[&id]).await?;
                Ok::<Reply, semel::Error>(Reply::new(201, "from rust").unwrap())
            })
            .await
            .unwrap()
    };
    let Outcome::Replayed(reply) = run("k-1").await else { panic!("psql ran it") };
    assert_eq!(reply.headers().collect::<Vec<_>>(), [("content-type", b"application/json".as_slice())]);
    assert!(matches!(run("k-2").await, Outcome::Fresh(_)));
    assert_eq!(charge(&database, "k-2", "4200"), "replay 201 from rust");
    assert_eq!(charges(&database).await, 2);
}

/// The blocks of the guide, one after the other in one session, as it says.
#[tokio::test]
async fn the_guide_runs_as_it_is_written() {
    let (database, _store) = shop().await;
    let guide = include_str!("../../../docs/guides/plain-sql.md");
    let blocks: Vec<&str> =
        guide.split("```sql\n").skip(1).map(|block| block.split_once("```").expect("a block ends").0).collect();
    assert!(blocks.len() >= 5, "the guide has its SQL");
    let script = tempfile_with(&blocks.join("\n"));
    let output = Command::new("psql")
        .arg(database.url())
        .args(["--no-psqlrc", "--tuples-only", "--no-align", "-v", "ON_ERROR_STOP=1", "-f"])
        .arg(script.path())
        .output()
        .expect("psql is installed");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = said.lines().collect();
    for expected in ["fresh", "mismatch", "t"] {
        assert!(lines.contains(&expected), "{expected} is not in {said}");
    }
    assert!(lines.iter().any(|line| line.starts_with("replay|201|")), "{said}");
    assert!(!lines.contains(&"f"), "a check of the guide failed: {said}");
}

fn tempfile_with(script: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), script).unwrap();
    file
}

#[tokio::test]
async fn psql_is_told_at_once_that_a_key_is_in_flight() {
    let (database, _store) = shop().await;
    let mut client = database.connect().await;
    let holder = client.transaction().await.unwrap();
    let fingerprint = Fingerprint::of_bytes(b"4200").as_bytes().to_vec();
    let claim = "SELECT outcome FROM semel.claim('shop-7', 'charges.create', 'k-1', $1)";
    let outcome: String = holder.query_one(claim, &[&fingerprint]).await.unwrap().get(0);
    assert_eq!(outcome, "fresh");
    assert_eq!(charge(&database, "k-1", "4200"), "in_flight");
    holder.rollback().await.unwrap();
    assert!(charge(&database, "k-1", "4200").starts_with("fresh"));
}

#[tokio::test]
async fn completing_by_hand_needs_a_claim_of_the_same_transaction_and_never_overwrites() {
    let (database, _store) = shop().await;
    charge(&database, "k-1", "4200");
    let client = database.connect().await;
    let complete = |key: &str, execution: &str, replaces: &str| {
        format!(
            "SELECT semel.complete('shop-7', 'charges.create', '{key}', semel.fingerprint('4200'), {execution}, \
             {replaces}, 200, '', '')"
        )
    };
    let refused = async |statement: &str| {
        let code = client.batch_execute(statement).await.unwrap_err().code().unwrap().code().to_owned();
        client.batch_execute("ROLLBACK").await.unwrap();
        code
    };
    // Without a claim, and with one that was committed by itself.
    assert_eq!(refused(&complete("k-2", "gen_random_uuid()", "NULL")).await, "SM006");
    let claim = "SELECT execution::text FROM semel.claim('shop-7', 'charges.create', 'k-2', semel.fingerprint('4200'))";
    let execution: String = client.query_one(claim, &[]).await.unwrap().get(0);
    assert_eq!(refused(&complete("k-2", &format!("'{execution}'"), "NULL")).await, "SM006");
    // With a claim of another key, which has nothing to do with this row.
    let forged = |replaces: &str| {
        format!(
            "BEGIN; SELECT set_config('semel.claims', gen_random_uuid()::text, true); {}",
            complete("k-1", "current_setting('semel.claims')::uuid", replaces)
        )
    };
    assert_eq!(refused(&forged("NULL")).await, "23505");
    assert_eq!(refused(&forged("(SELECT execution FROM semel.keys)")).await, "SM004");
    assert!(charge(&database, "k-1", "4200").starts_with("replay 201"));
}

#[tokio::test]
async fn a_claim_with_a_null_is_refused() {
    let (database, _store) = shop().await;
    let client = database.connect().await;
    for arguments in
        ["NULL, 'o', 'k', '\\x01'", "'t', NULL, 'k', '\\x01'", "'t', 'o', NULL, '\\x01'", "'t', 'o', 'k', NULL"]
    {
        let claim = format!("SELECT outcome FROM semel.claim({arguments})");
        let error = client.batch_execute(&claim).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "22004", "{arguments}");
    }
}

#[tokio::test]
async fn the_database_itself_refuses_what_is_out_of_bounds() {
    let (database, _store) = shop().await;
    let client = database.connect().await;
    let complete = |tenant: &str, key: &str, status: i32, headers: &str, retain: &str| {
        format!(
            "BEGIN; SELECT set_config('semel.claims', gen_random_uuid()::text, true); \
             SELECT semel.complete({tenant}, 'op', {key}, semel.fingerprint('x'), \
             current_setting('semel.claims')::uuid, NULL, {status}, {headers}, '', '{retain}'); COMMIT"
        )
    };
    for bad in [
        complete("repeat('t', 256)", "'k'", 200, "''", "1 day"),
        complete("''", "'k'", 200, "''", "1 day"),
        complete("'t'", "repeat('k', 256)", 200, "''", "1 day"),
        complete("'t'", "'a b'", 200, "''", "1 day"),
        complete("'t'", "''", 200, "''", "1 day"),
        complete("'t'", "'k'", 199, "''", "1 day"),
        complete("'t'", "'k'", 200, "convert_to(repeat('h', 17000), 'UTF8')", "1 day"),
        complete("'t'", "'k'", 200, "''", "-1 day"),
    ] {
        let error = client.batch_execute(&bad).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "23514", "{bad}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    client.batch_execute(&complete("'t'", "'k'", 200, "''", "1 day")).await.unwrap();
}
