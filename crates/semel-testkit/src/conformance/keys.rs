//! A key runs once.

use std::future::pending;
use std::time::Duration;

use semel::once::{Error as OnceError, Settings};
use semel::{Ask, Claim, Error, Fingerprint, Key, Outcome, Reply, Scope, Semel, Store, Tx};
use tokio::sync::Barrier;

use super::harness::{Harness, Lab, reply};

/// I1, I3.
pub async fn a_fresh_key_runs_and_a_retry_replays_byte_for_byte<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let first = lab.charge(&key, 201).await.unwrap();
    assert_eq!(first, Outcome::Fresh(reply(201, &key)));
    for _ in 0..3 {
        assert_eq!(lab.charge(&key, 201).await.unwrap(), Outcome::Replayed(reply(201, &key)));
    }
    assert_eq!(lab.effects(&key).await, 1);
}

/// I1: what was rolled back takes its claim along.
pub async fn a_rolled_back_effect_leaves_the_key_new<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let label = key.clone();
    let failed = lab.semel.once(&lab.scope, &key, &lab.fingerprint, async move |tx| {
        H::insert(tx, label.as_str()).await.unwrap();
        Err::<Reply, &str>("no")
    });
    assert!(matches!(failed.await, Err(OnceError::Effect("no"))));
    assert_eq!(lab.effects(&key).await, 0);
    assert!(matches!(lab.charge(&key, 201).await.unwrap(), Outcome::Fresh(_)));
    assert_eq!(lab.effects(&key).await, 1);
}

/// Dropping a transaction rolls it back, with or without statements in it.
pub async fn a_dropped_transaction_leaves_the_key_new<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let patient = lab.ask(&key).waiting(Duration::from_secs(10));
    for with_statement in [false, true] {
        let Claim::Fresh(mut tx) = lab.semel.claim(&patient).await.unwrap() else { panic!("the key is new") };
        if with_statement {
            H::insert(&mut tx, key.as_str()).await.unwrap();
        }
        drop(tx);
    }
    let Claim::Fresh(tx) = lab.semel.claim(&patient).await.unwrap() else { panic!("the key is new") };
    tx.rollback().await;
    assert_eq!(lab.effects(&key).await, 0);
}

/// A client that goes away in the middle cancels the run and frees its key.
pub async fn a_cancelled_request_leaves_the_key_new<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let (reached, mut reaching) = tokio::sync::mpsc::channel::<()>(1);
    let (semel, scope, fingerprint, label) = (lab.semel.clone(), lab.scope.clone(), lab.fingerprint, key.clone());
    let request = tokio::spawn(async move {
        let run_key = label.clone();
        let _ = semel
            .once(&scope, &run_key, &fingerprint, async move |tx| {
                H::insert(tx, label.as_str()).await?;
                reached.send(()).await.unwrap();
                pending::<Result<Reply, Error>>().await
            })
            .await;
    });
    reaching.recv().await.unwrap();
    request.abort();
    let Claim::Fresh(tx) = lab.semel.claim(&lab.ask(&key).waiting(Duration::from_secs(10))).await.unwrap() else {
        panic!("the cancelled run has freed its key");
    };
    tx.rollback().await;
    assert_eq!(lab.effects(&key).await, 0);
}

/// I2, within one process.
pub async fn racing_runs_of_one_key_make_one_effect<H: Harness>() {
    let lab = Lab::<H>::open().await;
    race(&lab, vec![lab.semel.clone()]).await;
}

/// I2, over two handles that share nothing but the database.
pub async fn racing_runs_over_two_handles_make_one_effect<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let other = Semel::new(lab.harness.another().await);
    race(&lab, vec![lab.semel.clone(), other]).await;
}

async fn race<H: Harness>(lab: &Lab<H>, handles: Vec<Semel<H::Store>>) {
    for _ in 0..crate::counts::rounds(20, 200) {
        let key = Key::random();
        let start = std::sync::Arc::new(Barrier::new(8));
        let mut racers = tokio::task::JoinSet::new();
        for racer in 0..8 {
            let (semel, start) = (handles[racer % handles.len()].clone(), start.clone());
            let (scope, fingerprint, key) = (lab.scope.clone(), lab.fingerprint, key.clone());
            racers.spawn(async move {
                start.wait().await;
                let label = key.clone();
                semel
                    .once(&scope, &key, &fingerprint, async move |tx| {
                        H::insert(tx, label.as_str()).await?;
                        Ok::<Reply, Error>(reply(201, &label))
                    })
                    .await
            });
        }
        let mut fresh = 0;
        for outcome in racers.join_all().await {
            match outcome {
                Ok(Outcome::Fresh(_)) => fresh += 1,
                Ok(Outcome::Replayed(replayed)) => assert_eq!(replayed, reply(201, &key)),
                Err(OnceError::InFlight { .. }) => {}
                other => panic!("a racer got {other:?}"),
            }
        }
        assert_eq!(fresh, 1, "one racer runs");
        assert_eq!(lab.effects(&key).await, 1);
    }
}

