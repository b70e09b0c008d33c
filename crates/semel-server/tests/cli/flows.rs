//! `semel flows`.

mod asking;
mod role;
mod stage;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::consumer::numbers;
use crate::harness::{Ended, Home, on_both_stores, semel};
use stage::{DERIVED, Flows, SECRET, WHY};

on_both_stores!(
    flows_are_listed_by_name_tenant_and_state,
    a_held_flow_is_shown_with_its_attempts_and_what_to_do_next,
    a_call_that_happened_is_settled_with_what_was_found,
    a_call_that_did_not_happen_is_sent_anew_under_its_key,
    a_call_that_must_not_happen_fails_its_step,
    only_a_step_in_doubt_is_resolved,
    a_retry_lets_go_on_what_waits_and_nothing_else,
    a_cancellation_marks_what_lives_and_nothing_else,
    a_dry_run_changes_nothing,
    a_flow_that_is_not_there_is_not_found,
    a_change_needs_a_reason_and_consent,
    a_flow_of_another_epoch_than_was_seen_is_left_alone,
);

fn flows(home: &Home, arguments: &[&str]) -> Ended {
    semel(&[&["flows"], arguments, &["--database-url", &home.url()]].concat())
}

fn shown(home: &Home, arguments: &[&str]) -> Value {
    serde_json::from_str(&flows(home, &[arguments, &["--json"]].concat()).succeeded()).unwrap()
}

/// Makes a change as Ada.
fn change(home: &Home, arguments: &[&str]) -> Ended {
    flows(home, &[arguments, &["--actor", "ada", "--reason", "asked them"]].concat())
}

/// How many changes were written down under this name.
async fn audited(home: &Home, action: &str) -> i64 {
    let table = if matches!(home, Home::Sqlite(_)) { "semel_audit" } else { "semel.audit" };
    let sql =
        format!("SELECT count(*) FROM {table} WHERE actor = 'ada' AND reason = 'asked them' AND action = '{action}'");
    numbers(home, &sql).await[0]
}

