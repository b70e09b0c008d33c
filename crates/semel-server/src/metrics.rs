//! The metrics of this process, as Prometheus reads them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use semel::flow::Pressure;

/// What a metric counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Every metric: its name, its kind, its labels and its meaning. `docs/reference/metrics.md` lists the same.
pub(crate) const METRICS: &[(&str, Kind, &[&str], &str)] = &[
    (
        "semel_key_requests_total",
        Kind::Counter,
        &["operation", "outcome"],
        "Keyed requests by outcome: fresh, replayed, in_flight, mismatch, invalid, missing, unavailable, rolled_back",
    ),
    ("semel_claim_seconds", Kind::Histogram, &[], "How long asking for a key took"),
    ("semel_keys_stuck", Kind::Gauge, &[], "Leases that expired while their work was unfinished"),
    (
        "semel_serialization_retries_total",
        Kind::Counter,
        &["operation"],
        "Work run again after a serialization failure or deadlock",
    ),
    (
        "semel_fenced_writes_total",
        Kind::Counter,
        &[],
        "Writes refused because their worker had lost its lease, or its partition of Kafka",
    ),
    ("semel_keys_reaped_total", Kind::Counter, &[], "Expired keys that were deleted"),
    ("semel_reaper_failures_total", Kind::Counter, &[], "Rounds of the reaper that failed"),
    (
        "semel_outbox_backlog",
        Kind::Gauge,
        &[],
        "Committed events that wait to be published, held ones not counted; set by relays",
    ),
    ("semel_outbox_oldest_seconds", Kind::Gauge, &[], "Age of the oldest of them; set by relays"),
    ("semel_outbox_retrying_keys", Kind::Gauge, &[], "Ordering keys whose first event was refused and is tried again"),
    ("semel_outbox_parked_keys", Kind::Gauge, &[], "Ordering keys that wait for somebody: `semel outbox parked`"),
    (
        "semel_publish_attempts_total",
        Kind::Counter,
        &["outcome"],
        "Attempts to publish an event by outcome: published, refused, unavailable, fenced",
    ),
    ("semel_publish_lag_seconds", Kind::Histogram, &[], "From an event's emission to the sink's acknowledgement"),
    ("semel_relay_lanes", Kind::Gauge, &[], "Lanes that this process relays, of 64"),
    ("semel_relay_failures_total", Kind::Counter, &[], "What a relay could not do and tries again"),
    (
        "semel_outbox_slots_full",
        Kind::Gauge,
        &[],
        "1 while no part of the outbox is free to go on to, so that one grows",
    ),
    (
        "semel_outbox_rotation_blocked",
        Kind::Gauge,
        &[],
        "1 while a session of the database keeps a part of the outbox from being emptied",
    ),
    (
        "semel_messages_total",
        Kind::Counter,
        &["consumer", "outcome"],
        "Messages by outcome: applied, duplicate, stale, retried, dead_lettered",
    ),
    (
        "semel_inbox_failures_total",
        Kind::Counter,
        &["consumer"],
        "Messages and batches of messages whose effect was rolled back",
    ),
    (
        "semel_inbox_retention_short",
        Kind::Gauge,
        &["consumer"],
        "1 while the source may deliver a message again after its id is forgotten",
    ),
    (
        "semel_inbox_reaped_total",
        Kind::Counter,
        &[],
        "Ids of messages, and dead letters that were applied, that were deleted because their time was over",
    ),
    (
        "semel_flow_steps_total",
        Kind::Counter,
        &["flow", "step", "outcome"],
        "Steps of flows by what became of them: done, failed, retried, unknown",
    ),
    (
        "semel_flow_takeovers_total",
        Kind::Counter,
        &["flow"],
        "Flows that were taken up after a pause, a crash or a commit that staged them",
    ),
    (
        "semel_flows_ended_total",
        Kind::Counter,
        &["flow", "outcome"],
        "Flows that have their reply, by outcome: completed, failed",
    ),
    (
        "semel_intents_unknown",
        Kind::Gauge,
        &[],
        "Calls that may have happened and wait for somebody: `semel flows list --state held`; set by completers",
    ),
    (
        "semel_flows_held",
        Kind::Gauge,
        &[],
        "Flows that wait for somebody, because of such a call or for another reason; set by completers",
    ),
    (
        "semel_flows_due",
        Kind::Gauge,
        &["flow"],
        "Flows that nobody works on although their lease or their pause is over; set by completers",
    ),
    ("semel_sqlite_commits_total", Kind::Counter, &[], "Commits of the SQLite writer; many operations may share one"),
];

/// The outcomes of a keyed request.
const OUTCOMES: &[&str] =
    &["fresh", "replayed", "in_flight", "mismatch", "invalid", "missing", "unavailable", "rolled_back"];

/// The outcomes of an attempt to publish.
const PUBLISH_OUTCOMES: &[&str] = &["published", "refused", "unavailable", "fenced"];

/// The outcomes of a message.
const MESSAGE_OUTCOMES: &[&str] = &["applied", "duplicate", "stale", "retried", "dead_lettered"];

/// The outcomes of a step.
const STEP_OUTCOMES: &[&str] = &["done", "failed", "retried", "unknown"];

/// The outcomes of a flow.
const FLOW_OUTCOMES: &[&str] = &["completed", "failed"];

