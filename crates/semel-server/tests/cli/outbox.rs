//! `semel outbox`, with a relay beside the sandbox.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use semel::{EventId, Execution};
use semel_sqlite::rusqlite::Connection;
use semel_testkit::process::Service;
use serde_json::{Value, json};

use crate::harness::{Ended, Home, Sandbox, on_both_stores, semel};
use crate::receiver::{Arrived, Receiver, relay, relay_keeping};

on_both_stores!(
    what_waits_is_counted_until_a_relay_has_published_it,
    a_parked_key_holds_up_no_other_and_goes_on_after_a_redrive,
    a_skipped_event_is_never_published_and_says_who_and_why,
    history_is_replayed_with_the_ids_and_sequences_it_had,
    a_rebase_is_refused_while_a_relay_runs_and_says_first_what_it_would_do,
    an_event_that_is_not_there_is_not_found,
    a_change_needs_a_reason_and_consent,
);

/// How long a relay may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);

const ALICE: &str = "a/alice";
const BOB: &str = "a/bob";

fn outbox(home: &Home, arguments: &[&str]) -> Ended {
    semel(&[&["outbox"], arguments, &["--database-url", &home.url()]].concat())
}

fn shown(home: &Home, arguments: &[&str]) -> Value {
    serde_json::from_str(&outbox(home, &[arguments, &["--json"]].concat()).succeeded()).unwrap()
}

/// Makes a change as Ada.
fn change(home: &Home, arguments: &[&str]) -> Ended {
    outbox(home, &[arguments, &["--actor", "ada", "--reason", "the topic exists now"]].concat())
}

/// Asks until the answer is as wanted.
fn until(ask: impl Fn() -> Value, wanted: impl Fn(&Value) -> bool) -> Value {
    let gives_up = Instant::now() + PATIENCE;
    loop {
        let answer = ask();
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < gives_up, "{answer:#}");
    }
}

/// A sandbox without a sink, in which these accounts were charged once each: two events of each account.
async fn charged(home: &Home, accounts: &[&str]) -> Sandbox {
    let sandbox = Sandbox::start(home).await;
    for account in accounts {
        sandbox.open_account(account).await;
        charge(&sandbox, account, account).await;
    }
    sandbox
}

async fn charge(sandbox: &Sandbox, account: &str, key: &str) {
    let request = sandbox.http.post(sandbox.service.url("/charges")).bearer_auth("demo-a1");
    let body = json!({"account": account, "amount": 500, "currency": "EUR"});
    let answer = request.header("Idempotency-Key", format!("\"{key}\"")).json(&body).send().await.unwrap();
    assert_eq!(answer.status(), 201);
}

async fn what_waits_is_counted_until_a_relay_has_published_it(home: Home) {
    let sandbox = charged(&home, &["alice", "bob"]).await;
    // A replay emits nothing again.
    charge(&sandbox, "alice", "alice").await;
    let status = shown(&home, &["status"]);
    assert_eq!((&status["backlog"]["events"], &status["free_lanes"]), (&4.into(), &64.into()));
    assert!(status["backlog"]["oldest_seconds"].is_u64() && status["backlog"]["oldest_at"].is_string(), "{status}");
    assert_eq!((&status["relays"], &status["positions_of"]), (&json!([]), &Value::Null));
    let ended = outbox(&home, &["status"]);
    assert!(ended.stderr.contains("no relay runs"), "{ended:?}");
    assert!(ended.succeeded().contains("backlog         4 events, the oldest for "));

    let receiver = Receiver::start().await;
    let mut relay = relay(&home, receiver.sink()).await;
    let arrived = receiver.arrived(4).await;
    let of = |key: &str| -> Vec<&str> {
        arrived.iter().filter(|event| event.key == key).map(|event| event.event_type.as_str()).collect()
    };
    assert_eq!(of(ALICE), ["charge.created", "account.credited"]);
    assert_eq!(of(BOB), ["charge.created", "account.credited"]);

    let status = until(|| shown(&home, &["status"]), |status| status["backlog"]["events"] == 0);
    assert_eq!((&status["relays"][0]["name"], &status["relays"][0]["lanes"]), (&"the test's relay".into(), &64.into()));
    assert_eq!((&status["relays"][0]["expired"], &status["free_lanes"]), (&false.into(), &0.into()));
    assert_eq!(status["positions_of"], status["incarnation"]);
    let table = outbox(&home, &["status"]).succeeded();
    assert!(table.contains("the test's relay"), "{table}");

    let text = outbox(&home, &["show", &arrived[0].id]).succeeded();
    assert!(text.contains("state           published\n") && !text.contains("captured"), "{text}");
    let event = shown(&home, &["show", &arrived[0].id, "--payload"]);
    assert_eq!((&event["id"], &event["ordering_key"]), (&arrived[0].id.clone().into(), &arrived[0].key.clone().into()));
    let payload: Value = serde_json::from_str(event["payload"].as_str().unwrap()).unwrap();
    assert_eq!(payload["amount"], 500);

    let metrics = reqwest::get(relay.url("/metrics")).await.unwrap().text().await.unwrap();
    for series in [
        r#"semel_publish_attempts_total{outcome="published"} 4"#,
        r#"semel_publish_attempts_total{outcome="refused"} 0"#,
        "semel_publish_lag_seconds_count 4",
        "semel_relay_lanes 64",
        "semel_outbox_parked_keys 0",
    ] {
        assert!(metrics.lines().any(|line| line == series), "{series} is missing from\n{metrics}");
    }
    assert!(!metrics.contains("alice"), "{metrics}");

    assert!(relay.terminate().await.success());
    let status = shown(&home, &["status"]);
    assert_eq!((&status["relays"], &status["free_lanes"]), (&json!([]), &64.into()));
    assert_eq!(receiver.arrived(4).await.len(), 4, "a relay that stops in good order repeats nothing");
}

