//! What is counted of messages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use semel::inbox::Rule;

use super::harness::Harness;
use super::lab::Lab;
use super::message::{Deed, id, record, versioned};

/// Every outcome has a series, by the consumer's name and without any id.
pub async fn messages_are_counted_by_what_became_of_them<H: Harness>() {
    let (lab, counts) = (Lab::<H>::open().await, Counts::default());
    // This task stays on its thread, and whatever counts is called in it.
    let _recording = metrics::set_default_local_recorder(&counts);
    let latest = [5, 4].map(|version| versioned("replaced", version, Rule::Latest));
    let each = [1, 2].map(|version| versioned("changed", version, Rule::Each));
    lab.deliver(&id("a")).await.unwrap();
    lab.deliver(&id("a")).await.unwrap();
    lab.deliver(&latest[0]).await.unwrap();
    lab.deliver(&latest[1]).await.unwrap();
    lab.deliver(&each[1]).await.unwrap();
    lab.deliver(&id("b").that(Deed::Fail)).await.unwrap_err();
    lab.deliver(&id("b").that(Deed::Misdefer)).await.unwrap_err();
    assert_eq!(counts.taken(), [("applied", 2), ("duplicate", 1), ("failures", 2), ("retried", 1), ("stale", 1)]);
    lab.deliver_all(&[
        id("a"),
        id("c"),
        each[1].clone(),
        record(0, 0).that(Deed::Fail),
        record(1, 1),
        id("b").that(Deed::Misdefer),
        latest[1].clone(),
        id("d").with_version("replaced", 3, Rule::Latest),
    ])
    .await;
    assert_eq!(counts.taken(), [("applied", 1), ("duplicate", 2), ("failures", 2), ("retried", 2), ("stale", 1)]);
}

/// The counters of this thread.
#[derive(Default)]
struct Counts(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Counts {
    /// What the consumer's messages were counted as since the last call.
    fn taken(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.lock().unwrap();
        let taken = |series: &str| counts.get(series).map_or(0, |count| count.swap(0, Ordering::SeqCst));
        let outcome = |name| (name, taken(&format!("semel_messages_total consumer=receipts outcome={name}")));
        let failures = ("failures", taken("semel_inbox_failures_total consumer=receipts"));
        let told = vec![outcome("applied"), outcome("duplicate"), failures, outcome("retried"), outcome("stale")];
        assert_eq!(counts.values().map(|count| count.load(Ordering::SeqCst)).sum::<u64>(), 0, "{counts:?}");
        told
    }
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if !key.name().starts_with("semel_messages_") && !key.name().starts_with("semel_inbox_") {
            return Counter::noop();
        }
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value())).collect::<String>();
        let mut counts = self.0.lock().unwrap();
        Counter::from_arc(counts.entry(format!("{}{labels}", key.name())).or_default().clone())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
