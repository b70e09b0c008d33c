//! Messages that are set aside.

use std::sync::Arc;

use semel::consume::Consumed;
use semel::inbox::{MAX_RANGES, Rule, Sequence};
use semel::letter::{Letter, LetterFilter, LetterRecord, LetterState, MAX_CAUSE_BYTES};
use semel::{Delivery, Error, Inbox, Message as Received};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::harness::Harness;
use super::lab::{Lab, consumer, deliver, is_conflict};
use super::letter::{any, letter, settled};
use super::message::{Kind, Message, id, lane, record, sequence, versioned};

/// I6: proof and letter are one commit, and the broker's copy is no longer needed.
pub async fn a_message_that_is_set_aside_is_kept_whole_and_counts_as_seen<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    for kind in Kind::ALL {
        for n in [1, 2] {
            let message = kind.message(n);
            let kept = lab.set_aside(&message).await;
            let wanted = LetterRecord {
                id: kept.id,
                consumer: "receipts".to_owned(),
                generation: 0,
                state: LetterState::Dead,
                letter: letter(&message),
                dead_at_ms: kept.dead_at_ms,
                changed_at_ms: kept.dead_at_ms,
            };
            let kept = LetterRecord { changed_at_ms: kept.dead_at_ms, ..kept };
            assert_eq!(kept, wanted);
            assert_eq!(store.seen(&lab.consumer, std::slice::from_ref(&message.delivery)).await.unwrap(), [true]);
            lab.is_known(&message).await;
        }
    }
    assert!(lab.applied().await.is_empty());
    // Those of other consumers and generations are their own.
    let later = lab.consumer.clone().in_generation(3);
    assert!(store.dead_letter(&later, &id("id-1").delivery, &letter(&id("id-1"))).await.unwrap());
    assert_eq!(lab.letters(&any()).await.pop().unwrap().generation, 3);
    deliver::<H>(&lab.semel, &consumer("balances"), &id("id-1")).await.unwrap();
    assert_eq!(lab.count(&id("id-1")).await, 1);
}

/// Its effect is committed, or it is set aside already: either way there is nothing to do.
pub async fn a_message_that_was_seen_is_not_set_aside<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    for kind in Kind::ALL {
        let (applied, dead) = (kind.message(1), kind.message(2));
        lab.applies(&applied).await;
        lab.set_aside(&dead).await;
        let letters = lab.letters(&any()).await;
        for message in [applied, dead] {
            assert!(!store.dead_letter(&lab.consumer, &message.delivery, &letter(&message)).await.unwrap());
        }
        assert_eq!(lab.letters(&any()).await, letters);
    }
}

/// I6: over two handles that share nothing but the database.
pub async fn a_message_is_set_aside_once_whoever_races<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let handles = [lab.harness.store().clone(), lab.harness.another().await];
    for kind in Kind::ALL {
        for round in 1..=crate::counts::rounds(5, 50) {
            let (message, start) = (kind.message(round.into()), Arc::new(Barrier::new(4)));
            let mut racers = JoinSet::new();
            for racer in 0..4 {
                let (store, consumer) = (handles[racer % 2].clone(), lab.consumer.clone());
                let (message, start) = (message.clone(), start.clone());
                racers.spawn(async move {
                    start.wait().await;
                    let letter = letter(&message);
                    loop {
                        let told = store.dead_letter(&consumer, &message.delivery, &letter).await;
                        if let Some(first) = settled::<H, _>(told) {
                            return first;
                        }
                    }
                });
            }
            let told = racers.join_all().await;
            assert_eq!(told.iter().filter(|first| **first).count(), 1, "{told:?} of {message:?}");
        }
    }
    let letters = lab.letters(&any()).await;
    assert_eq!(letters.len(), 3 * crate::counts::rounds(5, 50) as usize);
}

