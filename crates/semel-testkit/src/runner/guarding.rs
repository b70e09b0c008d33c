//! What is refused, raised, and not believed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::runner::Error;
use semel::source::Redelivery;
use semel::tier::{Answer, Filter, Tier};
use semel::{Consumer, Inbox};

use super::desk::{CONSUMER, Desk, message};
use crate::inbox::Harness;
use crate::poll::until;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// With the arithmetic, and before anything is read (I9).
pub async fn a_retention_shorter_than_the_sources_is_refused_at_the_start<H: Harness>() {
    let desk = Desk::<H>::open().await;
    desk.shelf.promise(Redelivery::Within { longest: 9 * DAY, because: "retention 8d + segment 1d".to_owned() });
    desk.shelf.put([message("a1", "a")]);
    let error = desk.start().await.ended().await.unwrap_err();
    assert!(matches!(error, Error::Settings(_)), "{error:?}");
    let told = error.to_string();
    for part in [CONSUMER, "kept for 7d", "again for 9d", "retention 8d + segment 1d", "at least 9d"] {
        assert!(told.contains(part), "{part} is missing in: {told}");
    }
    assert_eq!((desk.shelf.in_hand(), desk.tried("a1")), (0, 0));
    // Nor is anything forgotten by it.
    assert!(desk.harness.store().consumers(Some(CONSUMER)).await.unwrap().is_empty());
}

/// It is logged, and told as a metric, for as long as it lasts; reading goes on.
pub async fn a_source_that_is_changed_while_it_is_read_raises_the_alarm<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.settings.retention_interval = Duration::from_millis(10);
    let gauges = Gauges::default();
    let runner = desk.runner().await.unwrap();
    // Whatever tells the metric is polled on this task.
    let running = async { runner.run(std::future::pending()).await };
    let watching = async {
        until("nothing is wrong", async || gauges.short() == Some(0.0)).await;
        desk.shelf.promise(Redelivery::Unlimited { because: "max_age was lifted".to_owned() });
        until("the alarm is raised", async || gauges.short() == Some(1.0)).await;
        desk.shelf.promise(Redelivery::Within { longest: DAY, because: "max_age 1d".to_owned() });
        until("the alarm is over", async || gauges.short() == Some(0.0)).await;
    };
    let _recording = metrics::set_default_local_recorder(&gauges);
    tokio::select! {
        ended = running => panic!("it ended: {ended:?}"),
        () = watching => {}
    }
}

/// It takes everything for seen, or nothing: the store decides (I6).
pub async fn a_tier_that_lies_changes_no_result<H: Harness>() {
    for says in [true, false] {
        let mut desk = Desk::<H>::open().await;
        let tier = Arc::new(Liar { says, asked: AtomicU32::new(0) });
        desk.tier = Some(Arc::clone(&tier) as Arc<dyn Tier>);
        for _ in 0..2 {
            desk.shelf.put(["a", "b", "c"].map(|id| message(id, id)));
        }
        let shift = desk.start().await;
        desk.acknowledges(6).await;
        desk.applied_once(&["a", "b", "c"]).await;
        assert!(tier.asked.load(Ordering::SeqCst) > 0);
        shift.ends().await;
    }
}

/// It forgets everything, takes everything for seen, and remembers rightly, by turns; or it is full.
pub async fn a_tier_that_changes_its_mind_in_mid_run_changes_no_result<H: Harness>() {
    let tiers: [Arc<dyn Tier>; 2] = [Arc::new(Fickle::default()), Arc::new(Filter::within(8, 1))];
    for tier in tiers {
        let mut desk = Desk::<H>::open().await;
        desk.settings.batch = 7;
        desk.tier = Some(tier);
        let ids: Vec<String> = (0..60).map(|n| format!("m{n}")).collect();
        for _ in 0..3 {
            desk.shelf.put(ids.iter().map(|id| message(id, &id[..2])));
        }
        let shift = desk.start().await;
        desk.acknowledges(180).await;
        desk.applied_once(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
        shift.ends().await;
    }
}

/// What it remembers rightly is settled by a read.
pub async fn a_tier_that_knows_saves_the_transaction<H: Harness>() {
    let mut desk = Desk::<H>::open().await;
    desk.tier = Some(Arc::new(Filter::new(1_000, 0.01)));
    desk.shelf.put(["a", "b", "c"].map(|id| message(id, id)));
    let shift = desk.start().await;
    desk.acknowledges(3).await;
    desk.shelf.put(["a", "b", "c", "d"].map(|id| message(id, id)));
    desk.acknowledges(7).await;
    desk.applied_once(&["a", "b", "c", "d"]).await;
    shift.ends().await;
}

#[derive(Debug)]
struct Liar {
    says: bool,
    asked: AtomicU32,
}

impl Tier for Liar {
    fn maybe_seen<'a>(&'a self, _: &'a Consumer, ids: &'a [&'a str]) -> Answer<'a, Vec<bool>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let says = vec![self.says; ids.len()];
        Box::pin(async move { says })
    }

    fn note<'a>(&'a self, _: &'a Consumer, _: &'a [&'a str]) -> Answer<'a, ()> {
        Box::pin(async {})
    }
}

/// It remembers, and every second and third time it says something else.
#[derive(Debug, Default)]
struct Fickle {
    asked: AtomicU32,
    noted: Mutex<HashSet<String>>,
}

impl Tier for Fickle {
    fn maybe_seen<'a>(&'a self, _: &'a Consumer, ids: &'a [&'a str]) -> Answer<'a, Vec<bool>> {
        let noted = self.noted.lock().unwrap();
        let says = match self.asked.fetch_add(1, Ordering::SeqCst) % 3 {
            0 => vec![true; ids.len()],
            1 => vec![false; ids.len()],
            _ => ids.iter().map(|id| noted.contains(*id)).collect(),
        };
        Box::pin(async move { says })
    }

    fn note<'a>(&'a self, _: &'a Consumer, ids: &'a [&'a str]) -> Answer<'a, ()> {
        self.noted.lock().unwrap().extend(ids.iter().map(|id| (*id).to_owned()));
        Box::pin(async {})
    }
}

/// The gauge that raises the alarm.
#[derive(Debug, Default)]
struct Gauges(Mutex<Option<Arc<std::sync::atomic::AtomicU64>>>);

impl Gauges {
    fn short(&self) -> Option<f64> {
        let gauge = self.0.lock().unwrap();
        gauge.as_ref().map(|bits| f64::from_bits(bits.load(Ordering::SeqCst)))
    }
}

impl metrics::Recorder for Gauges {
    fn describe_counter(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

    fn describe_gauge(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

    fn describe_histogram(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

    fn register_counter(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
        metrics::Counter::noop()
    }

    fn register_gauge(&self, key: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
        if key.name() != "semel_inbox_retention_short" {
            return metrics::Gauge::noop();
        }
        assert!(key.labels().any(|label| (label.key(), label.value()) == ("consumer", CONSUMER)), "{key:?}");
        metrics::Gauge::from_arc(Arc::clone(self.0.lock().unwrap().get_or_insert_default()))
    }

    fn register_histogram(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Histogram {
        metrics::Histogram::noop()
    }
}
