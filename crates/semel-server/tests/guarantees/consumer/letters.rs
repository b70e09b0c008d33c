//! A message that cannot be applied is set aside once, with its cause, and a redrive applies it once.

use semel::failpoint::CONSUMER_DEAD_LETTERED;
use semel::letter::{LetterFilter, LetterState};
use semel::operator::Audit;
use semel::source::Recognition::{self, Id, Sequence};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::control::Control;
use semel_testkit::poll::{PATIENCE, until};
use serde_json::json;

use super::broker::Broker;
use super::process::{ATTEMPTS, outcomes};
use super::stage::{Applying, Stage};

const POISON: &str = "poison";

macro_rules! letters {
    ($($(#[$feature:meta])? $name:ident: $broker:expr, $by:expr;)*) => {
        $(
            $(#[$feature])?
            mod $name {
                use super::*;

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn a_poisoned_message_is_set_aside_once_and_redriven_once_on_postgres() {
                    set_aside_and_redriven::<Postgres>($broker, $by).await;
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn a_poisoned_message_is_set_aside_once_and_redriven_once_on_sqlite() {
                    set_aside_and_redriven::<Sqlite>($broker, $by).await;
                }
            }
        )*
    };
}

letters! {
    http: Broker::http().await, Id;
    nats: Broker::nats().await, Sequence;
    rabbitmq: Broker::rabbitmq().await, Id;
    redis: Broker::redis().await, Sequence;
    #[cfg(feature = "kafka")]
    kafka: Broker::kafka().await, Recognition::Offset;
}

async fn set_aside_and_redriven<S: Applying>(broker: Broker, by: Recognition) {
    let stage = Stage::<S>::set(broker).await;
    let directory = tempfile::tempdir().unwrap();
    let mut plan = stage.consumer(by);
    plan.cure = Some(directory.path().join("cure"));
    let mut relay = stage.relay().start().await;
    let mut control = Control::listen().await;
    let mut doomed = plan.clone().armed(CONSUMER_DEAD_LETTERED, 0, &control).start().await;
    let fine = (POISON.to_owned(), json!({}));
    let poisoned = (POISON.to_owned(), json!({ "poison": true }));
    let others: Vec<_> = (0..5).map(|n| (format!("key-{n}"), json!({}))).collect();
    stage.producer.emit(&[fine.clone(), poisoned, fine.clone()]).await;
    stage.producer.emit(&others).await;

    let parked = control.reached(CONSUMER_DEAD_LETTERED, PATIENCE).await;
    doomed.kill9().await;
    drop(parked);
    let mut successor = plan.start().await;
    stage.producer.emit(&[fine]).await;
    until("the key goes on behind the poisoned message", async || numbers(&stage).await == [1, 3, 4]).await;
    if by != Recognition::Offset {
        until("the poisoned message comes again and is known", async || outcomes(&successor, "duplicate").await > 0.0)
            .await;
    }
    let letters = stage.letters().await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    let (state, letter) = (letters[0].state, &letters[0].letter);
    assert_eq!((state, letter.attempts), (LetterState::Dead, ATTEMPTS), "{letters:?}");
    assert_eq!((letter.cause.as_str(), letter.message.ordering_key.as_str()), ("it is poison", POISON));

    // Redriven while it is still poison, it is dead again, with one attempt more.
    let all = LetterFilter { consumer: Some(stage.name.clone()), ..LetterFilter::default() };
    let audit = Audit { actor: "tester".to_owned(), reason: "mended, perhaps".to_owned() };
    assert_eq!(stage.store.redrive_letters(&all, &audit, false).await.unwrap(), 1);
    until("it is dead again", async || {
        let letters = stage.letters().await;
        (letters[0].state, letters[0].letter.attempts) == (LetterState::Dead, ATTEMPTS + 1)
    })
    .await;
    assert_eq!(numbers(&stage).await, [1, 3, 4]);

    let mut other = None;
    if stage.broker.is_shared {
        other = Some(plan.start().await);
    }
    std::fs::write(plan.cure.as_ref().unwrap(), "").unwrap();
    assert_eq!(stage.store.redrive_letters(&all, &audit, false).await.unwrap(), 1);
    until("it is applied", async || stage.letters().await[0].state == LetterState::Applied).await;
    assert_eq!(numbers(&stage).await, [1, 2, 3, 4]);
    // Redriving again finds nothing, and whatever is published behind it applies as ever.
    assert_eq!(stage.store.redrive_letters(&all, &audit, false).await.unwrap(), 0);
    stage.all_behind().await;
    assert_eq!(numbers(&stage).await, [1, 2, 3, 4, 5]);
    assert_eq!(stage.letters().await.len(), 1);
    if let Some(mut other) = other {
        assert!(other.terminate().await.success());
    }
    assert!(successor.terminate().await.success());
    assert!(relay.terminate().await.success());
}

/// The numbers of the key's messages that were applied. After a crash many brokers bring them in another order.
async fn numbers<S: Applying>(stage: &Stage<S>) -> Vec<u64> {
    let effects = stage.store.effects().await;
    let mut numbers: Vec<u64> = effects.iter().filter(|effect| effect.key == POISON).map(|effect| effect.n).collect();
    numbers.sort_unstable();
    numbers
}
