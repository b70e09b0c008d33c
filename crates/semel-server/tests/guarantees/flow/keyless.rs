//! A provider that keeps no keys and answers no questions: what is in doubt is held, and a person says what happened.

use std::process::{Command, Stdio};

use semel::failpoint::{FLOW_CALLED, FLOW_INTENDED};
use semel::flow::FlowState;
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::counts::rounds;
use serde_json::{Value, json};

use super::stage::{Flowing, Stage};
use crate::world::SEMEL;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_keys_an_order_on_postgres_is_held_and_resolved_and_never_resent() {
    killed_around_the_call::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_keys_an_order_on_sqlite_is_held_and_resolved_and_never_resent() {
    killed_around_the_call::<Sqlite>().await;
}

async fn killed_around_the_call<S: Flowing>() {
    let blind = [("SEMEL_PROVIDER_KEYS", "none"), ("SEMEL_PROVIDER_LOOK_UP", "false")];
    let stage = Stage::<S>::set(&["--keys", "off", "--no-look-up"], &blind).await;
    let mut orders = 0;
    for round in 0..rounds(1, 10) {
        // One that was never sent, and one that was executed: nobody here can tell them apart.
        for (point, sent) in [(FLOW_INTENDED, 0), (FLOW_CALLED, 1)] {
            let key = format!("{point}-{round}");
            stage.kill_at(point, &key).await;
            let charged_under = stage.charged_under(&key).await;
            assert_eq!(stage.outside.received_under(&charged_under).await, sent, "{point}");

            let mut successor = stage.start().await;
            stage.until_all(&[&key], FlowState::Held).await;
            let answer = successor.placing(&key).once().await.unwrap();
            let problem: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!((answer.status, &problem["code"]), (409, &"outcome-unknown".into()), "{problem}");
            assert_eq!(stage.outside.received_under(&charged_under).await, sent, "{point}: it was sent blindly");

            let executed = stage.outside.executed("charge").await;
            let found = executed.iter().find(|charge| charge["key"] == charged_under.as_str());
            resolve(&stage, &key, found).await;
            stage.until_all(&[&key], FlowState::Completed).await;
            let answer = successor.placing(&key).once().await.unwrap();
            assert_eq!((answer.status, answer.replayed), (201, true), "{point}: {answer:?}");
            assert_eq!(stage.outside.received_under(&charged_under).await, 1, "{point}");
            orders += 1;
            stage.once_each(&successor, orders, point).await;
            successor.service.terminate().await;
        }
    }
    assert_eq!(stage.outside.received("/charges").await, orders as u64);
}

/// Tells what was found in the provider's ledger, as an operator does.
async fn resolve<S: Flowing>(stage: &Stage<S>, key: &str, found: Option<&Value>) {
    let (order, found) =
        (stage.order(key).await.execution.to_string(), found.map(|charge| json!({"id": charge["id"]})));
    let mut command = Command::new(SEMEL);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command.args(["flows", "resolve", &order, "charge", "--database-url", &stage.url]);
    match found {
        Some(found) => command.args(["--happened", &found.to_string()]),
        None => command.arg("--did-not-happen"),
    };
    command.args(["--actor", "ada", "--reason", "read their ledger", "--yes"]).stdin(Stdio::null());
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