async fn a_parked_key_holds_up_no_other_and_goes_on_after_a_redrive(home: Home) {
    let receiver = Receiver::start().await;
    receiver.refuse(ALICE, "");
    let sandbox = charged(&home, &["alice", "bob"]).await;
    let relay = relay(&home, receiver.sink()).await;
    assert!(receiver.arrived(2).await.iter().all(|event| event.key == BOB));
    let parked = until(|| shown(&home, &["parked"]), |keys| keys[0]["events"] == 2);
    assert_eq!((&parked[0]["ordering_key"], &parked[0]["state"]), (&ALICE.into(), &"parked".into()));
    assert_eq!(parked[0]["attempts"], 2, "{parked}");
    assert!(parked[0]["error"].as_str().unwrap().contains("422"), "{parked}");
    assert!(parked[0]["since"].as_str().unwrap().ends_with('Z'), "{parked}");
    // What comes later waits behind it.
    charge(&sandbox, "alice", "again").await;
    until(|| shown(&home, &["parked"]), |keys| keys[0]["events"] == 4);
    let table = outbox(&home, &["parked"]).succeeded();
    assert!(table.starts_with("KEY      LANE  STATE") && table.contains("\na/alice  "), "{table}");
    assert_eq!(shown(&home, &["parked", "--state", "retrying"]), json!([]));
    assert_eq!(shown(&home, &["parked", "--state", "any"]).as_array().unwrap().len(), 1);
    outbox(&home, &["parked", "--state", "lost"]).failed_with(2);
    until(|| shown(&home, &["status"]), |status| status["backlog"]["parked_keys"] == 1);
    let ended = outbox(&home, &["status"]);
    assert!(ended.stderr.contains("semel outbox parked"), "{ended:?}");

    receiver.accept();
    assert!(change(&home, &["redrive", "--all", "--dry-run"]).succeeded().starts_with("would redrive 1 key "));
    assert!(change(&home, &["redrive", "--key", BOB, "--yes"]).failed_with(3).contains("no key \"a/bob\" is parked"));
    assert!(audited(&home).await.is_empty());
    assert_eq!(shown(&home, &["parked"])[0]["events"], 4);
    assert_eq!(change(&home, &["redrive", "--key", ALICE, "--yes"]).succeeded(), "redriving 1 key\n");
    let arrived = receiver.arrived(6).await;
    let redriven: Vec<&Arrived> = arrived.iter().filter(|event| event.key == ALICE).collect();
    let types: Vec<&str> = redriven.iter().map(|event| event.event_type.as_str()).collect();
    assert_eq!(types, ["charge.created", "account.credited", "charge.created", "account.credited"]);
    // Two of each topic were counted before, so the redriven ones are the third and fourth.
    assert_eq!(redriven.iter().map(|event| event.sequence).collect::<Vec<_>>(), [3, 3, 4, 4]);
    until(|| shown(&home, &["parked", "--state", "any"]), |keys| *keys == json!([]));
    until(|| shown(&home, &["show", &redriven[0].id]), |event| event["state"] == "published");
    assert_eq!(audited(&home).await, [["ada", "outbox redrive", "the topic exists now"]]);
    assert!(change(&home, &["redrive", "--all", "--yes"]).failed_with(3).contains("no key is parked"));
    drop(relay);
}