/// I6: one worker gives up on a message while another, which got it too, applies it.
pub async fn a_message_is_applied_or_set_aside_and_never_both<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let another = lab.harness.another().await;
    for kind in Kind::ALL {
        for round in 1..=crate::counts::rounds(8, 80) {
            let (message, start) = (kind.message(round.into()), Arc::new(Barrier::new(2)));
            let (semel, consumer, delivered) = (lab.semel.clone(), lab.consumer.clone(), message.clone());
            let began = start.clone();
            let applying = tokio::spawn(async move {
                began.wait().await;
                loop {
                    match deliver::<H>(&semel, &consumer, &delivered).await {
                        Err(error) if is_conflict::<H, _>(&error) => {}
                        told => return told.unwrap(),
                    }
                }
            });
            start.wait().await;
            let letter = letter(&message);
            let dead = loop {
                let told = another.dead_letter(&lab.consumer, &message.delivery, &letter).await;
                if let Some(dead) = settled::<H, _>(told) {
                    break dead;
                }
            };
            let applied = applying.await.unwrap() == Consumed::Applied(());
            assert_ne!(applied, dead, "{message:?}");
            let kept = lab.letters(&any()).await;
            assert_eq!(kept.iter().any(|kept| kept.letter == letter), dead, "{message:?}");
            assert_eq!(lab.count(&message).await, u64::from(applied), "{message:?}");
        }
    }
}

/// Neither one that comes early nor the next nor a stale one moves its entity.
pub async fn a_message_with_a_version_leaves_its_entity_where_it_is<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let each = |version| versioned("account", version, Rule::Each);
    lab.applies(&each(1)).await;
    for version in [3, 2] {
        lab.set_aside(&each(version)).await;
        lab.is_known(&each(version)).await;
    }
    // Another message with the version that was set aside is the next all the same.
    lab.applies(&id("2 again").with_version("account", 2, Rule::Each)).await;
    lab.applies(&id("3 again").with_version("account", 3, Rule::Each)).await;
    lab.set_aside(&id("1 again").with_version("account", 1, Rule::Each)).await;
    lab.set_aside(&versioned("price", 9, Rule::Latest)).await;
    lab.applies(&versioned("price", 4, Rule::Latest)).await;
}

/// A worker that lost its partition would set aside what another reads.
pub async fn a_fenced_worker_sets_nothing_aside<H: Harness>() {
    let lab = Lab::<H>::open().await;
    lab.applies(&record(0, 4)).await;
    let ahead = record(7, 7);
    let told = lab.harness.store().dead_letter(&lab.consumer, &ahead.delivery, &letter(&ahead)).await;
    assert!(matches!(told, Err(Error::Fenced)), "{told:?}");
    assert!(lab.letters(&any()).await.is_empty());
    lab.set_aside(&record(5, 5)).await;
    assert_eq!(super::offsets::next(&lab).await, Some(6));
}

/// I12: it would open one more.
pub async fn a_lane_with_too_many_holes_sets_nothing_aside<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    let last = 2 * MAX_RANGES as u64;
    let every_other: Vec<Delivery> = (1..=last / 2).map(|n| sequence(2 * n).delivery).collect();
    let (tx, _) = store.accept(&lab.consumer, &every_other).await.unwrap();
    store.commit_consumed(tx).await.unwrap();
    let ahead = sequence(last + 2);
    let told = store.dead_letter(&lab.consumer, &ahead.delivery, &letter(&ahead)).await;
    assert!(matches!(told, Err(Error::Ahead { .. })), "{told:?}");
    assert!(lab.letters(&any()).await.is_empty());
    // What closes a hole may be set aside.
    lab.set_aside(&sequence(3)).await;
    lab.set_aside(&ahead).await;
}

