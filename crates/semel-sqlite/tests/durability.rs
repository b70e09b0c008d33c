//! What is told after an fsync failed holds after a crash too.
//!
//! A process of its own runs on a disk whose fsync fails on command, says what it was told, and is killed. Then the
//! file is opened without it, so that SQLite recovers the log.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{File, ask, completion, event, fresh, insert, labels, reply};
use futures_util::poll;
use semel::once::Error as OnceError;
use semel::outbox::{Cursor, PageLimit};
use semel::sink::Lane;
use semel::{Claim, Error, Event, Key, Lease, LeaseTerms, OnExpiry, Outbox, Semel, Settings, Store, Tx as _};
use semel_sqlite::{Options, Sqlite};

const FILE: &str = "SEMEL_TEST_FILE";
const CASE: &str = "SEMEL_TEST_CASE";
const FAILS_ONCE: &str = "SEMEL_TEST_FSYNC_FAILS_ONCE";
const FAILS_DURING: &str = "SEMEL_TEST_FSYNC_FAILS_DURING";

/// Runs `case` in a process of its own, kills it when it has nothing more to say, and returns what it said.
fn killed_after(case: &str, file: &File, fails_from_the_start: bool) -> Vec<String> {
    let directory = file.directory.path();
    let library = directory.join("failing_fsync.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failing_fsync.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
    assert!(compiled.success());
    let during = directory.join("fails-during");
    if fails_from_the_start {
        std::fs::write(&during, "").unwrap();
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "on_a_failing_disk", "--nocapture"])
        .envs([(FILE, file.path()), (FAILS_ONCE, directory.join("fails-once")), (FAILS_DURING, during)])
        .env(CASE, case)
        .env("LD_PRELOAD", &library)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        match line.unwrap().split_once("told: ") {
            Some((_, "end")) => break,
            Some((_, what)) => said.push(what.to_owned()),
            None => {}
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    said
}

fn say(what: impl std::fmt::Display) {
    println!("told: {what}");
}

fn name<T>(result: &Result<T, Error>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(Error::Unavailable(_)) => "unavailable",
        Err(Error::Ambiguous(_)) => "ambiguous",
        Err(other) => panic!("{other:?}"),
    }
}

/// An effect whose reply takes many pages, so that a barrier overwrites the first of its frames only.
async fn operation(store: &Sqlite, label: &str) -> Result<(), Error> {
    let mut tx = fresh(store, &Key::new(label).unwrap()).await;
    insert(&mut tx, label).await?;
    let mut done = completion(tx.execution());
    done.stored.body = vec![7; 100_000].into();
    tx.complete(&done).await
}

/// An event whose payload takes many pages, likewise.
async fn emission(store: &Sqlite, label: &str) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    tx.emit(Event { payload: vec![7; 100_000].into(), ..event(label) });
    tx.commit().await
}

/// Tells which events a relay would publish now, or why it may not.
async fn say_published(store: &Sqlite) {
    let lanes: Vec<Lane> = Lane::all().collect();
    match store.page(Cursor::START, &lanes, PageLimit { events: 10, bytes: 1 << 30 }).await {
        Ok(page) => page.unwrap().events.iter().for_each(|written| say(&written.event.ordering_key)),
        Err(error) => say(name::<()>(&Err(error))),
    }
}

async fn lease(store: &Sqlite) -> Lease {
    let terms = LeaseTerms {
        lease_for: Duration::from_secs(30),
        holder: "worker".to_owned(),
        on_expiry: OnExpiry::Resume,
        retain: Duration::from_secs(60),
    };
    match store.lease(&ask(&Key::random()), &terms).await.unwrap() {
        Claim::Fresh(lease) => lease,
        other => panic!("the key is new, not {other:?}"),
    }
}

