//! The metrics this crate records, through the `metrics` facade. Labels never hold a key or a tenant.

use std::time::Duration;

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

/// Sets how many leases expired while their work was unfinished.
pub fn keys_stuck(count: u64) {
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    metrics::gauge!("semel_keys_stuck").set(count as f64);
}

/// Counts reaper rounds that failed.
pub fn reaper_failed() {
    metrics::counter!("semel_reaper_failures_total").increment(1);
}