async fn flows_are_listed_by_name_tenant_and_state(home: Home) {
    let prepared = Flows::prepare(&home).await;
    let table = flows(&home, &["list"]).succeeded();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("EXECUTION") && lines[0].ends_with("CAUSE"), "{table}");
    assert_eq!(lines.len(), 9, "{table}");
    assert!(lines[8].starts_with(&format!("{}  order  a       held-1", prepared.held[0])), "{table}");
    assert!(lines[8].contains("  held ") && lines[8].ends_with(WHY) && lines[8].contains("  charge "), "{table}");

    let listed = |arguments: &[&str]| -> Vec<String> {
        let array = shown(&home, &[&["list"], arguments].concat());
        array.as_array().unwrap().iter().map(|flow| flow["execution"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed(&[]), prepared.newest_first());
    assert_eq!(listed(&["--limit", "2"]), [&*prepared.abandoned, &*prepared.completed]);
    assert_eq!(listed(&["--flow", "mail"]), [&*prepared.due]);
    assert_eq!(listed(&["--tenant", "b"]), [&*prepared.completed]);
    assert_eq!(listed(&["--flow", "mail", "--tenant", "b"]), Vec::<String>::new());
    for (state, count) in [("running", 1), ("paused", 1), ("due", 1), ("held", 4), ("completed", 1), ("failed", 0)] {
        assert_eq!(listed(&["--state", state]).len(), count, "{state}");
    }
    assert!(flows(&home, &["list", "--state", "lost"]).failed_with(2).contains("the states are"));
    flows(&home, &["list", "--limit", "10001"]).failed_with(2);
    let completed = &shown(&home, &["list", "--state", "completed"])[0];
    assert_eq!((&completed["status"], &completed["key"]), (&201.into(), &"completed".into()));
}

async fn a_held_flow_is_shown_with_its_attempts_and_what_to_do_next(home: Home) {
    let prepared = Flows::prepare(&home).await;
    let held = prepared.held[0].as_str();
    let text = flows(&home, &["show", held]).succeeded();
    for fact in [
        format!("execution       {held}\nflow            order\ntenant          a\n"),
        "key             held-1\nstate           held\n".to_owned(),
        "epoch           1\n".to_owned(),
        format!("cause           {WHY}\n"),
        "step            reserve\nkind            commit\nstate           done\n".to_owned(),
        "step            charge\nkind            call\nstate           unknown\n".to_owned(),
        format!("provider        card-processor\nderived key     {DERIVED}\n"),
        "attempts        3 attempts: unknown, retryable, unknown\n".to_owned(),
        format!("held: find out at card-processor whether {DERIVED} was executed"),
        format!("semel flows resolve {held} charge --happened '{{…}}' --reason '…' --epoch 1\n"),
        format!("semel flows resolve {held} charge --did-not-happen --reason '…' --epoch 1\n"),
    ] {
        assert!(text.contains(&fact), "{fact}\nis missing from\n{text}");
    }
    let json = shown(&home, &["show", held]);
    assert_eq!((&json["state"], &json["epoch"], &json["last_step"]), (&"held".into(), &1.into(), &"charge".into()));
    assert_eq!((&json["input_bytes"], &json["changes"]), (&SECRET.len().into(), &json!([])));
    let (reserve, charge) = (&json["steps"][0], &json["steps"][1]);
    assert_eq!((&reserve["kind"], &reserve["result_bytes"]), (&"commit".into(), &SECRET.len().into()));
    assert_eq!((&reserve["provider"], &reserve["attempts"]), (&Value::Null, &Value::Null));
    assert_eq!(charge["attempts"], json!(["unknown", "retryable", "unknown"]));
    assert_eq!((&charge["derived_key"], &charge["settled_at"]), (&DERIVED.into(), &Value::Null));
    assert!(json["next"].as_str().unwrap().starts_with("held: find out at card-processor"), "{json}");
    assert!(!text.contains(SECRET) && !json.to_string().contains(SECRET), "{text}");

    let told = |flow: &str| flows(&home, &["show", flow]).succeeded();
    let abandoned = told(&prepared.abandoned);
    assert!(abandoned.contains(&format!("semel flows retry {} --reason", prepared.abandoned)), "{abandoned}");
    let paused = told(&prepared.paused);
    assert!(paused.contains("failures        1\n") && paused.contains("\npaused until    "), "{paused}");
    assert!(told(&prepared.running).contains("\nrunning: the test works on it"));
    assert!(told(&prepared.due).contains("has the flow mail registered"));
    assert!(told(&prepared.completed).contains("status          201\n"));
}

async fn a_call_that_happened_is_settled_with_what_was_found(home: Home) {
    let prepared = Flows::prepare(&home).await;
    let held = prepared.held[0].as_str();
    let found = r#"{"id": "ch_1"}"#;
    let told = change(&home, &["resolve", held, "charge", "--happened", found, "--yes"]).succeeded();
    assert!(told.starts_with("resolved; this is the flow as it was:\n"), "{told}");
    assert!(told.contains("state           held\n"), "{told}");
    let json = shown(&home, &["show", held]);
    assert_eq!((&json["state"], &json["epoch"]), (&"due".into(), &2.into()));
    let charge = &json["steps"][1];
    assert_eq!((&charge["state"], &charge["result_bytes"]), (&"done".into(), &found.len().into()));
    let change = &json["changes"][0];
    assert_eq!((&change["action"], &change["actor"]), (&"flow_resolved".into(), &"ada".into()));
    assert!(flows(&home, &["show", held]).succeeded().contains("  flow_resolved by ada: asked them\n"));
    assert_eq!(audited(&home, "flow_resolved").await, 1);
}

async fn a_call_that_did_not_happen_is_sent_anew_under_its_key(home: Home) {
    let prepared = Flows::prepare(&home).await;
    let held = prepared.held[1].as_str();
    let arguments = ["resolve", held, "charge", "--did-not-happen", "--yes", "--json"];
    let told: Value = serde_json::from_str(&change(&home, &arguments).succeeded()).unwrap();
    assert_eq!((&told["resolved"], &told["dry_run"]), (&true.into(), &false.into()));
    assert_eq!((&told["step"], &told["resolution"]), (&"charge".into(), &"did_not_happen".into()));
    assert_eq!((&told["actor"], &told["reason"]), (&"ada".into(), &"asked them".into()));
    assert_eq!((&told["flow"]["execution"], &told["flow"]["state"]), (&held.into(), &"held".into()));
    let json = shown(&home, &["show", held]);
    let charge = &json["steps"][1];
    assert_eq!((&json["state"], &charge["state"]), (&"due".into(), &"pending".into()));
    assert_eq!((&charge["derived_key"], &charge["attempts"]), (&DERIVED.into(), &json!([])));
    assert_eq!(audited(&home, "flow_resolved").await, 1);
}

async fn a_call_that_must_not_happen_fails_its_step(home: Home) {
    let prepared = Flows::prepare(&home).await;
    let held = prepared.held[2].as_str();
    change(&home, &["resolve", held, "charge", "--failed", "the card has expired", "--yes"]).succeeded();
    let json = shown(&home, &["show", held]);
    assert_eq!((&json["state"], &json["steps"][1]["state"]), (&"due".into(), &"failed".into()));
    assert_eq!(audited(&home, "flow_resolved").await, 1);
}

async fn only_a_step_in_doubt_is_resolved(home: Home) {
    let prepared = Flows::prepare(&home).await;
    let refused = |flow: &str, step: &str, state: &str| {
        for arguments in [["--yes"], ["--dry-run"]] {
            let resolve = [["resolve", flow, step, "--happened", "null"].as_slice(), &arguments].concat();
            let stderr = change(&home, &resolve).failed_with(4);
            assert!(stderr.contains(&format!("the flow is {state} and was left alone: ")), "{stderr}");
        }
    };
    refused(&prepared.held[0], "reserve", "held");
    refused(&prepared.held[0], "nothing", "held");
    refused(&prepared.running, "charge", "running");
    refused(&prepared.completed, "charge", "completed");
    assert_eq!(audited(&home, "flow_resolved").await, 0);
}

async fn a_retry_lets_go_on_what_waits_and_nothing_else(home: Home) {
    let prepared = Flows::prepare(&home).await;
    for flow in [&prepared.paused, &prepared.abandoned, &prepared.due] {
        let told = change(&home, &["retry", flow, "--yes"]).succeeded();
        assert!(told.starts_with("retried; this is the flow as it was:\n"), "{told}");
        let json = shown(&home, &["show", flow]);
        assert_eq!((&json["state"], &json["failures"]), (&"due".into(), &0.into()), "{json}");
        assert_eq!(json["changes"][0]["action"], "flow_retried");
    }
    for (flow, state) in
        [(&prepared.held[0], "held"), (&prepared.running, "running"), (&prepared.completed, "completed")]
    {
        let stderr = change(&home, &["retry", flow, "--yes"]).failed_with(4);
        assert!(stderr.contains(&format!("the flow is {state} and was left alone: ")), "{stderr}");
        assert_eq!(shown(&home, &["show", flow])["state"], state);
    }
    assert_eq!(audited(&home, "flow_retried").await, 3);
}

async fn a_cancellation_marks_what_lives_and_nothing_else(home: Home) {
    let prepared = Flows::prepare(&home).await;
    for (flow, then) in [(&prepared.paused, "due"), (&prepared.running, "running")] {
        let told = change(&home, &["cancel", flow, "--yes", "--json"]).succeeded();
        assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["cancelled"], true, "{told}");
        let json = shown(&home, &["show", flow]);
        assert_eq!((&json["state"], &json["changes"][0]["action"]), (&then.into(), &"flow_cancelled".into()));
    }
    for (flow, state) in [(&prepared.held[0], "held"), (&prepared.completed, "completed")] {
        let stderr = change(&home, &["cancel", flow, "--yes"]).failed_with(4);
        assert!(stderr.contains(&format!("the flow is {state} and was left alone: ")), "{stderr}");
    }
    assert_eq!(audited(&home, "flow_cancelled").await, 2);
}