/// The body of the process; alone it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_failing_disk() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let variable = |name| PathBuf::from(std::env::var_os(name).unwrap());
    let failed = ask(&Key::new("failed").unwrap());
    // Kept open until the end: whoever closes the file last tidies the log up, which a crash does not.
    let opened = Sqlite::open(PathBuf::from(path), Options::default()).await;
    match &opened {
        Err(_) => say(name(&opened)),
        Ok(store) => match std::env::var(CASE).unwrap().as_str() {
            "opens" => say(name(&operation(store, "kept").await)),
            "fails once" => {
                say(name(&operation(store, "kept").await));
                std::fs::write(variable(FAILS_ONCE), "").unwrap();
                say(name(&operation(store, "failed").await));
                assert!(matches!(store.claim(&failed).await.unwrap(), Claim::Fresh(_)));
            }
            "fails for a time" => {
                say(name(&operation(store, "kept").await));
                let lease = lease(store).await;
                let settings = Settings { settle_for: Duration::from_millis(500), ..Settings::default() };
                let semel = Semel::with_settings(store.clone(), settings).await.unwrap();
                std::fs::write(variable(FAILS_DURING), "").unwrap();
                let once = semel.once(&failed.scope, &failed.key, &failed.fingerprint, async |tx| {
                    insert(tx, "failed").await?;
                    Ok::<_, Error>(reply())
                });
                match once.await {
                    Err(OnceError::Store(error)) => say(name::<()>(&Err(error))),
                    other => panic!("{other:?}"),
                }
                say(name(&store.claim(&failed).await));
                say(name(&store.begin_fenced(&lease).await));
                say(name(&store.renew(&lease, lease.lease_for).await));
                say(name(&store.write(async |tx| insert(tx, "failed").await).await));
                std::fs::remove_file(variable(FAILS_DURING)).unwrap();
                let settled = async {
                    loop {
                        match store.claim(&failed).await {
                            Err(Error::Unavailable(_)) => tokio::task::yield_now().await,
                            other => return other.unwrap(),
                        }
                    }
                };
                let settled = tokio::time::timeout(Duration::from_secs(20), settled).await.unwrap();
                assert!(matches!(settled, Claim::Fresh(_)));
                say("settled");
            }
            "emits once" => {
                say(name(&emission(store, "kept").await));
                std::fs::write(variable(FAILS_ONCE), "").unwrap();
                say(name(&emission(store, "failed").await));
                say_published(store).await;
                assert!(poll!(Box::pin(store.emitted())).is_ready(), "the first was committed");
                assert!(poll!(Box::pin(store.emitted())).is_pending(), "the second was not");
            }
            "emits for a time" => {
                say(name(&emission(store, "kept").await));
                std::fs::write(variable(FAILS_DURING), "").unwrap();
                say(name(&emission(store, "failed").await));
                say_published(store).await;
                std::fs::remove_file(variable(FAILS_DURING)).unwrap();
                let settled = async {
                    while store.join_relays("relay", Duration::from_secs(30)).await.is_err() {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::time::timeout(Duration::from_secs(20), settled).await.unwrap();
                say_published(store).await;
            }
            other => panic!("there is no case {other:?}"),
        },
    }
    say("end");
    // It comes back only if nobody kills it.
    let _ = std::io::stdin().read(&mut [0]);
}

fn keys(file: &File, key: &str) -> i64 {
    let sql = "SELECT count(*) FROM semel_keys WHERE key = ?1";
    file.connection().query_row(sql, (key,), |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_commit_told_as_rolled_back_does_not_come_back_after_a_crash() {
    let file = File::create().await;
    assert_eq!(killed_after("fails once", &file, false), ["ok", "unavailable"]);
    assert_eq!((file.effects("kept"), keys(&file, "kept")), (1, 1));
    assert_eq!((file.effects("failed"), keys(&file, "failed")), (0, 0));
}

#[tokio::test]
async fn a_commit_that_nobody_can_settle_is_ambiguous_and_nothing_runs_until_it_is_settled() {
    let file = File::create().await;
    let said = killed_after("fails for a time", &file, false);
    assert_eq!(
        said,
        ["ok", "ambiguous", "unavailable", "unavailable", "unavailable", "unavailable", "settled"],
        "an effect, its COMMIT, a claim, a fence, a renewal, a write, and the claim when the disk works again"
    );
    assert_eq!((file.effects("kept"), keys(&file, "kept")), (1, 1));
    assert_eq!((file.effects("failed"), keys(&file, "failed")), (0, 0));
}

#[tokio::test]
async fn an_event_whose_commit_failed_is_not_published_before_and_not_there_after_a_crash() {
    for (case, said) in [
        ("emits once", &["ok", "unavailable", "kept"][..]),
        // While nobody knows what became of the commit, nothing is published at all.
        ("emits for a time", &["ok", "ambiguous", "unavailable", "kept"]),
    ] {
        let file = File::create().await;
        assert_eq!(killed_after(case, &file, false), said, "{case}");
        assert_eq!(labels(&file.open().await).await, ["kept"], "{case}");
    }
}

#[tokio::test]
async fn what_recovery_finds_is_made_durable_before_anybody_sees_it() {
    let file = File::create().await;
    assert_eq!(killed_after("opens", &file, false), ["ok"]);
    assert_eq!(killed_after("opens", &file, true), ["unavailable"], "the log cannot be synced");
    assert_eq!((file.effects("kept"), keys(&file, "kept")), (1, 1));
}