async fn a_skipped_event_is_never_published_and_says_who_and_why(home: Home) {
    let receiver = Receiver::start().await;
    receiver.refuse(ALICE, "charge.created");
    let _sandbox = charged(&home, &["alice"]).await;
    let mut first = relay(&home, receiver.sink()).await;
    until(|| shown(&home, &["parked"]), |keys| keys[0]["events"] == 2);
    let id = shown(&home, &["parked"])[0]["first_event"].as_str().unwrap().to_owned();
    let events = shown(&home, &["parked", "--key", ALICE]);
    assert_eq!((&events[0]["id"], &events[0]["sequence"]), (&id.clone().into(), &1.into()));
    assert_eq!((&events[1]["type"], &events[2]), (&"account.credited".into(), &Value::Null));
    assert!(outbox(&home, &["parked", "--key", BOB]).failed_with(3).contains("no event of the key \"a/bob\""));
    let event = shown(&home, &["show", &id]);
    assert_eq!((&event["state"], &event["type"]), (&"parked".into(), &"charge.created".into()));
    assert_eq!((&event["held"]["attempts"], &event["held"]["ordering_key"]), (&2.into(), &ALICE.into()));
    assert!(outbox(&home, &["show", &id]).succeeded().contains("attempts        2\n"));

    assert!(change(&home, &["skip", &id, "--dry-run"]).succeeded().starts_with("would skip"));
    assert_eq!(shown(&home, &["show", &id])["state"], "parked");
    assert!(audited(&home).await.is_empty());
    let skipped = change(&home, &["skip", &id, "--yes", "--json"]).succeeded();
    let skipped: Value = serde_json::from_str(&skipped).unwrap();
    assert_eq!((&skipped["skipped"], &skipped["event"]["id"]), (&true.into(), &id.clone().into()));
    let event = shown(&home, &["show", &id]);
    assert_eq!(event["state"], "skipped");
    assert_eq!(event["skipped"], json!({"actor": "ada", "reason": "the topic exists now"}));
    assert!(change(&home, &["skip", &id, "--yes"]).failed_with(4).contains("is skipped already"));

    // What waits behind it stays parked until somebody says otherwise.
    let parked = shown(&home, &["parked"]);
    assert_eq!((&parked[0]["state"], &parked[0]["events"]), (&"parked".into(), &1.into()));
    change(&home, &["redrive", "--key", ALICE, "--yes"]).succeeded();
    let arrived = receiver.arrived(1).await;
    assert_eq!(arrived[0].event_type, "account.credited");
    until(|| shown(&home, &["show", &arrived[0].id]), |event| event["state"] == "published");
    assert!(change(&home, &["skip", &arrived[0].id, "--yes"]).failed_with(4).contains("is published already"));
    let actions: Vec<String> = audited(&home).await.into_iter().map(|[_, action, _]| action).collect();
    assert_eq!(actions, ["outbox skip", "outbox redrive"]);
    assert!(first.terminate().await.success());
    assert_eq!(receiver.arrived(1).await.len(), 1);
}

async fn history_is_replayed_with_the_ids_and_sequences_it_had(home: Home) {
    let (receiver, other) = (Receiver::start().await, Receiver::start().await);
    let sandbox = charged(&home, &["alice", "bob"]).await;
    let _relay = relay(&home, receiver.sink()).await;
    let mut arrived = receiver.arrived(4).await;
    arrived.sort();
    until(|| shown(&home, &["status"]), |status| status["backlog"]["events"] == 0);

    let planned = |arguments: &[&str]| {
        let dry_run = ["replay", "--dry-run", "--sink", other.sink()];
        shown(&home, &[&dry_run, arguments].concat())["events"].clone()
    };
    for (arguments, events) in [
        ([].as_slice(), 4),
        (&["--topic", "charges"], 2),
        (&["--key", ALICE], 2),
        (&["--key", ALICE, "--topic", "accounts"], 1),
        (&["--since", "1h"], 4),
        (&["--from", "1h", "--to", "30m"], 0),
        (&["--to", "2020-01-01T00:00:00Z"], 0),
    ] {
        assert_eq!(planned(arguments), events, "{arguments:?}");
    }
    let replayed = outbox(&home, &["replay", "--yes", "--sink", other.sink()]).succeeded();
    assert!(replayed.contains("events          4 of 4 that are kept") && !replayed.contains("/events"), "{replayed}");
    let mut again = other.arrived(4).await;
    again.sort();
    assert_eq!(again, arrived);

    let lines = outbox(&home, &["replay", "--yes", "--sink", "stdout:", "--topic", "charges"]).succeeded();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut ids: Vec<&str> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    let mut charges: Vec<&str> =
        arrived.iter().filter(|event| event.topic == "charges").map(|event| event.id.as_str()).collect();
    charges.sort_unstable();
    assert_eq!(ids, charges);

    assert!(outbox(&home, &["replay", "--yes"]).failed_with(2).contains("--sink"));
    assert!(outbox(&home, &["replay", "--sink", "stdout:"]).failed_with(2).contains("--yes"));
    outbox(&home, &["replay", "--sink", "stdout:", "--yes", "--since", "soon"]).failed_with(2);
    outbox(&home, &["replay", "--sink", "stdout:", "--yes", "--from", "1h", "--to", "2h"]).failed_with(2);
    let unreachable = ["replay", "--yes", "--sink", "nats://127.0.0.1:1/?stream=E&timeout_ms=200"];
    assert!(outbox(&home, &unreachable).failed_with(1).contains("cannot be reached"));
    drop(sandbox);
}

