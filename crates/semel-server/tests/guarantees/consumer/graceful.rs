//! A consumer that is told to stop.

use std::time::Duration;

use semel::source::Recognition::{self, Id, Sequence};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::counts::rounds;

use super::broker::Broker;
use super::load::Load;
use super::process::outcomes;
use super::stage::{Applying, Stage};

/// What is not given back is not seen again in this test.
const NEVER: Duration = Duration::from_secs(600);

macro_rules! stopped {
    ($($(#[$feature:meta])? $name:ident: $broker:expr, $by:expr;)*) => {
        $(
            $(#[$feature])?
            mod $name {
                use super::*;

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn a_consumer_that_is_stopped_gives_back_what_it_has_on_postgres() {
                    stopped_under_load::<Postgres>($broker, $by).await;
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn a_consumer_that_is_stopped_gives_back_what_it_has_on_sqlite() {
                    stopped_under_load::<Sqlite>($broker, $by).await;
                }
            }
        )*
    };
}

stopped! {
    http: Broker::http().await, Sequence;
    nats: Broker::nats().await, Id;
    rabbitmq: Broker::rabbitmq().await, Sequence;
    redis: Broker::redis().await, Id;
    #[cfg(feature = "kafka")]
    kafka: Broker::kafka().await, Recognition::Offset;
}

async fn stopped_under_load<S: Applying>(broker: Broker, by: Recognition) {
    let stage = Stage::<S>::set(broker).await;
    let plan = stage.consumer(by).on_source(stage.broker.source_url(NEVER));
    let mut relay = stage.relay().start().await;
    // Some fail, so that there is something in hand at every stop.
    let mut load = Load::failing(&stage.producer, 5);
    let mut duplicates = 0.0;
    for _ in 0..rounds(2, 50) {
        let mut consumer = plan.start().await;
        load.grows_by(60).await;
        duplicates += outcomes(&consumer, "duplicate").await;
        assert!(consumer.terminate().await.success());
    }
    load.end().await;
    let mut consumer = plan.start().await;
    stage.applied("in the end").await;
    duplicates += outcomes(&consumer, "duplicate").await;
    assert!(duplicates < 1.0, "what was acknowledged came again, {duplicates} times");
    assert!(consumer.terminate().await.success());
    assert!(relay.terminate().await.success());
}
