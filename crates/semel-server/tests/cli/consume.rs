//! `semel consume`, and the sandbox that consumes its own events.

use std::time::Instant;

use semel_testkit::broker::server_url;
use semel_testkit::nats::NatsRecipe;
use semel_testkit::poll::until;
use semel_testkit::process::Service;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::consumer::{Consumer, PATIENCE, Post, charge, execute, inbox, metric, numbers, shown};
use crate::harness::{Home, SEMEL, Sandbox, on_both_stores, semel, semel_with};
use crate::receiver::relay;

on_both_stores!(
    the_sandbox_consumes_its_own_events_and_its_books_agree,
    events_that_come_again_over_http_apply_once,
    changes_of_an_account_that_overtake_each_other_apply_in_their_order,
    a_retention_shorter_than_the_source_delivers_again_is_refused_with_the_arithmetic,
    a_generation_goes_by_one_kind_of_proof,
    what_was_seen_long_ago_is_forgotten_and_counted,
    a_source_that_is_taken_is_waited_for,
);

/// A secret of 24 bytes, as Standard Webhooks write it.
const SECRET: &str = "whsec_aHVudGVyMmh1bnRlcjJodW50ZXIyaHVu";

/// Two accounts, and a number of charges and transfers between them, each tried twice.
async fn trade(sandbox: &Sandbox, round: &str, count: usize) {
    for number in 0..count {
        let (key, charge) = (format!("{round}-{number}"), json!({"account": "alice", "amount": 5, "currency": "EUR"}));
        let transfer = json!({"from": "alice", "to": "bob", "amount": 2});
        for _ in 0..2 {
            for (path, body) in [("/charges", &charge), ("/transfers", &transfer)] {
                let request = sandbox.http.post(sandbox.service.url(path)).bearer_auth("demo-a1");
                let answer = request.header("Idempotency-Key", format!("\"{key}\"")).json(body).send().await.unwrap();
                assert_eq!(answer.status(), 201);
            }
        }
    }
}

/// Waits until so many charges and movements were consumed, and asserts that none was twice.
async fn agree(sandbox: &Sandbox, consumer: &str, charges: i64) {
    let gives_up = Instant::now() + PATIENCE;
    let expected = json!({
        "charges": charges, "receipts": charges, "repeated": 0, "movements": charges * 3, "applied": charges * 3,
        "apart": 0,
    });
    loop {
        let answer = sandbox.get(&format!("/ledger/consumed?consumer={consumer}")).send().await.unwrap();
        let consumed: Value = answer.json().await.unwrap();
        if consumed == expected {
            return;
        }
        assert_eq!(consumed["repeated"], 0, "{consumed:#}");
        assert!(Instant::now() < gives_up, "{consumed:#}");
    }
}