async fn a_rebase_is_refused_while_a_relay_runs_and_says_first_what_it_would_do(home: Home) {
    let receiver = Receiver::start().await;
    let sandbox = charged(&home, &["alice"]).await;
    let mut first = relay(&home, receiver.sink()).await;
    receiver.arrived(2).await;
    until(|| shown(&home, &["status"]), |status| status["backlog"]["events"] == 0);
    let stderr = change(&home, &["rebase", "--yes"]).failed_with(1);
    assert!(stderr.contains("lease"), "{stderr}");
    assert!(first.terminate().await.success());
    charge(&sandbox, "alice", "again").await;

    let before = shown(&home, &["status"])["positions_of"].clone();
    pretend_restored(&home).await;
    let positions_of = shown(&home, &["status"])["positions_of"].clone();
    let planned: Value = serde_json::from_str(&change(&home, &["rebase", "--dry-run", "--json"]).succeeded()).unwrap();
    assert_eq!((&planned["rebased"], &planned["from"]), (&false.into(), &positions_of));
    assert_eq!(shown(&home, &["status"])["positions_of"], positions_of);
    assert!(audited(&home).await.is_empty());
    if matches!(home, Home::Postgres(_)) {
        // A file cannot be told from its copy; a cluster can.
        assert_ne!(positions_of, before);
        let sink = ["--sink", "stdout:", "--database-url", &home.url()];
        let stderr = semel(&[["run"].as_slice(), &sink].concat()).failed_with(1);
        assert!(stderr.contains("the relay cannot run") && stderr.contains("`semel outbox rebase`"), "{stderr}");
        let ended = outbox(&home, &["status"]);
        assert!(ended.stderr.contains("relays refuse to run until `semel outbox rebase`"), "{ended:?}");
    }
    let rebased = change(&home, &["rebase", "--yes"]).succeeded();
    assert!(rebased.starts_with("rebased:\nfrom            "), "{rebased}");
    assert_eq!(audited(&home).await, [["ada", "outbox rebase", "the topic exists now"]]);

    // What waited is published in the new incarnation.
    let mut second = relay(&home, receiver.sink()).await;
    let arrived = receiver.arrived(4).await;
    assert_eq!(arrived.iter().map(|event| &event.id).collect::<BTreeSet<_>>().len(), 4);
    assert!(second.terminate().await.success());
    let status = shown(&home, &["status"]);
    assert_eq!((&status["positions_of"], &status["backlog"]["events"]), (&status["incarnation"], &0.into()));
    if matches!(home, Home::Postgres(_)) {
        assert!(change(&home, &["rebase", "--yes"]).succeeded().starts_with("nothing to rebase:\n"));
    }
}

