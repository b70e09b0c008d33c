//! Effect and proof are one commit.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use semel::consume::Consumed;
use semel::once::{Error as OnceError, Settings};
use semel::{Error, Store};

use super::harness::Harness;
use super::lab::{Lab, deliver, labels, refused};
use super::message::{Deed, Failure, Kind, Message, id, perform};

/// I6: whatever identifies it.
pub async fn a_message_applies_once_however_often_it_comes<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let mut all = Vec::new();
    for kind in Kind::ALL {
        let messages = [1, 2, 3].map(|n| kind.message(n));
        for message in &messages {
            lab.applies(message).await;
            lab.is_known(message).await;
        }
        for message in messages.iter().rev().chain(&messages) {
            lab.is_known(message).await;
        }
        all.extend(messages);
    }
    lab.applied_once(&all).await;
    assert_eq!(lab.applied().await, labels(&all), "in the order of the effects");
}

/// A duplicate has nothing to hand on: its effect did not run.
pub async fn what_the_effect_returns_is_handed_on_by_the_delivery_that_applied<H: Harness>() {
    let (lab, message, runs) = (Lab::<H>::open().await, id("one"), AtomicU32::new(0));
    let consume = async || {
        let effect = async |tx: &mut <H::Store as Store>::Tx| {
            perform::<H>(tx, &message).await?;
            Ok::<u32, Failure>(41 + runs.fetch_add(1, Ordering::SeqCst))
        };
        lab.semel.consume(&lab.consumer, &message.delivery, effect).await.unwrap()
    };
    assert_eq!(consume().await, Consumed::Applied(41));
    assert_eq!(consume().await, Consumed::Duplicate);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// I4, I6: one commit shows all, and nothing shows before it.
pub async fn effect_proof_and_events_become_visible_together<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let mut all = Vec::new();
    for kind in Kind::ALL {
        let (message, before) = (kind.message(1), labels(&all));
        let effect = async |tx: &mut <H::Store as Store>::Tx| {
            perform::<H>(tx, &message).await?;
            assert_eq!(lab.applied().await, before);
            assert_eq!(lab.count(&message).await, 0);
            Ok::<(), Failure>(())
        };
        lab.semel.consume(&lab.consumer, &message.delivery, effect).await.unwrap();
        all.push(message);
        lab.applied_once(&all).await;
        lab.is_known(&all[all.len() - 1]).await;
    }
    lab.applied_once(&all).await;
}

/// I4, I6: neither effect nor proof nor events, however often it fails, and whether the work or the database refuses.
pub async fn an_effect_that_fails_leaves_no_proof_and_its_retry_applies<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let mut all = Vec::new();
    for kind in Kind::ALL {
        let message = kind.message(1);
        for _ in 0..2 {
            let failed = lab.deliver(&message.that(Deed::Fail)).await;
            assert!(matches!(failed, Err(OnceError::Effect(Failure::Wanted))), "{failed:?}");
            let failed = lab.deliver(&message.that(Deed::Refuse)).await;
            assert!(matches!(failed, Err(OnceError::Effect(Failure::Store(Error::Statement(_))))), "{failed:?}");
            lab.applied_once(&all).await;
        }
        retry_applies(&lab, &message).await;
        all.push(message);
    }
    lab.applied_once(&all).await;
}

/// I6: some databases roll a transaction back after a refused statement, and some only the statement. Either way the
/// proof says what happened.
pub async fn an_effect_that_hides_a_refused_statement_is_applied_whole_or_not_at_all<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for kind in Kind::ALL {
        let message = kind.message(1);
        let before = lab.applied().await.len();
        match lab.deliver(&message.that(Deed::Hide)).await {
            Ok(Consumed::Applied(())) => lab.is_known(&message).await,
            Err(OnceError::Store(_)) => {
                assert_eq!((lab.count(&message).await, lab.applied().await.len()), (0, before));
                lab.applies(&message).await;
            }
            other => panic!("a message that is new is {other:?}"),
        }
        assert_eq!((lab.count(&message).await, lab.applied().await.len()), (1, before + 1));
    }
}

/// I6: the statement is part of the one commit.
pub async fn a_deferred_statement_commits_with_the_proof<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let messages = Kind::ALL.map(|kind| kind.message(1));
    for message in &messages {
        lab.applies(&message.that(Deed::Defer)).await;
        lab.is_known(message).await;
    }
    lab.applied_once(&messages).await;
}