async fn the_sandbox_consumes_its_own_events_and_its_books_agree(home: Home) {
    let mut sandbox = Sandbox::consuming(&home, &[]).await;
    sandbox.output_with("events    go to the consumer `payments` in this process").await;
    sandbox.open_account("alice").await;
    sandbox.open_account("bob").await;
    trade(&sandbox, "one", 5).await;
    agree(&sandbox, "payments", 5).await;
    assert_eq!(sandbox.get("/ledger/consumed?consumer=nobody").send().await.unwrap().status(), 404);
    metric(&sandbox.service, r#"semel_messages_total{consumer="payments",outcome="applied"} 25"#).await;
    // What is published and not noted when it is killed is published again.
    trade(&sandbox, "two", 5).await;
    sandbox.service.kill9().await;
    let mut sandbox = Sandbox::consuming(&home, &[]).await;
    agree(&sandbox, "payments", 10).await;
    assert!(sandbox.service.terminate().await.success());
    assert!(!sandbox.service.output().contains("whsec_"));
    let status = shown(&home, &["status", "payments"]);
    assert_eq!((&status[0]["by"], &status[0]["ids"], &status[0]["dead"]), (&"id".into(), &50.into(), &0.into()));
}

async fn events_that_come_again_over_http_apply_once(home: Home) {
    let sandbox = Sandbox::start(&home).await;
    sandbox.open_account("alice").await;
    sandbox.open_account("bob").await;
    let source = format!("http://127.0.0.1:0/events?secret={SECRET}");
    let mut consumer = Consumer::start_with(&home, "payments", &source, &["--inbox-tier", "filter:1000"]).await;
    let address = consumer.address();
    let sink = format!("http://{address}/events?semel_secret={SECRET}&semel_allow_loopback=true");
    let mut relay = relay(&home, &sink).await;
    trade(&sandbox, "one", 5).await;
    agree(&sandbox, "payments", 5).await;
    // Whoever does not know the secret is not believed.
    assert_eq!(consumer.post(&charge("forged")).await.unwrap(), 401);

    // History is what the relay has noted as published, a little after the consumer has it.
    let noted = ["outbox", "status", "--json", "--database-url", &home.url()];
    let gives_up = Instant::now() + PATIENCE;
    while serde_json::from_str::<Value>(&semel(&noted).succeeded()).unwrap()["backlog"]["events"] != 0 {
        assert!(Instant::now() < gives_up, "the relay notes nothing");
    }
    let replay = ["outbox", "replay", "--yes", "--json", "--sink", &sink, "--database-url", &home.url()];
    let replayed: Value = serde_json::from_str(&semel(&replay).succeeded()).unwrap();
    assert_eq!(replayed["events"], 25);
    consumer.metric(r#"semel_messages_total{consumer="payments",outcome="duplicate"} 25"#).await;
    agree(&sandbox, "payments", 5).await;

    // Killed under way, and started again where the relay looks for it.
    trade(&sandbox, "two", 5).await;
    consumer.service.kill9().await;
    let source = format!("http://{address}/events?secret={SECRET}");
    let mut consumer = Consumer::start_with(&home, "payments", &source, &[]).await;
    agree(&sandbox, "payments", 10).await;
    assert!(consumer.service.terminate().await.success());
    assert!(relay.terminate().await.success());
    let output = consumer.service.output() + &sandbox.service.output();
    assert!(!output.contains(SECRET), "{output}");
    assert_eq!(shown(&home, &["dead"]), json!([]));
}

async fn changes_of_an_account_that_overtake_each_other_apply_in_their_order(home: Home) {
    semel(&["migrate", "--database-url", &home.url()]).succeeded();
    let patient = ["--inbox-attempts", "1000"];
    let consumer = Consumer::start_with(&home, "balances", "http://127.0.0.1:0/events", &patient).await;
    let change = |id: &'static str, event_type: &'static str, version: i64, amount: i64| {
        let payload =
            json!({"tenant": "a", "account": "alice", "amount": amount, "currency": "EUR", "version": version});
        Post { id, key: "a/alice", event_type, payload }
    };
    let (first, second, third) = (
        change("first", "account.credited", 1, 10),
        change("second", "account.debited", 2, 4),
        change("third", "account.credited", 3, 1),
    );
    assert_eq!(consumer.post(&first).await.unwrap(), 204);
    let sums = "SELECT amount FROM payments_balances";
    let catch_up = async {
        let gives_up = Instant::now() + PATIENCE;
        // The third has been tried, and waits.
        while consumer.count("retried").await == 0 {
            assert!(Instant::now() < gives_up);
        }
        assert_eq!(numbers(&home, sums).await, [10]);
        consumer.post(&second).await
    };
    let (third_answered, second_answered) = tokio::join!(consumer.post(&third), catch_up);
    assert_eq!((third_answered.unwrap().as_u16(), second_answered.unwrap().as_u16()), (204, 204));
    assert_eq!(numbers(&home, sums).await, [7]);
    // They come again, and one of them under another id.
    for post in [&first, &second, &third, &change("again", "account.debited", 2, 4)] {
        assert_eq!(consumer.post(post).await.unwrap(), 204);
    }
    assert_eq!((consumer.count("duplicate").await, consumer.count("stale").await), (3, 1));
    assert_eq!(numbers(&home, sums).await, [7]);
    assert_eq!(numbers(&home, "SELECT applied FROM payments_balances").await, [3]);
}

async fn a_retention_shorter_than_the_source_delivers_again_is_refused_with_the_arithmetic(home: Home) {
    let url = home.url();
    semel(&["migrate", "--database-url", &url]).succeeded();
    let source = format!("http://127.0.0.1:0/events?secret={SECRET}&redelivery=8d");
    let consume = ["consume", "--consumer", "receipts", "--source", &source, "--database-url", &url];
    let stderr = semel(&consume).failed_with(1);
    for told in ["kept for 7d", "again for 8d", "redelivery=8d", "inbox retention"] {
        assert!(stderr.contains(told), "{told} is missing from {stderr}");
    }
    assert!(!stderr.contains(SECRET), "{stderr}");
    // Had it been declared, the reaper would go by it.
    assert_eq!(shown(&home, &["status"]), json!([]));
    let mut consumer = Consumer::start_with(&home, "receipts", &source, &["--inbox-retention", "8d"]).await;
    // It listens a moment before it is declared.
    until("it is declared", async || shown(&home, &["status"])[0]["retention_seconds"] == 8 * 24 * 3600).await;
    assert!(consumer.service.terminate().await.success());
}

async fn a_generation_goes_by_one_kind_of_proof(home: Home) {
    let url = home.url();
    semel(&["migrate", "--database-url", &url]).succeeded();
    let mut consumer = Consumer::start(&home, "receipts").await;
    consumer.charge("one").await;
    assert!(consumer.service.terminate().await.success());
    let source = "http://127.0.0.1:0/events";
    let by = ["consume", "--consumer", "receipts", "--source", source, "--by", "sequence", "--database-url", &url];
    let stderr = semel(&by).failed_with(1);
    assert!(stderr.contains("receipts") && stderr.contains("sequence"), "{stderr}");
    let replay = ["replay", "receipts", "--actor", "ada", "--reason", "by sequence now", "--yes"];
    inbox(&home, &replay).succeeded();
    let mut consumer = Consumer::start_with(&home, "receipts", source, &["--by", "sequence"]).await;
    // It has no sequence, so it is set aside and not applied.
    consumer.charge("one").await;
    assert!(consumer.service.terminate().await.success());
    let dead = shown(&home, &["dead"]);
    assert!(dead[0]["cause"].as_str().unwrap().contains("none of Semel's own events"), "{dead}");
}

async fn what_was_seen_long_ago_is_forgotten_and_counted(home: Home) {
    let url = home.url();
    semel(&["migrate", "--database-url", &url]).succeeded();
    let mut consumer = Consumer::start(&home, "receipts").await;
    for id in ["one", "two", "three"] {
        consumer.charge(id).await;
    }
    assert!(consumer.service.terminate().await.success());
    let (eight_days, but_one) = (8 * 24 * 3600, "WHERE message_id <> 'three'");
    execute(
        &home,
        &match home {
            Home::Sqlite(_) => format!("UPDATE semel_inbox SET received_at = received_at - {eight_days}000 {but_one}"),
            Home::Postgres(_) => {
                format!("UPDATE semel.inbox SET received_at = received_at - interval '{eight_days} s' {but_one}")
            }
        },
    )
    .await;
    let run = ["run", "--roles", "reaper", "--metrics-listen", "127.0.0.1:0", "--database-url", &url];
    let mut reaper = Service::spawn(SEMEL, &run, &[]).await;
    metric(&reaper, "semel_inbox_reaped_total 2").await;
    assert!(reaper.terminate().await.success());
    assert_eq!(shown(&home, &["status"])[0]["ids"], 1);
}

async fn a_source_that_is_taken_is_waited_for(home: Home) {
    semel(&["migrate", "--database-url", &home.url()]).succeeded();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let source = format!("http://{}/events?secret={SECRET}", taken.local_addr().unwrap());
    let mut consumer = Consumer::start_with(&home, "receipts", &source, &[]).await;
    let gives_up = Instant::now() + PATIENCE;
    while !consumer.service.output().contains("the source is tried again until it can be reached") {
        assert!(Instant::now() < gives_up, "{}", consumer.service.output());
        tokio::task::yield_now().await;
    }
    drop(taken);
    while !consumer.service.output().contains("the source was reached") {
        assert!(Instant::now() < gives_up, "{}", consumer.service.output());
        tokio::task::yield_now().await;
    }
    assert!(consumer.service.terminate().await.success());
    assert!(!consumer.service.output().contains(SECRET));
}

#[tokio::test]
async fn events_from_nats_apply_once_by_their_sequence_though_consumers_are_killed() {
    let home = Home::postgres().await;
    let sandbox = Sandbox::start(&home).await;
    sandbox.open_account("alice").await;
    sandbox.open_account("bob").await;
    let name = format!("semel-{}", Uuid::new_v4().simple());
    let stream = format!("{}?stream={name}&prefix={name}.", server_url::<NatsRecipe>());
    let mut relay = relay(&home, &format!("{stream}&create=true")).await;
    trade(&sandbox, "one", 5).await;
    let gives_up = Instant::now() + PATIENCE;
    let (source, url) = (format!("{stream}&ack_wait=1s"), home.url());
    // The stream keeps what it has for ever, and ids are not.
    let by_id = ["consume", "--consumer", "receipts", "--source", &source, "--database-url", &url];
    let refused = loop {
        let refused = semel(&by_id).failed_with(1);
        // The relay makes the stream.
        if !refused.contains("no stream") || Instant::now() > gives_up {
            break refused;
        }
    };
    assert!(refused.contains("without end") && refused.contains("kept for 7d"), "{refused}");

    // What a killed consumer had in hand comes again after its successors, which wait for it.
    let by_sequence = ["--by", "sequence", "--inbox-attempts", "1000"];
    let mut consumer = Consumer::start_with(&home, "payments", &source, &by_sequence).await;
    agree(&sandbox, "payments", 5).await;
    for round in ["two", "three", "four"] {
        trade(&sandbox, round, 5).await;
        consumer.service.kill9().await;
        consumer = Consumer::start_with(&home, "payments", &source, &by_sequence).await;
    }
    agree(&sandbox, "payments", 20).await;
    let status = shown(&home, &["status", "payments"]);
    assert_eq!((&status[0]["by"], &status[0]["ids"]), (&"sequence".into(), &0.into()));
    assert_eq!((&status[0]["holes"], &status[0]["dead"]), (&0.into(), &0.into()), "{status}");

    // A new generation reads the stream from its beginning.
    inbox(&home, &["replay", "payments", "--actor", "ada", "--reason", "a test", "--yes"]).succeeded();
    let begun = "SELECT count(*) FROM payments_receipts WHERE generation = 1";
    while numbers(&home, begun).await != [20] {
        assert!(Instant::now() < gives_up, "{}", consumer.service.output());
    }
    agree(&sandbox, "payments", 20).await;
    assert!(consumer.service.terminate().await.success());
    assert!(relay.terminate().await.success());
}

#[test]
fn a_consumer_that_does_not_exist_is_told_those_that_do() {
    let stderr = semel(&["consume", "--consumer", "mails", "--source", "http://127.0.0.1:0/"]).failed_with(2);
    let told = "there is no consumer \"mails\"; the consumers are: payments, receipts, balances";
    assert!(stderr.contains(told), "{stderr}");
    semel(&["consume", "--source", "http://127.0.0.1:0/"]).failed_with(2);
    let stderr = semel(&["consume", "--consumer", "receipts"]).failed_with(2);
    assert!(stderr.contains("--source") && stderr.contains("SEMEL_SOURCE"), "{stderr}");
    let stderr = semel(&["consume", "--consumer", "receipts", "--by", "guess"]).failed_with(2);
    assert!(stderr.contains("id, sequence or offset"), "{stderr}");
}

#[test]
fn a_source_that_cannot_work_is_refused_at_start_and_its_secrets_are_not_shown() {
    let home = Home::sqlite();
    let url = home.url();
    semel(&["migrate", "--database-url", &url]).succeeded();
    for (source, told) in [
        ("sqs://u:hunter2@h/q", "must begin with one of"),
        ("stdout:", "must begin with one of"),
        ("http://127.0.0.1:0/?secrets=hunter2", "secrets"),
        ("http://0.0.0.0:0/", "unsigned=true"),
        ("nats://u:hunter2@h/?strem=x", "strem"),
    ] {
        let consume = ["consume", "--consumer", "receipts", "--database-url", &url];
        let stderr = semel_with(&consume, &[("SEMEL_SOURCE", source)], "").failed_with(1);
        assert!(stderr.contains(told) && !stderr.contains("hunter2"), "{source}: {stderr}");
    }
    let consume = ["consume", "--consumer", "receipts", "--source", "http://127.0.0.1:0/", "--database-url", &url];
    for (tier, told) in [("bloom", "a tier is filter"), ("redis://u:hunter2@h/?ttl=0s", "ttl")] {
        let stderr = semel_with(&consume, &[("SEMEL_INBOX_TIER", tier)], "").failed_with(1);
        assert!(stderr.contains(told) && !stderr.contains("hunter2"), "{tier}: {stderr}");
    }
    let by_sequence = [consume.as_slice(), &["--by", "sequence", "--inbox-tier", "filter"]].concat();
    let stderr = semel(&by_sequence).failed_with(2);
    assert!(stderr.contains("go by id"), "{stderr}");
    let offset = ["consume", "--consumer", "receipts", "--by", "offset", "--source", "http://127.0.0.1:0/"];
    let stderr = semel(&[&offset, ["--database-url", &url].as_slice()].concat()).failed_with(1);
    assert!(stderr.contains("only messages of Kafka"), "{stderr}");
}
