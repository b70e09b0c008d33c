//! Relays are killed at every failpoint, on every sink and both stores, and others carry on.

use std::time::Duration;

use semel::failpoint;
use semel::outbox::{Cursor, LANES, LaneState, PageLimit};
use semel::sink::Lane;
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::collector::{Collector, Lines, NatsStream, RabbitMqQueue, Receiver, RedisStreams, check};
#[cfg(feature = "kafka")]
use semel_testkit::collector::{KafkaTopics, Mode};
use semel_testkit::control::Control;
use semel_testkit::counts::rounds;
use semel_testkit::poll::PATIENCE;

use super::load::Load;
use super::stage::{Counting, Stage};

/// One test per sink and store.
macro_rules! killed {
    ($($(#[$feature:meta])? $sink:ident: $collector:expr;)*) => {
        $(
            $(#[$feature])?
            mod $sink {
                use super::*;

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn every_event_of_postgres_arrives_as_it_was_in_order() {
                    killed_at_every_point::<Postgres>($collector).await;
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn every_event_of_sqlite_arrives_as_it_was_in_order() {
                    killed_at_every_point::<Sqlite>($collector).await;
                }
            }
        )*
    };
}

killed! {
    http: Collector::Http(Receiver::start().await);
    stdout: Collector::Lines(Lines::create());
    nats: Collector::Nats(NatsStream::create().await);
    redis: Collector::Redis(RedisStreams::create());
    rabbitmq: Collector::RabbitMq(Box::new(RabbitMqQueue::create().await));
    #[cfg(feature = "kafka")]
    kafka_idempotent: Collector::Kafka(KafkaTopics::create(Mode::Idempotent).await);
    #[cfg(feature = "kafka")]
    kafka_transactional: Collector::Kafka(KafkaTopics::create(Mode::Transactional).await);
}

async fn killed_at_every_point<S: Counting>(collector: Collector) {
    let stage = Stage::<S>::set(collector).await;
    for _ in 0..rounds(1, 10) {
        for point in failpoint::RELAY {
            if *point != failpoint::RELAY_ROTATING || S::ROTATES {
                killed_at(&stage, point).await;
            }
        }
    }
}

async fn killed_at<S: Counting>(stage: &Stage<S>, point: &str) {
    let before = stage.checked("before").await;
    let mut control = Control::listen().await;
    // Not at the first batch, so that positions have been stored and events have been counted from them.
    let repeats = [failpoint::RELAY_BEFORE_PUBLISH, failpoint::RELAY_PUBLISHED, failpoint::RELAY_NOTING];
    let passed = if repeats.contains(&point) { 5 } else { 0 };
    let mut plan = stage.plan().armed(point, passed, &control);
    if point == failpoint::RELAY_HANDING_OVER {
        // It must not lose its lanes on a busy machine before it hands some over.
        plan.lease_ms *= 4;
    }
    let mut doomed = plan.start().await;
    let mut load = Load::start(&stage.writer);
    let mut other = None;
    if point == failpoint::RELAY_HANDING_OVER {
        stage.divided(&[LANES.into()]).await;
        other = Some(stage.plan().start().await);
    }
    let parked = control.reached(point, PATIENCE).await;
    doomed.kill9().await;
    drop(parked);

    let mut successor = match other {
        Some(other) => other,
        None => stage.plan().start().await,
    };
    let reached = load.written();
    load.reaches(reached + 20).await;
    load.end().await;
    let after = stage.checked(&format!("killed at {point}")).await;
    assert!(after.events > before.events);
    if stage.collector.drops_duplicates() {
        assert_eq!(after.duplicates, 0, "killed at {point}");
    } else if [failpoint::RELAY_PUBLISHED, failpoint::RELAY_NOTING].contains(&point) {
        assert!(after.duplicates > before.duplicates, "what was published and not noted is published again");
    }
    assert!(successor.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_notes_before_it_publishes_is_found_out_on_postgres() {
    noted_before_published::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_notes_before_it_publishes_is_found_out_on_sqlite() {
    noted_before_published::<Sqlite>().await;
}

/// The control: it stores where the lanes stand, and dies before it has published that far.
async fn noted_before_published<S: Counting>() {
    let stage = Stage::<S>::set(Collector::Http(Receiver::start().await)).await;
    stage.writer.write(&["one".to_owned(), "other".to_owned()], false).await;
    let lanes: Vec<Lane> = Lane::all().collect();
    let naive = stage.store.join_relays("naive", Duration::from_secs(60)).await.unwrap().id;
    let states = stage.store.take_lanes(naive, LANES).await.unwrap();
    let limit = PageLimit { events: 10, bytes: 1 << 20 };
    let page = stage.store.page(Cursor::START, &lanes, limit).await.unwrap().unwrap();
    let noted = states.into_iter().map(|state| LaneState { cursor: page.upto, ..state });
    stage.store.leave_lanes(naive, &noted.collect::<Vec<_>>()).await.unwrap();
    stage.store.leave_relays(naive).await.unwrap();

    let mut relay = stage.plan().start().await;
    stage.writer.write(&["one".to_owned()], false).await;
    stage.drained().await;
    let lost = check(&stage.writer.committed(), &stage.collector.arrived().await).unwrap_err();
    assert!(lost.contains("was lost"), "{lost}");
    assert!(relay.terminate().await.success());
}
