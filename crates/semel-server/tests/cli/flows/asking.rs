//! What is asked before a flow is changed, and what is not even asked.

use std::process::Stdio;

use semel_sqlite::Sqlite;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::stage::{self, Flows, PATIENCE};
use super::{audited, change, shown};
use crate::harness::{Home, SEMEL, semel};

/// A command that resolves the call of a flow, for a shell.
fn resolving(home: &Home, flow: &str) -> String {
    format!(
        "{SEMEL} flows resolve {flow} charge --did-not-happen --database-url {} --actor ada --reason why",
        home.url()
    )
}

#[test]
fn a_result_that_is_no_json_is_refused_before_anything_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nothing.db");
    let url = format!("sqlite:{}", path.display());
    let flow = "5f0c7a1e-21a9-4f96-a2f5-63f333d102d4";
    let resolve = |found: &[&str]| {
        let command = ["flows", "resolve", flow, "charge", "--actor", "ada", "--reason", "why", "--database-url", &url];
        // Without consent, and without a database: what is wrong with the result is told first.
        semel(&[&command, found].concat()).failed_with(2)
    };
    for wrong in ["{", "{'id': 1}", "ch_1", "{} {}"] {
        let stderr = resolve(&["--happened", wrong]);
        assert!(stderr.contains("--happened") && stderr.contains("it is not JSON"), "{wrong}: {stderr}");
    }
    assert!(resolve(&["--happened", "{}"]).contains("--yes"));
    assert!(resolve(&["--failed", " "]).contains("on one line"));
    assert!(resolve(&[]).contains("--happened"));
    let undo = ["flows", "resolve", flow, "~undo.charge", "--reason", "why", "--yes", "--database-url", &url];
    let stderr = semel(&[&undo[..], &["--failed", "no"]].concat()).failed_with(2);
    assert!(stderr.contains("undo it by hand, then say --happened"), "{stderr}");
    for two in [
        ["--happened", "{}", "--did-not-happen"].as_slice(),
        &["--happened", "{}", "--failed", "why"],
        &["--did-not-happen", "--failed", "why"],
    ] {
        assert!(resolve(two).contains("cannot be used with"), "{two:?}");
    }
    assert!(!path.exists());
}

#[tokio::test]
async fn a_confirmed_change_goes_ahead_and_any_other_answer_changes_nothing() {
    let home = Home::sqlite();
    let prepared = Flows::prepare(&home).await;
    let held = prepared.held[0].as_str();
    let command = resolving(&home, held);
    // `script` gives the command a terminal and passes its exit code on.
    let on_terminal = |answer: &str| {
        let line = format!("echo {answer} | script -qec \"{command}\" /dev/null");
        let ended = std::process::Command::new("sh").args(["-c", &line]).output().expect("script is installed");
        (ended.status.code(), String::from_utf8_lossy(&ended.stdout).into_owned())
    };
    let (code, written) = on_terminal("n");
    assert_eq!(code, Some(4), "{written}");
    assert!(written.contains("charge will be sent again, under the same key."), "{written}");
    assert!(written.contains("Go ahead? [y/N]") && written.contains("nothing was changed"), "{written}");
    assert_eq!(shown(&home, &["show", held])["state"], "held");
    let (code, written) = on_terminal("y");
    assert_eq!(code, Some(0), "{written}");
    assert_eq!(shown(&home, &["show", held])["state"], "due");
}

#[tokio::test]
async fn a_flow_that_went_on_while_the_operator_was_asked_is_left_alone() {
    let home = Home::sqlite();
    let prepared = Flows::prepare(&home).await;
    let held = prepared.held[0].as_str();
    let mut asking = tokio::process::Command::new("script")
        .args(["-qec", &resolving(&home, held), "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("script is installed");
    let (mut answer, mut terminal) = (asking.stdin.take().unwrap(), asking.stdout.take().unwrap());
    let mut written = Vec::new();
    let asked = async {
        while !String::from_utf8_lossy(&written).contains("Go ahead? [y/N]") {
            assert!(terminal.read_buf(&mut written).await.unwrap() > 0, "{}", String::from_utf8_lossy(&written));
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("the operator is asked");

    // Somebody else resolves it; it is sent again, and nobody knows what came of that either.
    change(&home, &["resolve", held, "charge", "--did-not-happen", "--yes"]).succeeded();
    let Home::Sqlite(file) = &home else { unreachable!() };
    let store = Sqlite::open(file.path(), semel_sqlite::Options::default()).await.unwrap();
    stage::hold(&store, &stage::take(&store, "order", held).await).await;
    assert_eq!(shown(&home, &["show", held])["state"], "held");

    answer.write_all(b"y\n").await.unwrap();
    let ended = async {
        terminal.read_to_end(&mut written).await.unwrap();
        asking.wait().await.unwrap()
    };
    let status = tokio::time::timeout(PATIENCE, ended).await.expect("the command ends");
    let written = String::from_utf8_lossy(&written);
    assert!(
        status.code() == Some(4) && written.contains("has changed hands since it was seen"),
        "{status:?}: {written}"
    );
    assert_eq!(shown(&home, &["show", held])["state"], "held");
    assert_eq!(audited(&home, "flow_resolved").await, 1);
}
