//! The metrics this crate records, through the `metrics` facade. Labels never hold a key or a tenant.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::flow::Pressure;
use crate::outbox::{Backlog, Tidied};

/// Counts a keyed request by its outcome: fresh, replayed, in_flight, mismatch, invalid, missing, unavailable,
/// rolled_back.
pub fn key_request(operation: &str, outcome: &'static str) {
    metrics::counter!("semel_key_requests_total", "operation" => operation.to_owned(), "outcome" => outcome)
        .increment(1);
}

/// Records how long a claim took.
pub fn claim_took(elapsed: Duration) {
    metrics::histogram!("semel_claim_seconds").record(elapsed);
}

/// Counts work run again after a serialization failure or deadlock.
pub fn serialization_retry(operation: &str) {
    metrics::counter!("semel_serialization_retries_total", "operation" => operation.to_owned()).increment(1);
}

/// Counts a write refused because its worker had lost the lease.
pub fn fenced_write() {
    metrics::counter!("semel_fenced_writes_total").increment(1);
}

/// Counts keys that the reaper deleted.
pub fn keys_reaped(count: u64) {
    metrics::counter!("semel_keys_reaped_total").increment(count);
}

/// Counts messages whose ids the reaper deleted.
pub fn inbox_reaped(count: u64) {
    metrics::counter!("semel_inbox_reaped_total").increment(count);
}

/// Sets how many leases expired while their work was unfinished.
pub fn keys_stuck(count: u64) {
    gauge("semel_keys_stuck", count);
}

/// Counts reaper rounds that failed.
pub fn reaper_failed() {
    metrics::counter!("semel_reaper_failures_total").increment(1);
}

/// Counts a message by what became of it: applied, duplicate, stale, retried, dead_lettered.
pub fn message(consumer: &str, outcome: &'static str) {
    metrics::counter!("semel_messages_total", "consumer" => consumer.to_owned(), "outcome" => outcome).increment(1);
}

/// Counts a message or a batch whose effect was rolled back.
pub fn inbox_failure(consumer: &str) {
    metrics::counter!("semel_inbox_failures_total", "consumer" => consumer.to_owned()).increment(1);
}

/// Sets whether a consumer keeps ids for a shorter time than its source may deliver them again (I9).
pub fn inbox_retention_short(consumer: &str, short: bool) {
    metrics::gauge!("semel_inbox_retention_short", "consumer" => consumer.to_owned()).set(f64::from(u8::from(short)));
}

/// Counts a step of a flow by what became of it: done, failed, retried, unknown.
pub fn flow_step(flow: &str, step: &str, outcome: &'static str) {
    let (flow, step) = (flow.to_owned(), step.to_owned());
    metrics::counter!("semel_flow_steps_total", "flow" => flow, "step" => step, "outcome" => outcome).increment(1);
}

/// Counts a flow that was taken up after a pause, a crash, or the commit that staged it.
pub fn flow_takeover(flow: &str) {
    metrics::counter!("semel_flow_takeovers_total", "flow" => flow.to_owned()).increment(1);
}

/// Counts a flow that has its reply, by its outcome: completed, failed.
pub fn flow_ended(flow: &str, outcome: &'static str) {
    metrics::counter!("semel_flows_ended_total", "flow" => flow.to_owned(), "outcome" => outcome).increment(1);
}

/// Sets how many flows wait, and for what. `names` are the flows that were due at an earlier look: those that are not
/// any more go to zero.
pub fn flow_pressure(pressure: &Pressure, names: &mut BTreeSet<String>) {
    gauge("semel_intents_unknown", pressure.unknown);
    gauge("semel_flows_held", pressure.held);
    names.extend(pressure.due.iter().map(|due| due.flow.clone()));
    for name in names.iter() {
        let count = pressure.due.iter().find(|due| due.flow == *name).map_or(0, |due| due.count);
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        metrics::gauge!("semel_flows_due", "flow" => name.clone()).set(count as f64);
    }
}

/// Sets how much waits in the outbox.
pub fn outbox_backlog(backlog: &Backlog) {
    gauge("semel_outbox_backlog", backlog.events);
    gauge("semel_outbox_retrying_keys", backlog.retrying_keys);
    gauge("semel_outbox_parked_keys", backlog.parked_keys);
    let oldest_ms = backlog.oldest_ms.map_or(0, |oldest_ms| (backlog.now_ms - oldest_ms).max(0));
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    metrics::gauge!("semel_outbox_oldest_seconds").set(oldest_ms as f64 / 1000.0);
}

/// Counts attempts to publish an event by their outcome: published, refused, unavailable, fenced.
pub fn publish_attempts(outcome: &'static str, count: u64) {
    metrics::counter!("semel_publish_attempts_total", "outcome" => outcome).increment(count);
}

/// Records how long an event took from its emission to the sink's acknowledgement.
pub fn publish_lag(lag: Duration) {
    metrics::histogram!("semel_publish_lag_seconds").record(lag);
}

/// Sets how many lanes this process relays.
pub fn relay_lanes(count: usize) {
    gauge("semel_relay_lanes", count as u64);
}

/// Counts what a relay could not do and will try again.
pub fn relay_failed() {
    metrics::counter!("semel_relay_failures_total").increment(1);
}

/// Takes note of how making room in the outbox went.
pub fn outbox_tidied(tidied: &Tidied) {
    gauge("semel_outbox_slots_full", u64::from(tidied.full));
    gauge("semel_outbox_rotation_blocked", u64::from(!tidied.blockers.is_empty()));
}

fn gauge(name: &'static str, value: u64) {
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    metrics::gauge!(name).set(value as f64);
}