/// A key in flight is told at once, while its run goes on.
pub async fn an_in_flight_key_answers_at_once<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let Claim::Fresh(mut tx) = lab.semel.claim(&lab.ask(&key)).await.unwrap() else { panic!("the key is new") };
    H::insert(&mut tx, key.as_str()).await.unwrap();
    for _ in 0..3 {
        assert!(matches!(lab.charge(&key, 201).await, Err(OnceError::InFlight { .. })));
    }
    lab.semel.finish(&lab.ask(&key), tx, &reply(201, &key)).await.unwrap();
    assert!(matches!(lab.charge(&key, 201).await.unwrap(), Outcome::Replayed(_)));
    assert_eq!(lab.effects(&key).await, 1);
}

/// A claim that is held does not hold up other keys. (A statement on SQLite does hold the only writer; a claim does
/// not.)
pub async fn a_run_held_open_does_not_hold_up_other_keys<H: Harness>() {
    let (lab, held) = (Lab::<H>::open().await, Key::random());
    let Claim::Fresh(tx) = lab.semel.claim(&lab.ask(&held)).await.unwrap() else { panic!("the key is new") };
    for _ in 0..15 {
        let key = Key::random();
        assert!(matches!(lab.charge(&key, 201).await.unwrap(), Outcome::Fresh(_)));
    }
    tx.rollback().await;
}

/// A reused key changes nothing.
pub async fn another_fingerprint_is_a_mismatch_and_the_record_stays<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    lab.charge(&key, 201).await.unwrap();
    let label = key.clone();
    let other = Fingerprint::of_bytes(b"another request");
    let reused = lab.semel.once(&lab.scope, &key, &other, async move |tx| {
        H::insert(tx, label.as_str()).await?;
        Ok::<Reply, Error>(reply(200, &label))
    });
    assert!(matches!(reused.await, Err(OnceError::Mismatch)));
    assert_eq!(lab.charge(&key, 201).await.unwrap(), Outcome::Replayed(reply(201, &key)));
    assert_eq!(lab.effects(&key).await, 1);
}

/// I11: same key, other tenant or other operation.
pub async fn two_scopes_never_meet<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let Claim::Fresh(held) = lab.semel.claim(&lab.ask(&key)).await.unwrap() else { panic!("the key is new") };
    for (tenant, operation) in [("other", "charge"), ("tenant", "refund"), ("tenantc", "harge")] {
        let scope = Scope::new(tenant, operation).unwrap();
        let label = key.clone();
        let run = lab.semel.once(&scope, &key, &lab.fingerprint, async move |tx| {
            H::insert(tx, label.as_str()).await?;
            Ok::<Reply, Error>(reply(201, &label))
        });
        assert!(matches!(run.await.unwrap(), Outcome::Fresh(_)), "{scope:?} is blocked by another scope");
    }
    held.rollback().await;
    assert!(matches!(lab.charge(&key, 201).await.unwrap(), Outcome::Fresh(_)));
    assert_eq!(lab.effects(&key).await, 4);
}

/// An expired key counts as new, whether or not it was reaped.
pub async fn an_expired_key_runs_as_new_with_a_new_execution<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    lab.charge(&key, 201).await.unwrap();
    let first = lab.semel.store().show_key(&lab.scope, &key).await.unwrap().unwrap();
    lab.harness.age(Duration::from_secs(25 * 60 * 60)).await;
    let other = Fingerprint::of_bytes(b"another request");
    let label = key.clone();
    let run = lab.semel.once(&lab.scope, &key, &other, async move |tx| {
        H::insert(tx, label.as_str()).await?;
        Ok::<Reply, Error>(reply(200, &label))
    });
    assert_eq!(run.await.unwrap(), Outcome::Fresh(reply(200, &key)));
    let second = lab.semel.store().show_key(&lab.scope, &key).await.unwrap().unwrap();
    assert_ne!(first.execution, second.execution);
    assert_eq!(lab.effects(&key).await, 2);
    let ask = Ask::new(&lab.scope, &key, &other);
    assert!(matches!(lab.semel.claim(&ask).await.unwrap(), Claim::Replay(_)));
}

