//! Consumers are killed at any moment under load, while some messages fail and are tried again.

use semel::source::Recognition::{self, Id, Sequence};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::counts::rounds;
use semel_testkit::poll::until;

use super::broker::Broker;
use super::load::Load;
use super::process::outcomes;
use super::stage::{AGAIN_AFTER, Applying, Stage};
use crate::relay::dice::Dice;

/// One message in so many fails in two attempts, while others apply.
const FAILS_ONE_IN: usize = 20;

macro_rules! killed_under_load {
    ($($(#[$feature:meta])? $name:ident: $broker:expr, $by:expr;)*) => {
        $(
            $(#[$feature])?
            mod $name {
                use super::*;

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn what_is_applied_is_what_was_emitted_on_postgres() {
                    killed_at_any_moment::<Postgres>($broker, $by).await;
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn what_is_applied_is_what_was_emitted_on_sqlite() {
                    killed_at_any_moment::<Sqlite>($broker, $by).await;
                }
            }
        )*
    };
}

killed_under_load! {
    http_by_id: Broker::http().await, Id;
    http_by_sequence: Broker::http().await, Sequence;
    nats_by_id: Broker::nats().await, Id;
    nats_by_sequence: Broker::nats().await, Sequence;
    rabbitmq_by_id: Broker::rabbitmq().await, Id;
    rabbitmq_by_sequence: Broker::rabbitmq().await, Sequence;
    redis_by_id: Broker::redis().await, Id;
    redis_by_sequence: Broker::redis().await, Sequence;
    #[cfg(feature = "kafka")]
    kafka_by_id: Broker::kafka().await, Id;
    #[cfg(feature = "kafka")]
    kafka_by_sequence: Broker::kafka().await, Sequence;
    #[cfg(feature = "kafka")]
    kafka_by_offset: Broker::kafka().await, Recognition::Offset;
}

async fn killed_at_any_moment<S: Applying>(broker: Broker, by: Recognition) {
    let stage = Stage::<S>::set(broker).await;
    let mut relay = stage.relay().start().await;
    let mut load = Load::failing(&stage.producer, FAILS_ONE_IN);
    let mut dice = Dice::new(5);
    let plan = stage.consumer(by).on_source(stage.broker.source_url_of("one", AGAIN_AFTER));
    let mut consumer = plan.start().await;
    for kill in 0..rounds(3, 200) {
        // One in four before it has applied anything, the others when it is at work.
        if kill % 4 > 0 {
            until("the consumer applies messages", async || outcomes(&consumer, "applied").await > 0.0).await;
        }
        load.grows_by(dice.below(30) as u64).await;
        consumer.kill9().await;
        consumer = plan.start().await;
    }
    until("the consumer tries a message again", async || outcomes(&consumer, "retried").await > 0.0).await;
    load.end().await;
    stage.applied("after all kills").await;

    // Whatever a killed consumer still had comes before these, or with them.
    assert!(consumer.terminate().await.success());
    let mut last = plan.start().await;
    stage.all_behind().await;
    stage.published().await;
    stage.applied("in the end").await;
    assert_eq!(stage.letters().await, [], "nothing failed for good");
    assert!(last.terminate().await.success());
    assert!(relay.terminate().await.success());
}
