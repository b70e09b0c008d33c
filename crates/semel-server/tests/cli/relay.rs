//! The relay of `semel run` and `semel sandbox`, and what is said about sinks that cannot work.

use std::process::Stdio;
use std::time::{Duration, Instant};

use semel_testkit::pgbouncer::Bouncer;
use semel_testkit::process::Service;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;

use crate::harness::{Home, SEMEL, Sandbox, on_both_stores, semel, semel_with};
use crate::receiver::{Receiver, relay};

on_both_stores!(
    the_sandbox_publishes_its_own_events_to_standard_output,
    standard_output_holds_events_and_nothing_else,
    two_relays_share_the_lanes_and_hand_them_over,
    without_its_broker_the_service_serves_and_the_events_wait,
);

const PATIENCE: Duration = Duration::from_secs(60);

async fn the_sandbox_publishes_its_own_events_to_standard_output(home: Home) {
    let mut sandbox = Sandbox::start_with(&home, &[("SEMEL_SINK", "stdout:"), ("SEMEL_EVENT_SOURCE", "shop")]).await;
    sandbox.open_account("alice").await;
    assert_eq!(sandbox.charge("order-1").await.status(), 201);
    assert_eq!(sandbox.charge("order-1").await.status(), 201);
    let output = sandbox.output_with("account.credited").await;
    assert!(output.contains("events    published to stdout:"), "{output}");
    assert!(sandbox.service.terminate().await.success());
    let output = sandbox.service.output();
    let lines = output.lines().filter(|line| line.starts_with("{\"specversion\""));
    let events: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["charge.created", "account.credited"], "{output}");
    assert_eq!((&events[0]["source"], &events[0]["partitionkey"]), (&"shop".into(), &"a/alice".into()));
}

async fn standard_output_holds_events_and_nothing_else(home: Home) {
    let mut sandbox = Sandbox::start(&home).await;
    sandbox.output_with("events    wait in the outbox; see `semel outbox status`").await;
    sandbox.open_account("alice").await;
    assert_eq!(sandbox.charge("order-1").await.status(), 201);
    assert!(sandbox.service.terminate().await.success());
    let mut running = tokio::process::Command::new(SEMEL)
        .args(["run", "--sink", "stdout:", "--metrics-listen", "127.0.0.1:0", "--database-url", &home.url()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    for expected in ["charge.created", "account.credited"] {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("a line comes").unwrap().unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["type"], expected);
    }
}

/// How many lanes a relay has, by its own metrics.
async fn lanes(relay: &Service) -> u64 {
    let metrics = reqwest::get(relay.url("/metrics")).await.unwrap().text().await.unwrap();
    metrics.lines().find_map(|line| line.strip_prefix("semel_relay_lanes ")).unwrap().parse().unwrap()
}

async fn until_it_has(relay: &Service, wanted: u64) {
    let gives_up = Instant::now() + PATIENCE;
    while lanes(relay).await != wanted {
        assert!(Instant::now() < gives_up, "it has {} lanes", lanes(relay).await);
    }
}

async fn two_relays_share_the_lanes_and_hand_them_over(home: Home) {
    semel(&["migrate", "--database-url", &home.url()]).succeeded();
    let receiver = Receiver::start().await;
    let mut first = relay(&home, receiver.sink()).await;
    until_it_has(&first, 64).await;
    let second = relay(&home, receiver.sink()).await;
    until_it_has(&first, 32).await;
    until_it_has(&second, 32).await;
    assert!(first.terminate().await.success());
    until_it_has(&second, 64).await;
}

async fn without_its_broker_the_service_serves_and_the_events_wait(home: Home) {
    // Nobody listens at this port any more.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let sink = format!("nats://u:hunter2@{closed}/?stream=EVENTS&timeout_ms=200");
    let mut sandbox = Sandbox::start_with(&home, &[("SEMEL_SINK", &sink)]).await;
    sandbox.open_account("alice").await;
    assert_eq!(sandbox.charge("order-1").await.status(), 201);
    sandbox.output_with("tried again until it can be reached").await;
    let status = semel(&["outbox", "status", "--json", "--database-url", &home.url()]).succeeded();
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["backlog"]["events"], 2);
    assert!(sandbox.service.terminate().await.success());
    assert!(!sandbox.service.output().contains("hunter2"));
}

