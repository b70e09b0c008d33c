//! `semel keys`.

use std::process::Stdio;
use std::time::Duration;

use semel::{Ask, Claim, Fingerprint, Key, LeaseTerms, OnExpiry, Scope, Store};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{Ended, Home, Sandbox, on_both_stores, semel};

on_both_stores!(
    keys_are_listed_while_the_sandbox_runs,
    a_key_is_shown,
    an_evicted_key_runs_as_new_and_leaves_an_audit_row,
    a_dry_run_changes_nothing,
    a_key_in_flight_is_not_evicted,
    a_key_that_has_run_again_since_it_was_shown_is_not_evicted,
    a_key_that_is_not_there_is_not_found,
    without_a_terminal_an_eviction_needs_yes,
);

const CHARGES: &str = "POST /charges";

/// How long a command on a terminal may take.
const PATIENCE: Duration = Duration::from_secs(60);

async fn charged(home: &Home, keys: &[&str]) -> Sandbox {
    let sandbox = Sandbox::start(home).await;
    sandbox.open_account("alice").await;
    for key in keys {
        assert_eq!(sandbox.charge(key).await.status(), 201);
    }
    sandbox
}

fn list(home: &Home, arguments: &[&str]) -> Ended {
    semel(&[&["keys", "list", "--database-url", &home.url()], arguments].concat())
}

fn show(home: &Home, key: &str, arguments: &[&str]) -> Ended {
    let which = ["keys", "show", "--database-url", &home.url(), "--tenant", "a", "--operation", CHARGES, key];
    semel(&[&which, arguments].concat())
}

fn evict(home: &Home, key: &str, arguments: &[&str]) -> Ended {
    let which = ["keys", "evict", "--database-url", &home.url(), "--tenant", "a", "--operation", CHARGES, key];
    semel(&[&which, ["--actor", "ada", "--reason", "refunded by hand"].as_slice(), arguments].concat())
}

async fn audit_rows(home: &Home) -> Vec<[String; 5]> {
    match home {
        Home::Sqlite(file) => {
            let connection = semel_sqlite::rusqlite::Connection::open(file.path()).unwrap();
            let mut rows = connection.prepare("SELECT actor, tenant, operation, key, reason FROM semel_audit").unwrap();
            let rows = rows.query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]));
            rows.unwrap().map(Result::unwrap).collect()
        }
        Home::Postgres(database) => {
            let client = database.connect().await;
            let rows =
                client.query("SELECT actor, tenant, operation, key, reason FROM semel.audit", &[]).await.unwrap();
            rows.iter().map(|row| [row.get(0), row.get(1), row.get(2), row.get(3), row.get(4)]).collect()
        }
    }
}