/// I6: a statement that does something else than declared cannot end in *applied*.
pub async fn a_deferred_statement_with_another_row_count_leaves_no_proof<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for kind in Kind::ALL {
        let message = kind.message(1);
        let error = refused(lab.deliver(&message.that(Deed::Misdefer)).await);
        assert!(matches!(error, Error::RowCount(_)), "{error:?}");
        assert_eq!(lab.count(&message).await, 0);
        retry_applies(&lab, &message).await;
    }
    lab.applied_once(&Kind::ALL.map(|kind| kind.message(1))).await;
}

/// I6.
pub async fn a_panic_leaves_no_proof<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for kind in Kind::ALL {
        let message = kind.message(1);
        let (semel, consumer, panics) = (lab.semel.clone(), lab.consumer.clone(), message.that(Deed::Panic));
        let panicked = tokio::spawn(async move { deliver::<H>(&semel, &consumer, &panics).await }).await;
        assert!(panicked.is_err_and(|error| error.is_panic()));
        retry_applies(&lab, &message).await;
    }
    lab.applied_once(&Kind::ALL.map(|kind| kind.message(1))).await;
}

/// I6: a consumer that is stopped in the middle.
pub async fn a_delivery_that_is_dropped_leaves_no_proof<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for kind in Kind::ALL {
        let message = kind.message(1);
        let (reached, mut reaching) = tokio::sync::mpsc::channel::<()>(1);
        let (semel, consumer, dropped) = (lab.semel.clone(), lab.consumer.clone(), message.clone());
        let delivery = tokio::spawn(async move {
            let place = dropped.delivery.clone();
            let effect = async move |tx: &mut <H::Store as Store>::Tx| {
                perform::<H>(tx, &dropped).await?;
                reached.send(()).await.unwrap();
                pending::<Result<(), Failure>>().await
            };
            let _ = semel.consume(&consumer, &place, effect).await;
        });
        reaching.recv().await.unwrap();
        delivery.abort();
        assert!(delivery.await.is_err_and(|error| error.is_cancelled()));
        retry_applies(&lab, &message).await;
    }
    lab.applied_once(&Kind::ALL.map(|kind| kind.message(1))).await;
}

/// I6, I12: an effect that hangs is cut off.
pub async fn a_deadline_leaves_no_proof<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let hasty = lab.with_settings(Settings { deadline: Duration::from_millis(300), ..Settings::default() }).await;
    for kind in Kind::ALL {
        let message = kind.message(1);
        let effect = async |tx: &mut <H::Store as Store>::Tx| {
            perform::<H>(tx, &message).await?;
            pending::<Result<(), Failure>>().await
        };
        let late = hasty.consume(&lab.consumer, &message.delivery, effect).await;
        assert!(matches!(late, Err(OnceError::Store(Error::Deadline))), "{late:?}");
        assert_eq!(lab.count(&message).await, 0);
        retry_applies(&lab, &message).await;
    }
    lab.applied_once(&Kind::ALL.map(|kind| kind.message(1))).await;
}

/// I6: the database goes away after the effect. Whether the message is run again at once or told to have failed, it
/// applies once.
pub async fn a_connection_lost_before_the_commit_leaves_no_proof<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for kind in Kind::ALL {
        let (message, is_cut) = (kind.message(1), AtomicBool::new(false));
        let effect = async |tx: &mut <H::Store as Store>::Tx| {
            perform::<H>(tx, &message).await?;
            if !is_cut.swap(true, Ordering::SeqCst) {
                H::cut(tx).await;
            }
            Ok::<(), Failure>(())
        };
        match lab.semel.consume(&lab.consumer, &message.delivery, effect).await {
            Ok(Consumed::Applied(())) => lab.is_known(&message).await,
            Err(OnceError::Store(_)) => {
                assert_eq!(lab.count(&message).await, 0);
                retry_applies(&lab, &message).await;
            }
            other => panic!("a message that is new is {other:?}"),
        }
    }
    lab.applied_once(&Kind::ALL.map(|kind| kind.message(1))).await;
}

async fn retry_applies<H: Harness>(lab: &Lab<H>, message: &Message) {
    lab.applies(message).await;
    lab.is_known(message).await;
}
