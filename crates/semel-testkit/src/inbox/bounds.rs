//! Every name, number and batch has a limit, in Rust and in the database (I12).

use semel::inbox::{Identity, MAX_BATCH, MAX_ID_BYTES, Offset, Rule, Sequence, Version};
use semel::{Consumer, Delivery, Next};

use super::harness::Harness;
use super::lab::{Lab, consumer, deliver, deliver_all, fates, refused};
use super::message::{Deed, Message, id, lane, partition, placed, recorded, sequence};

/// Names that nothing may have: empty, too long, or with control characters.
const BAD_NAMES: [fn() -> String; 4] =
    [String::new, || "x".repeat(256), || "line\nbreak".to_owned(), || "nul\0".to_owned()];

/// The constructors say so.
pub async fn names_and_numbers_out_of_bounds_are_refused_by_rust<H: Harness>() {
    for bad in BAD_NAMES {
        assert!(Consumer::new(bad()).is_err());
    }
    for forged in forged() {
        assert!(rebuilt(forged.clone()).is_err(), "{forged:?}");
    }
    for (from, offset) in [(-1, 0), (0, -1), (5, 4)] {
        assert!(Delivery::by_offset(Offset { from, offset, ..partition() }).is_err(), "{offset} from {from}");
    }
    assert!(rebuilt(sequence(1).delivery).is_ok());
}

/// Whoever goes around the constructors applies nothing, alone or in a batch.
pub async fn names_and_numbers_out_of_bounds_are_refused_by_the_database<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for (n, forged) in forged().into_iter().enumerate() {
        let message = Message::new(forged, format!("forged {n}"));
        let alone = refused(lab.deliver(&message).await);
        assert_eq!(alone.next(), Next::Stop, "{alone:?} for {message:?}");
        let batch = [id(&format!("before {n}")), message.clone(), id(&format!("after {n}"))];
        let together = refused(deliver_all::<H>(&lab.semel, &lab.consumer, &batch).await);
        assert_eq!(together.next(), Next::Stop, "{together:?} for {message:?}");
    }
    assert_eq!(lab.applied().await, Vec::<String>::new());
    lab.applies(&sequence(1)).await;
}

/// The bounds of Rust and of the database agree.
pub async fn the_longest_names_fit<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (long, wide) = ("x".repeat(MAX_ID_BYTES), "é".repeat(MAX_ID_BYTES / 2));
    let place = Sequence { incarnation: long.clone(), topic: wide.clone(), lane: i16::MAX.unsigned_abs(), ..lane() };
    let offset = Offset { source: wide.clone(), topic: long.clone(), partition: i32::MAX, ..partition() };
    let version = Version { entity: long.clone(), version: i64::MAX.unsigned_abs(), rule: Rule::Latest };
    for consumer in [&long, &wide].map(|name| consumer(name).in_generation(u32::MAX)) {
        for (n, message) in [id(&long), id(&wide), placed(place.clone()), recorded(offset.clone())].iter().enumerate() {
            let delivery = match n {
                0 => message.delivery.clone().with_version(version.clone()).unwrap(),
                _ => message.delivery.clone(),
            };
            let message = Message::new(delivery, format!("{n}"));
            deliver::<H>(&lab.semel, &consumer, &message).await.unwrap();
            lab.is_known_to(&consumer, &message).await;
        }
    }
    for n in 0..4 {
        assert_eq!(lab.harness.count(&n.to_string()).await, 2);
    }
}

/// One more is refused as a whole.
pub async fn as_many_messages_as_are_allowed_fit_and_not_one_more<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let most = MAX_BATCH as u64;
    let ids: Vec<Message> = (0..=most).map(|n| id(&format!("id-{n}")).that(Deed::Nothing)).collect();
    let places: Vec<Message> = (1..=most + 1).map(|n| sequence(n).that(Deed::Nothing)).collect();
    for messages in [ids, places] {
        let error = refused(deliver_all::<H>(&lab.semel, &lab.consumer, &messages).await);
        assert_eq!(error.next(), Next::Stop, "{error:?}");
        let told = lab.deliver_all(&messages[1..]).await;
        assert!(fates(&told).iter().all(|fate| *fate == "applied"));
        lab.applies(&messages[0]).await;
        lab.is_known(&messages[1]).await;
    }
}

/// Messages that no constructor makes, of which a row would be kept.
fn forged() -> Vec<Delivery> {
    let delivery = |identity| Delivery { identity, version: None, order: None };
    let place = |sequence| delivery(Identity::Sequence(sequence));
    let record = |offset| delivery(Identity::Offset(offset));
    let version = |entity: String, version| Delivery {
        version: Some(Version { entity, version, rule: Rule::Latest }),
        ..id("good").delivery
    };
    let mut forged = vec![
        place(Sequence { sequence: 0, ..lane() }),
        place(Sequence { sequence: i64::MAX.unsigned_abs(), ..lane() }),
        place(Sequence { sequence: u64::MAX, ..lane() }),
        place(Sequence { lane: u16::MAX, ..lane() }),
        record(Offset { partition: -1, ..partition() }),
        record(Offset { offset: i64::MAX, ..partition() }),
        version("account".to_owned(), 0),
        version("account".to_owned(), u64::MAX),
    ];
    for bad in BAD_NAMES {
        forged.push(delivery(Identity::Id(bad())));
        forged.push(place(Sequence { incarnation: bad(), ..lane() }));
        forged.push(place(Sequence { topic: bad(), ..lane() }));
        forged.push(record(Offset { source: bad(), ..partition() }));
        forged.push(record(Offset { topic: bad(), ..partition() }));
        forged.push(version(bad(), 1));
    }
    forged
}

/// What the constructors say to it.
fn rebuilt(delivery: Delivery) -> Result<Delivery, semel::inbox::Invalid> {
    let built = match delivery.identity {
        Identity::Id(id) => Delivery::by_id(id)?,
        Identity::Sequence(sequence) => Delivery::by_sequence(sequence)?,
        Identity::Offset(offset) => Delivery::by_offset(offset)?,
        other => panic!("{other:?} has no constructor"),
    };
    match delivery.version {
        Some(version) => built.with_version(version),
        None => Ok(built),
    }
}