async fn keys_are_listed_while_the_sandbox_runs(home: Home) {
    let sandbox = charged(&home, &["one", "two", "three"]).await;
    let table = list(&home, &[]).succeeded();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("TENANT  OPERATION"), "{table}");
    assert_eq!(lines.len(), 4, "{table}");
    assert!(lines[1].starts_with("a       POST /charges  three  completed  201"), "{table}");

    let json: Value = serde_json::from_str(&list(&home, &["--json", "--limit", "2"]).succeeded()).unwrap();
    let keys: Vec<&str> = json.as_array().unwrap().iter().map(|record| record["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["three", "two"]);
    for (filter, count) in [
        (["--tenant", "a"], 3),
        (["--tenant", "b"], 0),
        (["--operation", CHARGES], 3),
        (["--operation", "POST /transfers"], 0),
        (["--state", "completed"], 3),
        (["--state", "failed"], 0),
    ] {
        let json: Value =
            serde_json::from_str(&list(&home, &[&filter, ["--json"].as_slice()].concat()).succeeded()).unwrap();
        assert_eq!(json.as_array().unwrap().len(), count, "{filter:?}");
    }
    list(&home, &["--state", "lost"]).failed_with(2);
    list(&home, &["--limit", "10001"]).failed_with(2);
    assert_eq!(sandbox.charge("four").await.status(), 201);
}

async fn a_key_is_shown(home: Home) {
    let _sandbox = charged(&home, &["order-1"]).await;
    let text = show(&home, "order-1", &[]).succeeded();
    assert!(text.contains("state           completed\n") && text.contains("status          201\n"), "{text}");
    let json: Value = serde_json::from_str(&show(&home, "order-1", &["--json"]).succeeded()).unwrap();
    assert_eq!((&json["tenant"], &json["key"], &json["status"]), (&"a".into(), &"order-1".into(), &201.into()));
    assert_eq!((&json["expired"], &json["lease"]), (&false.into(), &Value::Null));
    assert!(json["expires_at"].as_str().unwrap().ends_with('Z'), "{json}");
}

async fn an_evicted_key_runs_as_new_and_leaves_an_audit_row(home: Home) {
    let sandbox = charged(&home, &["order-1"]).await;
    let told = evict(&home, "order-1", &["--yes"]).succeeded();
    assert!(told.starts_with("evicted:\n"), "{told}");
    assert_eq!(audit_rows(&home).await, [["ada", "a", CHARGES, "order-1", "refunded by hand"].map(str::to_owned)]);
    let again = sandbox.charge("order-1").await;
    assert!(!again.headers().contains_key("idempotent-replayed"));
    assert_eq!(sandbox.balance("alice").await, 1000);
}

async fn a_dry_run_changes_nothing(home: Home) {
    let sandbox = charged(&home, &["order-1"]).await;
    let json: Value = serde_json::from_str(&evict(&home, "order-1", &["--dry-run", "--json"]).succeeded()).unwrap();
    assert_eq!((&json["evicted"], &json["dry_run"]), (&false.into(), &true.into()));
    assert_eq!(json["key"]["key"], "order-1");
    assert!(evict(&home, "order-1", &["--dry-run"]).succeeded().starts_with("would evict"));
    assert!(audit_rows(&home).await.is_empty());
    assert_eq!(sandbox.charge("order-1").await.headers()["idempotent-replayed"], "true");
}

async fn a_key_in_flight_is_not_evicted(home: Home) {
    semel(&["migrate", "--database-url", &home.url()]).succeeded();
    let scope = Scope::new("a", CHARGES).unwrap();
    let ask = |key: &str| Ask::new(&scope, &Key::new(key).unwrap(), &Fingerprint::of_bytes(b"x"));
    let terms = LeaseTerms {
        holder: "the test".to_owned(),
        lease_for: Duration::from_secs(600),
        retain: Duration::from_secs(600),
        on_expiry: OnExpiry::Resume,
    };
    let refused = |key: &str| {
        for arguments in [["--yes"].as_slice(), &["--dry-run"]] {
            let stderr = evict(&home, key, arguments).failed_with(4);
            assert!(stderr.contains("in flight"), "{stderr}");
        }
    };
    match &home {
        Home::Sqlite(file) => {
            let store = Sqlite::open(file.path(), semel_sqlite::Options::default()).await.unwrap();
            assert!(matches!(store.lease(&ask("leased"), &terms).await.unwrap(), Claim::Fresh(_)));
            refused("leased");
        }
        Home::Postgres(database) => {
            let store = Postgres::connect(&database.url(), semel_postgres::Options::default()).await.unwrap();
            assert!(matches!(store.lease(&ask("leased"), &terms).await.unwrap(), Claim::Fresh(_)));
            refused("leased");
            // Here a key that runs inside one transaction is seen as well, although it has no row.
            let Claim::Fresh(_open) = store.claim(&ask("claimed")).await.unwrap() else { panic!("it is new") };
            refused("claimed");
        }
    }
    assert!(audit_rows(&home).await.is_empty());
    let leased: Value = serde_json::from_str(&show(&home, "leased", &["--json"]).succeeded()).unwrap();
    assert_eq!((&leased["state"], &leased["lease"]["epoch"]), (&"in_progress".into(), &1.into()));
}

async fn a_key_that_has_run_again_since_it_was_shown_is_not_evicted(home: Home) {
    let sandbox = charged(&home, &["order-1"]).await;
    let shown = || -> String {
        let json: Value = serde_json::from_str(&show(&home, "order-1", &["--json"]).succeeded()).unwrap();
        json["execution"].as_str().unwrap().to_owned()
    };
    let first = shown();
    evict(&home, "order-1", &["--yes"]).succeeded();
    assert_eq!(sandbox.charge("order-1").await.status(), 201);
    for arguments in [["--yes", "--execution", &first], ["--dry-run", "--execution", &first]] {
        let stderr = evict(&home, "order-1", &arguments).failed_with(4);
        assert!(stderr.contains("has run again") && stderr.contains("look at it again"), "{stderr}");
    }
    assert_eq!(audit_rows(&home).await.len(), 1);
    evict(&home, "order-1", &["--yes", "--execution", "order-1"]).failed_with(2);
    evict(&home, "order-1", &["--yes", "--execution", &shown()]).succeeded();
    show(&home, "order-1", &[]).failed_with(3);
}

async fn a_key_that_is_not_there_is_not_found(home: Home) {
    semel(&["migrate", "--database-url", &home.url()]).succeeded();
    for ended in
        [show(&home, "nothing", &[]), evict(&home, "nothing", &["--yes"]), evict(&home, "nothing", &["--dry-run"])]
    {
        let stderr = ended.failed_with(3);
        assert!(stderr.contains("has no key nothing"), "{stderr}");
    }
    show(&home, "not a key", &[]).failed_with(2);
}

async fn without_a_terminal_an_eviction_needs_yes(home: Home) {
    let _sandbox = charged(&home, &["order-1"]).await;
    let stderr = evict(&home, "order-1", &[]).failed_with(2);
    assert!(stderr.contains("--yes"), "{stderr}");
    show(&home, "order-1", &[]).succeeded();
    let which = ["keys", "evict", "--database-url", &home.url(), "--tenant", "a", "--operation", CHARGES, "order-1"];
    assert!(semel(&[&which, ["--yes"].as_slice()].concat()).failed_with(2).contains("--reason"));
    assert!(semel(&[&which, ["--yes", "--reason", " "].as_slice()].concat()).failed_with(2).contains("--reason"));
}

#[tokio::test]
async fn a_confirmed_eviction_on_a_terminal_goes_ahead_and_any_other_answer_changes_nothing() {
    let home = Home::sqlite();
    let _sandbox = charged(&home, &["order-1"]).await;
    let url = home.url();
    let command = format!(
        "{} keys evict --database-url {url} --tenant a --operation '{CHARGES}' order-1 --actor ada --reason why",
        crate::harness::SEMEL
    );
    // `script` gives the command a terminal and passes its exit code on.
    let on_terminal = |answer: &str| {
        let line = format!("echo {answer} | script -qec \"{command}\" /dev/null");
        let ended = std::process::Command::new("sh").args(["-c", &line]).output().expect("script is installed");
        (ended.status.code(), String::from_utf8_lossy(&ended.stdout).into_owned())
    };
    let (code, written) = on_terminal("n");
    assert_eq!(code, Some(4), "{written}");
    assert!(written.contains("Evict it? [y/N]") && written.contains("nothing was changed"), "{written}");
    show(&home, "order-1", &[]).succeeded();
    let (code, written) = on_terminal("y");
    assert_eq!(code, Some(0), "{written}");
    show(&home, "order-1", &[]).failed_with(3);
}

#[tokio::test]
async fn a_run_that_came_while_the_operator_was_asked_is_not_evicted() {
    let home = Home::sqlite();
    let sandbox = charged(&home, &["order-1"]).await;
    let url = home.url();
    let command = format!(
        "{} keys evict --database-url {url} --tenant a --operation '{CHARGES}' order-1 --actor ada --reason why",
        crate::harness::SEMEL
    );
    let mut asking = tokio::process::Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("script is installed");
    let (mut answer, mut terminal) = (asking.stdin.take().unwrap(), asking.stdout.take().unwrap());
    let mut written = Vec::new();
    let asked = async {
        while !String::from_utf8_lossy(&written).contains("Evict it? [y/N]") {
            assert!(terminal.read_buf(&mut written).await.unwrap() > 0, "{}", String::from_utf8_lossy(&written));
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("the operator is asked");
    evict(&home, "order-1", &["--yes"]).succeeded();
    assert_eq!(sandbox.charge("order-1").await.status(), 201);
    answer.write_all(b"y\n").await.unwrap();
    let ended = async {
        terminal.read_to_end(&mut written).await.unwrap();
        asking.wait().await.unwrap()
    };
    let status = tokio::time::timeout(PATIENCE, ended).await.expect("the command ends");
    let written = String::from_utf8_lossy(&written);
    assert!(status.code() == Some(4) && written.contains("has run again"), "{status:?}: {written}");
    show(&home, "order-1", &[]).succeeded();
}