#[tokio::test]
async fn a_relay_works_behind_a_pooler_in_transaction_mode() {
    let home = Home::postgres().await;
    let Home::Postgres(database) = &home else { unreachable!() };
    let bouncer = Bouncer::start(&database.url()).unwrap();
    let pooled = bouncer.url_for(database.name());
    let sandbox = Sandbox::start(&home).await;
    sandbox.open_account("alice").await;
    let receiver = Receiver::start().await;
    let environment =
        [("SEMEL_SINK", receiver.sink()), ("SEMEL_DATABASE_URL", &pooled), ("SEMEL_POSTGRES_STATEMENTS", "unnamed")];
    let mut relay = Service::spawn(SEMEL, &["run", "--metrics-listen", "127.0.0.1:0"], &environment).await;
    for key in ["one", "two", "three"] {
        assert_eq!(sandbox.charge(key).await.status(), 201);
    }
    let arrived = receiver.arrived(6).await;
    assert!(arrived.iter().all(|event| event.sequence <= 3), "{arrived:?}");
    assert!(relay.terminate().await.success());
}

#[test]
fn a_sink_that_cannot_work_is_refused_at_start_and_its_secrets_are_not_shown() {
    let home = Home::sqlite();
    let url = home.url();
    semel(&["migrate", "--database-url", &url]).succeeded();
    for (sink, told) in [
        ("sqs://u:hunter2@h/q", "it must begin with one of"),
        ("stdout:hunter2", "nothing follows the colon"),
        ("http://u:hunter2@127.0.0.1:1/x", "loopback"),
        ("https://h/?semel_hunter=hunter2", "semel_hunter"),
        ("nats://u:hunter2@h/?strem=x", "strem"),
    ] {
        for command in [["run"].as_slice(), &["sandbox", "--listen", "127.0.0.1:0"]] {
            let arguments = [command, &["--database-url", &url]].concat();
            let stderr = semel_with(&arguments, &[("SEMEL_SINK", sink)], "").failed_with(1);
            assert!(stderr.contains(told) && !stderr.contains("hunter2"), "{sink}: {stderr}");
        }
    }
    let stderr = semel(&["run", "--sink", "nonsense", "--database-url", &url]).failed_with(1);
    assert!(stderr.contains("it has no scheme") && stderr.contains("--sink"), "{stderr}");
}

#[tokio::test]
async fn a_sink_that_is_not_in_this_build_names_the_feature() {
    let home = Home::sqlite();
    semel(&["migrate", "--database-url", &home.url()]).succeeded();
    let sink = "kafka://127.0.0.1:1/?mode=twice";
    let stderr = semel(&["run", "--sink", sink, "--database-url", &home.url()]).failed_with(1);
    // The workspace is tested with all sinks, and this crate alone without Kafka.
    let told = match semel_brokers::connect(sink, "test").await.unwrap_err() {
        semel_brokers::Error::NotBuilt { .. } => "--features kafka",
        _ => "`mode=twice` must be",
    };
    assert!(stderr.contains(told), "{stderr}");
}

#[test]
fn a_sink_that_promises_less_than_asked_for_is_refused() {
    let home = Home::sqlite();
    semel(&["migrate", "--database-url", &home.url()]).succeeded();
    let arguments = ["run", "--sink", "stdout:", "--database-url", &home.url(), "--sink-guarantee"];
    for wanted in ["deduplicated", "transactional"] {
        let stderr = semel(&[&arguments, [wanted].as_slice()].concat()).failed_with(1);
        assert!(stderr.contains("promises at-least-once") && stderr.contains(wanted), "{stderr}");
    }
    assert!(semel(&[&arguments, ["twice"].as_slice()].concat()).failed_with(1).contains("sink_guarantee"));
}

#[test]
fn a_relay_needs_a_sink() {
    let stderr = semel(&["run", "--roles", "relay"]).failed_with(2);
    assert!(stderr.contains("--sink") && stderr.contains("SEMEL_SINK"), "{stderr}");
}
