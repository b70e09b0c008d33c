//! What a process that is killed has promised, its successor keeps.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::common::{Directory, PATIENCE, Process, new_charge};
use crate::faults::{charges, choose};

#[tokio::test]
async fn a_killed_process_keeps_ledger_keys_requests_and_settings() {
    let directory = Directory::make();
    let mut provider = Process::start(&directory, &[]);
    let first = provider.charge("k").await;
    first.executed(201);
    let settings = provider.set(json!({ "keys": { "window_ms": 3_600_000 }, "look_up": false })).await;
    let ledger = provider.ledger().await;
    provider.kill9();

    let provider = Process::start(&directory, &[]);
    assert_eq!(provider.ledger().await, ledger);
    assert_eq!(provider.get("/settings").await.json(), settings);
    assert_eq!(provider.get("/requests").await.json()["by_key"], json!({ "k": 1 }));
    provider.charge("k").await.replays(&first);
    let mut other = new_charge();
    other["amount"] = json!(1);
    provider.post("/charges", "k", &other).await.is_refusal(422, "key_reused");
    assert_eq!(provider.get("/requests").await.json()["by_key"], json!({ "k": 3 }));
    assert_eq!(provider.executions().await, 1);
}

#[tokio::test]
async fn a_cut_after_executing_and_a_kill_leave_one_execution_and_its_answer() {
    let directory = Directory::make();
    let mut provider = Process::start(&directory, &[]);
    provider.fault(json!({ "type": "cut_after" })).await;
    assert!(provider.try_charge("k").await.is_err());
    provider.kill9();

    let provider = Process::start(&directory, &[]);
    let again = provider.charge("k").await;
    assert!(again.status == 201 && again.replayed, "{again:?}");
    let ledger = provider.ledger().await;
    assert_eq!((ledger.len(), &ledger[0]["result"]), (1, &again.json()));
}

#[tokio::test]
async fn a_kill_while_a_request_is_under_way_executes_nothing_and_leaves_the_key_new() {
    let directory = Directory::make();
    let mut provider = Process::start(&directory, &[]);
    provider.fault(json!({ "type": "slow", "ms": 600_000 })).await;
    let api = (*provider).clone();
    let waiting = tokio::spawn(async move { api.try_charge("k").await });
    provider.until("k", "under_way").await;
    provider.kill9();
    assert!(waiting.await.unwrap().is_err());

    let provider = Process::start(&directory, &[]);
    assert_eq!((provider.executions().await, provider.look_up("k").await.status), (0, 404));
    provider.charge("k").await.executed(201);
    assert_eq!(provider.get("/requests").await.json()["by_key"], json!({ "k": 2 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_that_was_given_before_a_kill_is_in_the_ledger_and_no_key_is_there_twice() {
    let directory = Directory::make();
    let mut provider = Process::start(&directory, &[]);
    let (answered, mut answers) = mpsc::unbounded_channel();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..4 {
        let (api, answered) = ((*provider).clone(), answered.clone());
        clients.spawn(async move {
            let mut sent = Vec::new();
            for number in 0.. {
                let key = format!("k-{client}-{number}");
                let attempt = api.try_charge(&key).await;
                sent.push(key.clone());
                match attempt {
                    Ok(answer) => answered.send((key, answer.executed(201))).unwrap(),
                    Err(_) => break,
                }
            }
            sent
        });
    }
    drop(answered);
    let mut promised = HashMap::new();
    while promised.len() < 40 {
        let (key, id) = timeout(PATIENCE, answers.recv()).await.expect("answers come").unwrap();
        promised.insert(key, id);
    }
    provider.kill9();
    let sent: Vec<String> = clients.join_all().await.concat();
    while let Some((key, id)) = answers.recv().await {
        promised.insert(key, id);
    }

    let provider = Process::start(&directory, &[]);
    let known = by_key(&provider.ledger().await);
    for (key, id) in &promised {
        assert_eq!(known.get(key), Some(id), "an answer was given for what the ledger does not have");
    }
    for key in &sent {
        assert_eq!(provider.charge(key).await.status, 201);
    }
    let ledger = provider.ledger().await;
    let keys: HashSet<&str> = ledger.iter().filter_map(|execution| execution["key"].as_str()).collect();
    assert_eq!((ledger.len(), keys.len()), (sent.len(), sent.len()));
    assert_eq!(provider.get("/ledger/summary").await.json()["repeated_keys"], 0);
}

fn by_key(ledger: &[Value]) -> HashMap<String, String> {
    let text = |execution: &Value, member: &str| execution[member].as_str().unwrap().to_owned();
    ledger.iter().map(|execution| (text(execution, "key"), text(execution, "id"))).collect()
}

#[tokio::test]
async fn faults_that_wait_survive_a_kill_and_those_that_struck_do_not_come_back() {
    let directory = Directory::make();
    let mut provider = Process::start(&directory, &[]);
    provider.queue(json!({ "kind": "charge", "fault": { "type": "refuse" }, "times": 2 })).await;
    assert_eq!(provider.charge("k").await.status, 429);
    provider.kill9();
    let provider = Process::start(&directory, &[]);
    assert_eq!(provider.charge("k").await.status, 429);
    provider.charge("k").await.executed(201);
}

#[tokio::test]
async fn a_kill_does_not_begin_the_random_faults_anew() {
    let (whole, broken) = (Directory::make(), Directory::make());
    let provider = Process::start(&whole, &[]);
    choose(&provider, 7).await;
    let expected = charges(&provider, 0..24).await;

    let mut provider = Process::start(&broken, &[]);
    choose(&provider, 7).await;
    let mut attempts = charges(&provider, 0..11).await;
    provider.kill9();
    let provider = Process::start(&broken, &[]);
    attempts.extend(charges(&provider, 11..24).await);
    assert_eq!(attempts, expected);
    assert_ne!(expected[..11], expected[11..22], "a sequence that repeats itself would show nothing");
}

#[tokio::test]
async fn flags_are_for_a_new_ledger() {
    let directory = Directory::make();
    let mut provider = Process::start(&directory, &["--keys", "off", "--no-look-up"]);
    let settings = json!({ "keys": "off", "look_up": false });
    assert_eq!(provider.get("/settings").await.json(), settings);
    provider.kill9();
    let mut provider = Process::start(&directory, &["--keys", "on"]);
    assert_eq!(provider.get("/settings").await.json(), settings);
    provider.kill9();

    let directory = Directory::make();
    let provider = Process::start(&directory, &["--keys", "5000"]);
    assert_eq!(provider.get("/settings").await.json(), json!({ "keys": { "window_ms": 5000 }, "look_up": true }));
}

#[test]
fn a_process_refuses_to_listen_off_loopback_and_says_why() {
    let directory = Directory::make();
    let mut command = Process::command(&directory.ledger(), &["--listen", "0.0.0.0:0"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // A process that does listen says so and goes on; one that refuses says nothing here and ends.
    let mut said = [0; 1];
    let listens = child.stdout.take().unwrap().read(&mut said).unwrap() > 0;
    if listens {
        child.kill().unwrap();
    }
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(!listens && !ended.status.success(), "{told}");
    assert!(told.contains("refusing to listen on 0.0.0.0:0"), "{told}");
}
