//! Consumers are killed at every failpoint, on every broker and both stores, and others carry on.

use semel::failpoint::{self, CONSUMER_ACKNOWLEDGED, CONSUMER_COMMITTED};
use semel::source::Recognition::{self, Id, Sequence};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::control::Control;
use semel_testkit::counts::rounds;
use semel_testkit::poll::{PATIENCE, until};

use super::broker::Broker;
use super::load::Load;
use super::process::{Kind, outcomes};
use super::stage::{Applying, Stage, exactly, lost};

/// One module per broker and kind of proof, with the tests on both stores.
macro_rules! killed {
    ($($(#[$feature:meta])? $name:ident: $broker:expr, $by:expr;)*) => {
        $(
            $(#[$feature])?
            mod $name {
                use super::*;

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn every_message_applies_once_on_postgres() {
                    killed_at_every_point::<Postgres>($broker, $by).await;
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn every_message_applies_once_on_sqlite() {
                    killed_at_every_point::<Sqlite>($broker, $by).await;
                }
            }
        )*
    };
}

killed! {
    http: Broker::http().await, Id;
    nats: Broker::nats().await, Sequence;
    rabbitmq: Broker::rabbitmq().await, Id;
    redis: Broker::redis().await, Sequence;
    #[cfg(feature = "kafka")]
    kafka: Broker::kafka().await, Id;
    #[cfg(feature = "kafka")]
    kafka_by_offset: Broker::kafka().await, Recognition::Offset;
}
async fn killed_at_every_point<S: Applying>(broker: Broker, by: Recognition) {
    let stage = Stage::<S>::set(broker).await;
    let mut relay = stage.relay().start().await;
    for _ in 0..rounds(1, 10) {
        for point in failpoint::CONSUMER {
            killed_at(&stage, by, point).await;
        }
    }
    let mut last = stage.consumer(by).start().await;
    stage.all_behind().await;
    stage.applied("in the end").await;
    assert!(last.terminate().await.success());
    assert!(relay.terminate().await.success());
}

async fn killed_at<S: Applying>(stage: &Stage<S>, by: Recognition, point: &str) {
    let mut control = Control::listen().await;
    // Not the first time, so that proofs have been stored and messages are held against them.
    let mut doomed = stage.consumer(by).armed(point, 3, &control).start().await;
    let mut load = Load::start(&stage.producer);
    let parked = control.reached(point, PATIENCE).await;
    doomed.kill9().await;
    drop(parked);

    let mut successor = stage.consumer(by).start().await;
    load.grows_by(20).await;
    load.end().await;
    stage.applied(&format!("killed at {point}")).await;
    if point == CONSUMER_COMMITTED && by != Recognition::Offset {
        until("what was committed and not acknowledged comes again", async || {
            outcomes(&successor, "duplicate").await > 0.0
        })
        .await;
    }
    assert!(successor.terminate().await.success());
}

/// The controls: the same kills, of consumers that do what many do.
macro_rules! controls {
    ($($(#[$feature:meta])? $test:ident: $broker:expr, $kind:ident, $told:literal;)*) => {
        $(
            $(#[$feature])?
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                for told in [
                    killed_without_inbox::<Postgres>($broker, Kind::$kind).await,
                    killed_without_inbox::<Sqlite>($broker, Kind::$kind).await,
                ] {
                    assert!(told.contains($told), "{told}");
                }
            }
        )*
    };
}

controls! {
    acknowledging_http_first_loses_messages: Broker::http().await, AcknowledgesFirst, "lost";
    acknowledging_nats_first_loses_messages: Broker::nats().await, AcknowledgesFirst, "lost";
    acknowledging_rabbitmq_first_loses_messages: Broker::rabbitmq().await, AcknowledgesFirst, "lost";
    acknowledging_redis_first_loses_messages: Broker::redis().await, AcknowledgesFirst, "lost";
    keeping_no_proof_of_http_applies_twice: Broker::http().await, KeepsNoProof, "doubled";
    keeping_no_proof_of_nats_applies_twice: Broker::nats().await, KeepsNoProof, "doubled";
    keeping_no_proof_of_rabbitmq_applies_twice: Broker::rabbitmq().await, KeepsNoProof, "doubled";
    keeping_no_proof_of_redis_applies_twice: Broker::redis().await, KeepsNoProof, "doubled";
    // What is acknowledged to Kafka is committed there a little later, all at once, so it shows as doubled, too.
    #[cfg(feature = "kafka")]
    keeping_no_proof_of_kafka_applies_twice: Broker::kafka().await, KeepsNoProof, "doubled";
}

/// How often a control is killed: an acknowledgement may be cut off on its way, but not every time.
const KILLS: usize = 3;

/// Kills a consumer that keeps no proof, and says what went wrong.
async fn killed_without_inbox<S: Applying>(broker: Broker, kind: Kind) -> String {
    let stage = Stage::<S>::set(broker).await;
    let mut relay = stage.relay().start().await;
    let plan = stage.consumer(Id).of_kind(kind);
    let point = if kind == Kind::AcknowledgesFirst { CONSUMER_ACKNOWLEDGED } else { CONSUMER_COMMITTED };
    let load = Load::start(&stage.producer);
    for _ in 0..KILLS {
        let mut control = Control::listen().await;
        let mut doomed = plan.clone().armed(point, 3, &control).start().await;
        let parked = control.reached(point, PATIENCE).await;
        doomed.kill9().await;
        drop(parked);
    }
    load.end().await;
    let mut successor = plan.start().await;
    stage.all_behind().await;
    let committed = stage.producer.committed();
    until("no more is missing than one message for each kill", async || {
        lost(&committed, &stage.store.effects().await).len() <= KILLS
    })
    .await;
    if kind == Kind::KeepsNoProof {
        until("what was committed and not acknowledged is applied again", async || {
            exactly(&committed, &stage.store.effects().await).is_err_and(|told| told.contains("doubled"))
        })
        .await;
    }
    stage.all_behind().await;
    assert!(successor.terminate().await.success());
    assert!(relay.terminate().await.success());
    exactly(&stage.producer.committed(), &stage.store.effects().await).err().unwrap_or_default()
}