/// Upper bounds of the buckets of every histogram, in seconds.
const BUCKETS: &[f64] =
    &[0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// How often recorded times are moved into their buckets when nobody asks for them.
const UPKEEP: Duration = Duration::from_secs(5);

/// A flow that a process registers, and its steps.
pub(crate) type Flow<'a> = (&'static str, &'a [&'static str]);

/// Starts recording. Every metric is there from the start, at zero, so that a missing series means a missing process;
/// those with an operation are there for each of `operations`, those with a consumer for each of `consumers`, and those
/// with a flow for each of `flows`.
pub(crate) fn start(operations: &[&'static str], consumers: &[String], flows: &[Flow<'_>]) -> Result<PrometheusHandle> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), BUCKETS)
        .context("the buckets cannot be used")?
        .install_recorder()
        .context("metrics were started twice")?;
    for &(name, kind, labels, meaning) in METRICS {
        match (kind, labels) {
            (Kind::Counter, ["operation", "outcome"]) => {
                metrics::describe_counter!(name, meaning);
                for operation in operations {
                    for outcome in OUTCOMES {
                        metrics::counter!(name, "operation" => *operation, "outcome" => *outcome).absolute(0);
                    }
                }
            }
            (Kind::Counter, ["operation"]) => {
                metrics::describe_counter!(name, meaning);
                for operation in operations {
                    metrics::counter!(name, "operation" => *operation).absolute(0);
                }
            }
            (Kind::Counter, ["outcome"]) => {
                metrics::describe_counter!(name, meaning);
                for outcome in PUBLISH_OUTCOMES {
                    metrics::counter!(name, "outcome" => *outcome).absolute(0);
                }
            }
            (Kind::Counter, ["consumer", "outcome"]) => {
                metrics::describe_counter!(name, meaning);
                for consumer in consumers {
                    for outcome in MESSAGE_OUTCOMES {
                        metrics::counter!(name, "consumer" => consumer.clone(), "outcome" => *outcome).absolute(0);
                    }
                }
            }
            (Kind::Counter, ["consumer"]) => {
                metrics::describe_counter!(name, meaning);
                for consumer in consumers {
                    metrics::counter!(name, "consumer" => consumer.clone()).absolute(0);
                }
            }
            (Kind::Gauge, ["consumer"]) => {
                metrics::describe_gauge!(name, meaning);
                for consumer in consumers {
                    metrics::gauge!(name, "consumer" => consumer.clone()).set(0.0);
                }
            }
            (Kind::Counter, ["flow", "step", "outcome"]) => {
                metrics::describe_counter!(name, meaning);
                for &(flow, steps) in flows {
                    for &step in steps {
                        for &outcome in STEP_OUTCOMES {
                            metrics::counter!(name, "flow" => flow, "step" => step, "outcome" => outcome).absolute(0);
                        }
                    }
                }
            }
            (Kind::Counter, ["flow", "outcome"]) => {
                metrics::describe_counter!(name, meaning);
                for (flow, _) in flows {
                    for outcome in FLOW_OUTCOMES {
                        metrics::counter!(name, "flow" => *flow, "outcome" => *outcome).absolute(0);
                    }
                }
            }
            (Kind::Counter, ["flow"]) => {
                metrics::describe_counter!(name, meaning);
                for (flow, _) in flows {
                    metrics::counter!(name, "flow" => *flow).absolute(0);
                }
            }
            (Kind::Gauge, ["flow"]) => {
                metrics::describe_gauge!(name, meaning);
                for (flow, _) in flows {
                    metrics::gauge!(name, "flow" => *flow).set(0.0);
                }
            }
            (Kind::Counter, _) => {
                metrics::describe_counter!(name, meaning);
                metrics::counter!(name).absolute(0);
            }
            (Kind::Gauge, _) => {
                metrics::describe_gauge!(name, meaning);
                metrics::gauge!(name).set(0.0);
            }
            (Kind::Histogram, _) => {
                metrics::describe_histogram!(name, metrics::Unit::Seconds, meaning);
                drop(metrics::histogram!(name));
            }
        }
    }
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}

/// Sets how many flows wait, and for what. `names` are the flows that were due at an earlier look: those that are not
/// any more go to zero.
pub(crate) fn flow_pressure(pressure: &Pressure, names: &mut BTreeSet<String>) {
    metrics::gauge!("semel_intents_unknown").set(float(pressure.unknown));
    metrics::gauge!("semel_flows_held").set(float(pressure.held));
    names.extend(pressure.due.iter().map(|due| due.flow.clone()));
    for name in names.iter() {
        let count = pressure.due.iter().find(|due| due.flow == *name).map_or(0, |due| due.count);
        metrics::gauge!("semel_flows_due", "flow" => name.clone()).set(float(count));
    }
}

fn float(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    let float = count as f64;
    float
}

/// `GET /metrics`.
pub(crate) fn router(handle: PrometheusHandle) -> Router {
    let render = async move || ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], handle.render());
    Router::new().route("/metrics", get(render))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_this_table() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
        let document = std::fs::read_to_string(document).unwrap();
        let (_, table) = document.split_once("| name | type | labels | meaning |\n").unwrap();
        let documented: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
        let rows = METRICS.iter().map(|(name, kind, labels, meaning)| {
            let kind = format!("{kind:?}").to_lowercase();
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = if labels.is_empty() { " ".to_owned() } else { format!(" {} ", labels.join(", ")) };
            format!("| `{name}` | {kind} |{labels}| {meaning} |")
        });
        assert_eq!(documented, rows.collect::<Vec<_>>());
    }
}
