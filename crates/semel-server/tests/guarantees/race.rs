//! Many identical requests at the same instant, over several processes.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::Client;
use semel_testkit::control::Control;
use semel_testkit::counts::rounds;
use semel_testkit::database::TempDatabase;
use semel_testkit::naive;
use semel_testkit::pgbouncer::Bouncer;
use semel_testkit::process::Service;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::world::{AMOUNT, Answer, Database, PATIENCE, Sandbox, charge, client};

const PROCESSES: usize = 4;
const AT_ONCE: usize = 16;

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_identical_requests_over_four_processes_make_one_effect_under_read_committed() {
    let database = TempDatabase::create().await;
    assert_one_effect_each(&database.url(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_identical_requests_over_four_processes_make_one_effect_under_serializable() {
    let database = TempDatabase::create().await;
    assert_one_effect_each(&database.url(), &[("SEMEL_POSTGRES_ISOLATION", "serializable")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_identical_requests_over_four_processes_make_one_effect_through_pgbouncer() {
    let database = TempDatabase::create().await;
    let bouncer = Bouncer::start(&database.url()).unwrap();
    let url = bouncer.url_for(database.name());
    assert_one_effect_each(&url, &[("SEMEL_POSTGRES_STATEMENTS", "unnamed")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_identical_requests_make_one_effect_on_sqlite() {
    let database = Database::sqlite();
    let sandboxes = [Sandbox::start(&database.url(), &[]).await];
    race(&sandboxes).await;
}

async fn assert_one_effect_each(url: &str, environment: &[(&str, &str)]) {
    let mut sandboxes = Vec::new();
    for _ in 0..PROCESSES {
        sandboxes.push(Sandbox::start(url, environment).await);
    }
    race(&sandboxes).await;
}

async fn race(sandboxes: &[Sandbox]) {
    let first = &sandboxes[0];
    first.open_account("alice").await;
    let urls: Vec<String> = sandboxes.iter().map(|sandbox| sandbox.service.url("/charges")).collect();
    for round in 1..=rounds(30, 1000) {
        let key = format!("round-{round}");
        let answers = simultaneously(&first.client, &urls, &key, "demo-a1").await;
        let fresh: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 201 && !answer.replayed).collect();
        assert_eq!(fresh.len(), 1, "one request of round {round} runs: {answers:?}");
        for answer in &answers {
            let expected = match answer.status {
                201 => answer.body == fresh[0].body,
                409 => problem(&answer.body) == "key-in-flight",
                _ => false,
            };
            assert!(expected, "an answer of round {round} is neither a replay nor 409: {answer:?}");
        }
        assert_eq!(first.balance("alice").await, u64::from(round) * AMOUNT, "after round {round}");
        let retried = first.charge_until_answered(&key).await;
        assert!(retried.replayed && retried.body == fresh[0].body, "{retried:?}");
    }
    assert_eq!(first.summary().await["sum"], 0);
}

/// The control: the same race against a service that looks first and notes afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_race_doubles_a_check_then_insert_service() {
    let database = TempDatabase::create().await;
    let mut services = Vec::new();
    for _ in 0..PROCESSES {
        services.push(Service::spawn(naive::binary(), &[&database.url()], &[]).await);
    }
    let urls: Vec<String> = services.iter().map(|service| service.url("/charges")).collect();
    let client = client();
    for round in 0..20 {
        simultaneously(&client, &urls, &format!("round-{round}"), "nobody").await;
    }
    let doubled = "SELECT count(*) FROM (SELECT key FROM naive_charges GROUP BY key HAVING count(*) > 1) d";
    let doubled: i64 = database.connect().await.query_one(doubled, &[]).await.unwrap().get(0);
    assert!(doubled > 0, "the race is too tame to prove anything: the naive service did not double");
}

async fn simultaneously(client: &Client, urls: &[String], key: &str, token: &'static str) -> Vec<Answer> {
    let start = Arc::new(Barrier::new(AT_ONCE));
    let mut requests = JoinSet::new();
    for number in 0..AT_ONCE {
        let (client, url) = (client.clone(), urls[number % urls.len()].clone());
        let (key, start) = (key.to_owned(), start.clone());
        requests.spawn(async move {
            start.wait().await;
            charge(&client, &url, token, &key, "alice").await.unwrap()
        });
    }
    requests.join_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_held_open_on_postgres_does_not_hold_up_others() {
    held_open(&Database::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_held_open_on_sqlite_does_not_hold_up_others() {
    held_open(&Database::sqlite()).await;
}

async fn held_open(database: &Database) {
    let mut control = Control::listen().await;
    let sandbox = Sandbox::start_armed(&database.url(), semel::failpoint::CLAIMED, &control, &[]).await;
    sandbox.open_account("alice").await;
    let (client, url) = (sandbox.client.clone(), sandbox.service.url("/charges"));
    let held = tokio::spawn(async move { charge(&client, &url, "demo-a1", "held", "alice").await });
    let parked = control.reached(semel::failpoint::CLAIMED, PATIENCE).await;
    for number in 0..15 {
        let answer = sandbox.charge(&format!("other-{number}")).await;
        assert_eq!((answer.status, answer.replayed), (201, false));
    }
    assert_eq!(sandbox.charge("held").await.status, 409);
    assert!(!held.is_finished());
    parked.release().await;
    let answer = held.await.unwrap().unwrap();
    assert_eq!((answer.status, answer.replayed), (201, false));
    assert_eq!(sandbox.balance("alice").await, 16 * AMOUNT);
}

fn problem(body: &Bytes) -> String {
    let problem: serde_json::Value = serde_json::from_slice(body).unwrap();
    problem["code"].as_str().unwrap_or_default().to_owned()
}