/// The fingerprint is never the key.
pub async fn the_same_body_under_two_keys_makes_two_effects<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for _ in 0..2 {
        let (label, key) = ("two coffees".to_owned(), Key::random());
        let run = lab.semel.once(&lab.scope, &key, &lab.fingerprint, async move |tx| {
            H::insert(tx, &label).await?;
            Ok::<Reply, Error>(Reply::new(201, "").unwrap())
        });
        assert!(matches!(run.await.unwrap(), Outcome::Fresh(_)));
    }
    assert_eq!(lab.harness.count("two coffees").await, 2);
}

/// A deferred statement is part of the one commit.
pub async fn a_deferred_statement_commits_with_the_reply<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    assert!(matches!(deferred(&lab, &key, 1, 201).await.unwrap(), Outcome::Fresh(_)));
    assert_eq!(lab.effects(&key).await, 1);
    assert!(matches!(deferred(&lab, &key, 1, 201).await.unwrap(), Outcome::Replayed(_)));
    assert_eq!(lab.effects(&key).await, 1);
    // A refused run stores its reply and drops the statement.
    let refused = Key::random();
    assert!(matches!(deferred(&lab, &refused, 1, 402).await.unwrap(), Outcome::Fresh(_)));
    assert_eq!(lab.effects(&refused).await, 0);
}

/// A deferred statement that does something else than declared cannot end in a stored success.
pub async fn a_deferred_statement_with_another_row_count_rolls_all_back<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let failed = deferred(&lab, &key, 2, 201).await;
    assert!(matches!(failed, Err(OnceError::Store(Error::RowCount(_)))), "{failed:?}");
    assert_eq!(lab.effects(&key).await, 0);
    assert!(matches!(deferred(&lab, &key, 1, 201).await.unwrap(), Outcome::Fresh(_)));
}

async fn deferred<H: Harness>(lab: &Lab<H>, key: &Key, rows: u32, status: u16) -> Result<Outcome, OnceError<Error>> {
    let label = key.clone();
    lab.semel
        .once(&lab.scope, key, &lab.fingerprint, async move |tx| {
            H::defer(tx, label.as_str(), rows);
            Ok(reply(status, &label))
        })
        .await
}

/// Work that hangs is cut off.
pub async fn work_past_its_deadline_is_rolled_back_and_the_key_stays_new<H: Harness>() {
    let settings = Settings { deadline: Duration::from_millis(200), ..Settings::default() };
    let (lab, key) = (Lab::<H>::open_with(settings).await, Key::random());
    let label = key.clone();
    let hung = lab.semel.once(&lab.scope, &key, &lab.fingerprint, async move |tx| {
        H::insert(tx, label.as_str()).await?;
        pending::<Result<Reply, Error>>().await
    });
    assert!(matches!(hung.await, Err(OnceError::Store(Error::Deadline))));
    assert_eq!(lab.effects(&key).await, 0);
    assert!(matches!(lab.charge(&key, 201).await.unwrap(), Outcome::Fresh(_)));
}

/// I12: the bounds of Rust and of the database agree.
pub async fn the_longest_names_fit<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let scope = Scope::new("é".repeat(127), "o".repeat(255)).unwrap();
    let key = Key::new("~".repeat(255)).unwrap();
    let headers = "v".repeat(semel::reply::MAX_HEADER_BYTES - "name: \r\n".len());
    let large = Reply::new(599, vec![255; 900 * 1024]).unwrap().header("name", headers).unwrap().terminal();
    let expected = large.clone();
    let run = lab.semel.once(&scope, &key, &lab.fingerprint, async move |tx| {
        H::insert(tx, "long").await?;
        Ok::<Reply, Error>(large.clone())
    });
    assert!(matches!(run.await.unwrap(), Outcome::Fresh(_)));
    let Claim::Replay(recorded) = lab.semel.claim(&Ask::new(&scope, &key, &lab.fingerprint)).await.unwrap() else {
        panic!("the key has run");
    };
    assert_eq!((recorded.reply.status(), recorded.reply.body()), (599, expected.body()));
    assert_eq!(recorded.reply.header_lines(), expected.header_lines());
}