async fn a_dry_run_changes_nothing(home: Home) {
    let prepared = Flows::prepare(&home).await;
    let before = shown(&home, &["list"]);
    let commands: [(&[&str], &str); 3] = [
        (&["retry", &prepared.paused], "retried"),
        (&["cancel", &prepared.paused], "cancelled"),
        (&["resolve", &prepared.held[0], "charge", "--did-not-happen"], "resolved"),
    ];
    for (command, past) in commands {
        let dry_run = [command, &["--dry-run"]].concat();
        let told = change(&home, &dry_run).succeeded();
        assert!(told.starts_with(&format!("would {} (nothing was changed):\n", command[0])), "{told}");
        let told = change(&home, &[dry_run.as_slice(), &["--json"]].concat()).succeeded();
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!((&told[past], &told["dry_run"]), (&false.into(), &true.into()), "{told}");
        assert_eq!(told["flow"]["execution"], command[1]);
    }
    assert_eq!(shown(&home, &["list"]), before);
    for action in ["flow_retried", "flow_cancelled", "flow_resolved"] {
        assert_eq!(audited(&home, action).await, 0, "{action}");
    }
}

async fn a_flow_that_is_not_there_is_not_found(home: Home) {
    semel(&["migrate", "--database-url", &home.url()]).succeeded();
    let nobody = Uuid::new_v4().to_string();
    assert_eq!(shown(&home, &["list"]), json!([]));
    for ended in [
        flows(&home, &["show", &nobody]),
        change(&home, &["retry", &nobody, "--yes"]),
        change(&home, &["cancel", &nobody, "--dry-run"]),
        change(&home, &["resolve", &nobody, "charge", "--did-not-happen", "--yes"]),
    ] {
        let stderr = ended.failed_with(3);
        assert!(stderr.contains(&format!("there is no flow {nobody}")), "{stderr}");
    }
    assert!(flows(&home, &["show", "order-1"]).failed_with(2).contains("which is a UUID"));
}

