//! Kafka transactions: a consumer of committed records sees each event once, whatever is killed.

use semel_postgres::Postgres;
use semel_testkit::collector::{Collector, KafkaTopics, Mode};
use semel_testkit::counts::rounds;
use semel_testkit::poll::until;

use super::dice::Dice;
use super::load::Load;
use super::process::metric;
use super::stage::Stage;

const PUBLISHED: &str = "semel_publish_attempts_total{outcome=\"published\"}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_killed_at_any_moment_leave_a_reader_of_committed_records_no_duplicate() {
    let collector = Collector::Kafka(KafkaTopics::create(Mode::Transactional).await);
    let stage = Stage::<Postgres>::set(collector).await;
    let mut load = Load::start(&stage.writer);
    let mut dice = Dice::new(3);
    let mut relay = stage.plan().start().await;
    for kill in 0..rounds(6, 200) {
        // One in four while it takes its lanes, the others when it has begun to publish.
        if kill % 4 > 0 {
            until("the relay publishes", async || metric(&relay, PUBLISHED).await > 0.0).await;
        }
        let reached = load.written();
        load.reaches(reached + dice.below(30) as u64).await;
        relay.kill9().await;
        relay = stage.plan().start().await;
    }
    load.end().await;
    let tally = stage.checked("in the end").await;
    assert_eq!(tally.duplicates, 0, "{tally:?}");
    assert!(relay.terminate().await.success());
}