/// Nothing that a message is like may keep it from being set aside: it would come for ever.
pub async fn whatever_a_message_is_like_it_is_set_aside<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    let plain = letter(&id("odd")).message;
    let nothing = Received {
        id: String::new(),
        topic: String::new(),
        ordering_key: String::new(),
        message_type: String::new(),
        producer: String::new(),
        content_type: String::new(),
        payload: Vec::new().into(),
        headers: Vec::new(),
        sequence: None,
        offset: None,
    };
    let odd = "a\0b\u{1}c\u{85}d\ne'f\"g\\h\u{feff}i";
    let controls = Received {
        id: odd.to_owned(),
        topic: odd.to_owned(),
        ordering_key: odd.to_owned(),
        message_type: odd.to_owned(),
        producer: odd.to_owned(),
        content_type: odd.to_owned(),
        headers: vec![(odd.to_owned(), odd.to_owned()), (String::new(), "\0".to_owned())],
        ..plain.clone()
    };
    let long = "é".repeat(200_000);
    let lengthy = Received {
        id: long.clone(),
        ordering_key: long.clone(),
        headers: (0..30).map(|n| (format!("h{n}"), long.clone())).collect(),
        payload: (0..1024 * 1024).map(|n| (n % 251) as u8).collect(),
        ..plain.clone()
    };
    let nowhere = Sequence { lane: u16::MAX, sequence: u64::MAX, ..lane() };
    let misplaced = Received { sequence: Some(nowhere), ..plain.clone() };
    for (n, message) in [nothing, controls, lengthy, misplaced].into_iter().enumerate() {
        let odd = Letter { message, cause: format!("{odd} {long}"), attempts: u32::MAX };
        let delivery = Delivery::by_id(format!("sha256:{n}")).unwrap();
        assert!(store.dead_letter(&lab.consumer, &delivery, &odd).await.unwrap());
        let kept = lab.letters(&any()).await.pop().unwrap();
        let (kept, given) = (kept.letter, odd);
        assert_eq!(kept.message.payload, given.message.payload);
        assert!(kept.cause.len() <= MAX_CAUSE_BYTES && kept.cause.len() > MAX_CAUSE_BYTES - 4, "{}", kept.cause.len());
        let texts = |letter: &Letter| {
            let message = &letter.message;
            let texts = [
                &letter.cause,
                &message.id,
                &message.topic,
                &message.ordering_key,
                &message.message_type,
                &message.producer,
                &message.content_type,
            ];
            texts.map(|text| legible(text))
        };
        for (kept, given) in texts(&kept).iter().zip(texts(&given)) {
            assert!(given.starts_with(kept.as_str()), "{kept:?} of {given:?}");
            assert!(kept.len() == given.len() || kept.len() > 900, "{} of {}", kept.len(), given.len());
        }
        // Those that fit are kept, from the first on.
        assert!(kept.message.headers.len() <= given.message.headers.len());
        assert_eq!(kept.message.headers.is_empty(), given.message.headers.is_empty());
        for ((name, value), given) in kept.message.headers.iter().zip(&given.message.headers) {
            assert_eq!((legible(name), legible(value)), (legible(&given.0), legible(&given.1)));
        }
        lab.is_known(&Message::new(delivery, "")).await;
    }
    assert_eq!(lab.letters(&any()).await.len(), 4);
}

/// What an operator asks for, and no more of it at once.
pub async fn letters_are_listed_the_oldest_first_and_by_what_is_asked<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.harness.store();
    let other = consumer("balances");
    for n in 0..4 {
        lab.set_aside(&id(&format!("mine {n}"))).await;
        let theirs = id(&format!("theirs {n}"));
        assert!(store.dead_letter(&other, &theirs.delivery, &letter(&theirs)).await.unwrap());
    }
    let all = lab.letters(&any()).await;
    let ids = |letters: &[LetterRecord]| letters.iter().map(|it| it.letter.message.id.clone()).collect::<Vec<_>>();
    let wanted: Vec<String> = (0..4).flat_map(|n| [format!("mine {n}"), format!("theirs {n}")]).collect();
    assert_eq!(ids(&all), wanted);
    assert!(all.is_sorted_by_key(|letter| letter.id));
    assert_eq!(ids(&store.letters(&any(), 3).await.unwrap()), wanted[..3]);
    assert!(store.letters(&any(), 0).await.unwrap().is_empty());
    let mine = LetterFilter { consumer: Some("receipts".to_owned()), ..any() };
    assert_eq!(ids(&lab.letters(&mine).await), ["mine 0", "mine 1", "mine 2", "mine 3"]);
    let one = LetterFilter { id: Some(all[5].id), ..any() };
    assert_eq!(ids(&lab.letters(&one).await), ["theirs 2"]);
    assert!(lab.letters(&LetterFilter { id: Some(all[5].id), ..mine.clone() }).await.is_empty());
    lab.redrive(all[2].id).await;
    let redriven = LetterFilter { state: Some(LetterState::Redriven), ..any() };
    assert_eq!(ids(&lab.letters(&redriven).await), ["mine 1"]);
    let dead = LetterFilter { state: Some(LetterState::Dead), ..mine };
    assert_eq!(ids(&lab.letters(&dead).await), ["mine 0", "mine 2", "mine 3"]);
    assert!(lab.letters(&LetterFilter { consumer: Some("nobody".to_owned()), ..any() }).await.is_empty());
}

/// What every store keeps of a text, whatever it makes of control characters.
fn legible(text: &str) -> String {
    text.chars().filter(|letter| letter.is_alphanumeric()).collect()
}