async fn a_change_needs_a_reason_and_consent(home: Home) {
    let prepared = Flows::prepare(&home).await;
    let resolve = ["resolve", &prepared.held[0], "charge", "--did-not-happen"];
    for command in [["retry", &prepared.paused].as_slice(), &["cancel", &prepared.paused], &resolve] {
        let stderr = flows(&home, &[command, &["--yes"]].concat()).failed_with(2);
        assert!(stderr.contains("--reason"), "{stderr}");
        let stderr = change(&home, command).failed_with(2);
        assert!(stderr.contains("--yes"), "{stderr}");
    }
    for flow in [&prepared.paused, &prepared.held[0]] {
        assert_eq!(shown(&home, &["show", flow])["changes"], json!([]));
    }
}

async fn a_flow_of_another_epoch_than_was_seen_is_left_alone(home: Home) {
    let prepared = Flows::prepare(&home).await;
    let resolve = ["resolve", &prepared.held[0], "charge", "--did-not-happen"];
    let changes: [(&[&str], &str); 3] = [
        (&resolve, "resolved"),
        (&["retry", &prepared.abandoned], "retried"),
        (&["cancel", &prepared.paused], "cancelled"),
    ];
    for (command, past) in changes {
        for consent in ["--yes", "--dry-run"] {
            let stderr = change(&home, &[command, &["--epoch", "7", consent]].concat()).failed_with(4);
            assert!(stderr.contains("has changed hands since it was seen"), "{stderr}");
        }
        assert_eq!(shown(&home, &["show", command[1]])["changes"], json!([]));
        let epoch = shown(&home, &["show", command[1]])["epoch"].to_string();
        let told = change(&home, &[command, &["--epoch", &epoch, "--yes"]].concat()).succeeded();
        assert!(told.starts_with(&format!("{past}; this is the flow as it was:\n")), "{told}");
    }
    change(&home, &["cancel", &prepared.running, "--epoch", "0", "--yes"]).failed_with(2);
}