/// Has a PostgreSQL database believe that its outbox comes from another cluster, as a restored dump's does.
async fn pretend_restored(home: &Home) {
    if let Home::Postgres(database) = home {
        let sql = "UPDATE semel.outbox SET incarnation = 'elsewhere-1'";
        assert_eq!(database.connect().await.execute(sql, &[]).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_session_that_holds_the_outbox_up_is_named() {
    let home = Home::postgres().await;
    let receiver = Receiver::start().await;
    let sandbox = charged(&home, &["alice"]).await;
    let Home::Postgres(database) = &home else { unreachable!() };
    let client = database.connect().await;
    client.batch_execute("BEGIN; SELECT pg_current_xact_id() /* forgotten */").await.unwrap();
    let relay = relay_keeping(&home, receiver.sink(), "0s").await;
    receiver.arrived(2).await;
    let pid: i32 = client.query_one("SELECT pg_backend_pid() /* forgotten */", &[]).await.unwrap().get(0);
    let status = until(|| shown(&home, &["status"]), |status| status["blockers"] != json!([]));
    let blocker = &status["blockers"][0];
    assert_eq!((&blocker["pid"], &blocker["state"]), (&pid.into(), &"idle in transaction".into()));
    assert!(blocker["query"].as_str().unwrap().contains("forgotten"), "{blocker}");
    assert!(blocker["since"].as_str().unwrap().ends_with('Z'), "{blocker}");
    let table = outbox(&home, &["status"]).succeeded();
    assert!(table.contains("HELD UP") && table.contains(&pid.to_string()), "{table}");
    metric(&relay, "semel_outbox_rotation_blocked 1").await;
    // It holds up the storage, and no event.
    charge(&sandbox, "alice", "again").await;
    receiver.arrived(4).await;
    client.batch_execute("COMMIT").await.unwrap();
    until(|| shown(&home, &["status"]), |status| status["blockers"] == json!([]));
    metric(&relay, "semel_outbox_rotation_blocked 0").await;
}

/// Waits until a relay's metrics have this line.
async fn metric(relay: &Service, series: &str) {
    let gives_up = Instant::now() + PATIENCE;
    loop {
        let metrics = reqwest::get(relay.url("/metrics")).await.unwrap().text().await.unwrap();
        if metrics.lines().any(|line| line == series) {
            return;
        }
        assert!(Instant::now() < gives_up, "{series} is missing from\n{metrics}");
    }
}

async fn an_event_that_is_not_there_is_not_found(home: Home) {
    semel(&["migrate", "--database-url", &home.url()]).succeeded();
    let id = "00000000-0000-8000-8000-000000000000";
    assert!(outbox(&home, &["show", id]).failed_with(3).contains("there is no event"));
    assert!(change(&home, &["skip", id, "--yes"]).failed_with(3).contains("there is no event"));
    assert!(outbox(&home, &["show", "order-1"]).failed_with(2).contains("UUID"));
    assert_eq!(shown(&home, &["parked"]), json!([]));
    assert_eq!(shown(&home, &["status"])["backlog"]["events"], 0);
}

async fn a_change_needs_a_reason_and_consent(home: Home) {
    let _sandbox = charged(&home, &["alice"]).await;
    let id = first_event(&home, "alice");
    for command in [["skip", id.as_str()].as_slice(), &["redrive", "--all"], &["rebase"]] {
        let stderr = outbox(&home, &[command, &["--yes"]].concat()).failed_with(2);
        assert!(stderr.contains("--reason"), "{stderr}");
        let stderr = outbox(&home, &[command, &["--yes", "--reason", " "]].concat()).failed_with(2);
        assert!(stderr.contains("--reason"), "{stderr}");
        let stderr = change(&home, command).failed_with(2);
        assert!(stderr.contains("--yes"), "{stderr}");
    }
    change(&home, &["redrive", "--yes"]).failed_with(2);
    change(&home, &["redrive", "--all", "--key", ALICE, "--yes"]).failed_with(2);
    assert!(change(&home, &["skip", &id, "--yes"]).failed_with(4).contains("has not been tried yet"));
    assert_eq!(shown(&home, &["show", &id])["state"], "created");
    assert!(audited(&home).await.is_empty());
}

/// The id of the first event that a charge under this key has emitted.
fn first_event(home: &Home, key: &str) -> String {
    let which = ["keys", "show", "--json", "--tenant", "a", "--operation", "POST /charges", key];
    let shown = semel(&[&which, ["--database-url", &home.url()].as_slice()].concat()).succeeded();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let execution: uuid::Uuid = shown["execution"].as_str().unwrap().parse().unwrap();
    EventId::derive(Execution::from(execution), 0).to_string()
}

/// Actor, action and reason of each audit row.
async fn audited(home: &Home) -> Vec<[String; 3]> {
    match home {
        Home::Sqlite(file) => {
            let connection = Connection::open(file.path()).unwrap();
            let mut rows = connection.prepare("SELECT actor, action, reason FROM semel_audit ORDER BY id").unwrap();
            let rows = rows.query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]));
            rows.unwrap().map(Result::unwrap).collect()
        }
        Home::Postgres(database) => {
            let sql = "SELECT actor, action, reason FROM semel.audit ORDER BY id";
            let rows = database.connect().await.query(sql, &[]).await.unwrap();
            rows.iter().map(|row| [row.get(0), row.get(1), row.get(2)]).collect()
        }
    }
}
