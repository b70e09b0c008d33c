//! `semel outbox status`.

use anyhow::{Context, Result};
use clap::Args;
use semel::Outbox;
use semel::outbox::{Blocker, LANES, OutboxStatus, RelayRecord};
use serde_json::{Value, json};

use super::Settings;
use crate::commands::text::{age, facts, line, table, time};
use crate::commands::{Done, print};
use crate::config::Config;
use crate::database::{Database, with_store};

const AFTER_HELP: &str = "\
Counting a large backlog takes a while. Held events (retrying or parked) are not part of the backlog.

Examples:
  semel outbox status
  semel outbox status --json | jq .backlog.oldest_seconds";

/// Show how much waits, who relays it, and what holds it up
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Print a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Settings,
}

/// Prints where the outbox stands.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let database = Database::open_migrated(config).await?;
    let status = with_store!(&database, store => store.outbox_status().await).context("cannot look at the outbox")?;
    print(&if arguments.json { format!("{:#}\n", to_json(&status)) } else { to_text(&status) })?;
    if !arguments.json {
        for advice in advice(&status) {
            eprintln!("{advice}");
        }
    }
    Ok(Done::Completed)
}

fn to_json(status: &OutboxStatus) -> Value {
    let backlog = &status.backlog;
    let oldest_ms = backlog.oldest_ms.map(|oldest_ms| (backlog.now_ms - oldest_ms).max(0));
    json!({
        "incarnation": status.incarnation,
        "positions_of": status.positions_of,
        "backlog": {
            "events": backlog.events,
            "oldest_at": backlog.oldest_ms.map(time),
            "oldest_seconds": oldest_ms.map(|ms| ms / 1000),
            "retrying_keys": backlog.retrying_keys,
            "parked_keys": backlog.parked_keys,
        },
        "lanes": LANES,
        "free_lanes": status.free_lanes,
        "relays": status.relays.iter().map(relay_to_json).collect::<Vec<_>>(),
        "slots": status.slots,
        "blockers": status.blockers.iter().map(blocker_to_json).collect::<Vec<_>>(),
    })
}

fn relay_to_json(relay: &RelayRecord) -> Value {
    json!({
        "id": relay.id,
        "name": relay.name,
        "lanes": relay.lanes,
        "lease_expires_at": time(relay.expires_at_ms),
        "expired": relay.expired,
    })
}

fn blocker_to_json(blocker: &Blocker) -> Value {
    json!({
        "holds": blocker.holds,
        "pid": blocker.pid,
        "who": blocker.who,
        "since": time(blocker.since_ms),
        "state": blocker.state,
        "query": blocker.query,
    })
}

fn to_text(status: &OutboxStatus) -> String {
    let backlog = &status.backlog;
    let waits = match backlog.oldest_ms {
        Some(oldest_ms) => format!("{} events, the oldest for {}", backlog.events, age(oldest_ms, backlog.now_ms)),
        None => format!("{} events", backlog.events),
    };
    let mut text = facts(&[
        ("incarnation", status.incarnation.clone()),
        ("positions of", status.positions_of.clone().unwrap_or_else(|| "none yet".to_owned())),
        ("backlog", waits),
        ("held keys", format!("{} retrying, {} parked", backlog.retrying_keys, backlog.parked_keys)),
        ("lanes", format!("{LANES}, of which {} are free", status.free_lanes)),
    ]);
    for slot in &status.slots {
        text += &facts(&[("storage", slot)]);
    }
    let relays: Vec<Vec<String>> = status
        .relays
        .iter()
        .map(|relay| {
            let lease = time(relay.expires_at_ms) + if relay.expired { " (expired)" } else { "" };
            vec![relay.id.to_string(), line(&relay.name, 80), relay.lanes.to_string(), lease]
        })
        .collect();
    if !relays.is_empty() {
        text += &format!("\n{}", table(&["RELAY", "NAME", "LANES", "LEASE ENDS"], &relays));
    }
    let blockers: Vec<Vec<String>> = status
        .blockers
        .iter()
        .map(|blocker| {
            let since = format!("{} ({})", time(blocker.since_ms), age(blocker.since_ms, backlog.now_ms));
            let Blocker { holds, pid, who, state, query, .. } = blocker;
            vec![holds.clone(), pid.to_string(), line(who, 60), since, state.clone(), line(query, 200)]
        })
        .collect();
    if !blockers.is_empty() {
        text += &format!("\n{}", table(&["HELD UP", "PID", "BY", "SINCE", "STATE", "QUERY"], &blockers));
    }
    text
}

/// What somebody who sees this will want to do.
fn advice(status: &OutboxStatus) -> Vec<String> {
    let mut advice = Vec::new();
    if status.positions_of.as_ref().is_some_and(|positions_of| *positions_of != status.incarnation) {
        advice.push(
            "the positions were stored in another incarnation of the database: relays refuse to run until \
             `semel outbox rebase`"
                .to_owned(),
        );
    }
    if status.relays.iter().all(|relay| relay.expired) {
        advice.push("no relay runs: events wait until `semel run --sink URL` publishes them".to_owned());
    }
    if status.backlog.parked_keys > 0 {
        advice.push("parked keys wait for somebody: see `semel outbox parked`".to_owned());
    }
    advice
}
