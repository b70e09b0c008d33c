//! A commit that failed at the disk makes nobody a duplicate: not before a crash, and not after it.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{File, event, insert, labels};
use futures_util::poll;
use semel::inbox::Accepted;
use semel::letter::{Letter, LetterFilter};
use semel::{Consumer, Delivery, Error, Event, Inbox, Message, Tx as _};
use semel_sqlite::{Options, Sqlite, Tx};

const FILE: &str = "SEMEL_TEST_FILE";
const CASE: &str = "SEMEL_TEST_CASE";
const FAILS_ONCE: &str = "SEMEL_TEST_FSYNC_FAILS_ONCE";
const FAILS_DURING: &str = "SEMEL_TEST_FSYNC_FAILS_DURING";

fn consumer() -> Consumer {
    Consumer::new("receipts").unwrap()
}

fn message(id: &str) -> [Delivery; 1] {
    [Delivery::by_id(id).unwrap()]
}

/// Runs `case` in a process of its own, kills it when it has nothing more to say, and returns what it said.
fn killed_after(case: &str, file: &File) -> Vec<String> {
    let directory = file.directory.path();
    let library = directory.join("failing_fsync.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failing_fsync.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
    assert!(compiled.success());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "on_a_failing_disk", "--nocapture"])
        .env(FILE, file.path())
        .envs([(FAILS_ONCE, directory.join("fails-once")), (FAILS_DURING, directory.join("fails-during"))])
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

fn name(accepted: &Result<(Tx, Vec<Accepted>), Error>) -> String {
    match accepted {
        Ok((_, accepted)) => format!("{:?}", accepted[0]).to_lowercase(),
        Err(error) => ended(&Err::<(), &Error>(error)).to_owned(),
    }
}

fn ended<T, E: std::borrow::Borrow<Error>>(result: &Result<T, E>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(error) => match error.borrow() {
            Error::Unavailable(_) => "unavailable",
            Error::Ambiguous(_) => "ambiguous",
            other => panic!("{other:?}"),
        },
    }
}

/// Accepts a message and acts on it. What it emits takes many pages, so that a barrier overwrites the first of its
/// frames only.
async fn applied(store: &Sqlite, id: &str) -> Tx {
    let (mut tx, accepted) = store.accept(&consumer(), &message(id)).await.unwrap();
    assert_eq!(accepted, [Accepted::First]);
    insert(&mut tx, id).await.unwrap();
    tx.emit(Event { payload: vec![7; 100_000].into(), ..event(id) });
    tx
}

/// Sets a message aside, of many pages as well.
async fn set_aside(store: &Sqlite, id: &str) -> Result<bool, Error> {
    let received = Message {
        id: id.to_owned(),
        topic: "charges".to_owned(),
        ordering_key: String::new(),
        message_type: String::new(),
        producer: String::new(),
        content_type: String::new(),
        payload: vec![7; 100_000].into(),
        headers: Vec::new(),
        sequence: None,
        offset: None,
    };
    let letter = Letter { message: received, cause: "it does not work".to_owned(), attempts: 1 };
    store.dead_letter(&consumer(), &message(id)[0], &letter).await
}

/// The body of the process; alone it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_failing_disk() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let variable = |name| PathBuf::from(std::env::var_os(name).unwrap());
    // Kept open until the end: whoever closes the file last tidies the log up, which a crash does not.
    let store = Sqlite::open(PathBuf::from(path), Options::default()).await.unwrap();
    let case = std::env::var(CASE).unwrap();
    let (who, failed) = (consumer(), message("failed"));
    if case == "letters" {
        say(ended(&set_aside(&store, "kept").await));
        std::fs::write(variable(FAILS_ONCE), "").unwrap();
        say(ended(&set_aside(&store, "failed").await));
        let seen = store.seen(&who, &[message("kept"), failed].concat()).await.unwrap();
        say(format!("{seen:?}"));
        say("end");
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    say(ended(&store.commit_consumed(applied(&store, "kept").await).await));

    // A redelivery in the group of the delivery whose commit is about to fail.
    let first = applied(&store, "failed").await;
    let mut again = Box::pin(store.accept(&who, &failed));
    assert!(poll!(&mut again).is_pending(), "the first has the turn");
    let failing = variable(if case == "once" { FAILS_ONCE } else { FAILS_DURING });
    std::fs::write(&failing, "").unwrap();
    let (first, again) = tokio::join!(store.commit_consumed(first), again);
    say(ended(&first));
    say(name(&again));
    if case != "once" {
        say(name(&store.accept(&who, &message("kept")).await));
        say(ended(&store.next_offset(&who, "cluster", "charges", 0).await));
        std::fs::remove_file(&failing).unwrap();
    }
    let settled = async {
        loop {
            match store.accept(&who, &failed).await {
                Err(Error::Unavailable(_)) => tokio::task::yield_now().await,
                other => return other,
            }
        }
    };
    say(name(&tokio::time::timeout(Duration::from_secs(20), settled).await.unwrap()));
    say("end");
    // It comes back only if nobody kills it.
    let _ = std::io::stdin().read(&mut [0]);
}

#[tokio::test]
async fn a_message_whose_commit_failed_at_the_disk_is_nobodys_duplicate_and_applies_after_a_crash() {
    for (case, said) in [
        ("once", &["ok", "unavailable", "unavailable", "first"][..]),
        // While nobody knows what became of the commit, nothing is said of any message.
        ("for a time", &["ok", "ambiguous", "unavailable", "unavailable", "unavailable", "first"]),
    ] {
        let file = File::create().await;
        assert_eq!(killed_after(case, &file), said, "{case}");
        assert_eq!((file.effects("kept"), file.effects("failed")), (1, 0), "{case}");
        let store = file.open().await;
        assert_eq!(labels(&store).await, ["kept"], "{case}");
        let (_, accepted) = store.accept(&consumer(), &message("kept")).await.unwrap();
        assert_eq!(accepted, [Accepted::Duplicate], "{case}");
        store.commit_consumed(applied(&store, "failed").await).await.unwrap();
        assert_eq!(file.effects("failed"), 1, "{case}");
    }
}

#[tokio::test]
async fn a_message_whose_letter_failed_at_the_disk_is_neither_seen_nor_kept_after_a_crash() {
    let file = File::create().await;
    assert_eq!(killed_after("letters", &file), ["ok", "unavailable", "[true, false]"]);
    let (store, both) = (file.open().await, [message("kept"), message("failed")].concat());
    assert_eq!(store.seen(&consumer(), &both).await.unwrap(), [true, false]);
    let kept = store.letters(&LetterFilter::default(), 10).await.unwrap();
    assert_eq!(kept.iter().map(|kept| kept.letter.message.id.as_str()).collect::<Vec<_>>(), ["kept"]);
    assert!(!set_aside(&store, "kept").await.unwrap());
    assert!(set_aside(&store, "failed").await.unwrap());
    assert_eq!(store.letters(&LetterFilter::default(), 10).await.unwrap().len(), 2);
}
