//! Deliveries that meet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use semel::consume::{Consumed, Fate};
use semel::inbox::{Rule, Sequence};
use semel::once::Error as OnceError;
use semel::{Consumer, Error, Inbox, Next, Semel, Store};
use tokio::sync::{Barrier, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::harness::Harness;
use super::lab::{Delivered, Lab, contiguous, deliver, deliver_all, is_conflict, labels};
use super::message::{Deed, Failure, Kind, Message, id, lane, partition, perform, placed, record, sequence, versioned};
use super::offsets;
use super::shuffle::shuffled;

/// How long a delivery that has to wait is watched while it does.
const WATCHED: Duration = Duration::from_millis(100);

/// I6: over two handles that share nothing but the database.
pub async fn deliveries_of_one_message_that_race_apply_once<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let handles = [lab.semel.clone(), Semel::new(lab.harness.another().await)];
    for kind in Kind::ALL {
        for round in 1..=crate::counts::rounds(8, 80) {
            let (message, start) = (kind.message(round.into()), Arc::new(Barrier::new(8)));
            let mut racers = JoinSet::new();
            for racer in 0..8 {
                let (semel, consumer) = (handles[racer % handles.len()].clone(), lab.consumer.clone());
                let (message, start) = (message.clone(), start.clone());
                racers.spawn(async move {
                    start.wait().await;
                    settled::<H>(&semel, &consumer, &message).await
                });
            }
            let told: Vec<Consumed<()>> = racers.join_all().await.into_iter().map(Result::unwrap).collect();
            let applied = told.iter().filter(|consumed| **consumed == Consumed::Applied(())).count();
            let known = told.iter().filter(|consumed| **consumed == Consumed::Duplicate).count();
            assert_eq!((applied, known), (1, 7), "{told:?} of {message:?}");
            assert_eq!(lab.count(&message).await, 1);
        }
    }
}

/// I6: it is not told to be a duplicate before the first has committed.
pub async fn a_delivery_that_waited_is_a_duplicate_if_the_first_commits<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for message in firsts_and_seconds() {
        let (first, release) = held(&lab, &message).await;
        let second = waiting(&lab, &message).await;
        release.send(true).unwrap();
        assert_eq!(first.await.unwrap().unwrap(), Consumed::Applied(()));
        assert_eq!(second.await.unwrap().unwrap(), Consumed::Duplicate);
        assert_eq!(lab.count(&message).await, 1);
    }
}

/// I6: nothing is lost to a proof that was rolled back.
pub async fn a_delivery_that_waited_applies_if_the_first_fails<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for message in firsts_and_seconds() {
        let (first, release) = held(&lab, &message).await;
        let second = waiting(&lab, &message).await;
        release.send(false).unwrap();
        assert!(matches!(first.await.unwrap(), Err(OnceError::Effect(Failure::Wanted))));
        assert_eq!(second.await.unwrap().unwrap(), Consumed::Applied(()));
        lab.is_known(&message).await;
        assert_eq!(lab.count(&message).await, 1);
    }
}

/// I6: each comes three times, in any order, to any of them.
pub async fn many_messages_over_many_tasks_apply_once_each<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let handles = [lab.semel.clone(), Semel::new(lab.harness.another().await)];
    let many = crate::counts::rounds(30, 500).into();
    let all: Vec<Message> = (1..=many).flat_map(|n| [id(&format!("id-{n}")), sequence(n)]).collect();
    let arriving = shuffled([all.clone(), all.clone(), all.clone()].concat(), 7);
    let mut workers = JoinSet::new();
    for (n, share) in arriving.chunks(arriving.len().div_ceil(6)).enumerate() {
        let (semel, consumer, share) = (handles[n % handles.len()].clone(), lab.consumer.clone(), share.to_vec());
        workers.spawn(async move {
            let mut applied = 0;
            for message in share {
                let consumed = settled::<H>(&semel, &consumer, &message).await.unwrap();
                applied += usize::from(consumed == Consumed::Applied(()));
            }
            applied
        });
    }
    assert_eq!(workers.join_all().await.into_iter().sum::<usize>(), all.len());
    lab.applied_once(&all).await;
    assert_eq!(lab.harness.ranges(&lab.consumer, &lane()).await, contiguous(many));
}

/// I6: each reads what is stored of the lane, adds its own and writes; none may write over another's.
pub async fn workers_on_one_lane_do_not_overwrite_each_other<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let many: u64 = crate::counts::rounds(40, 400).into();
    let mut workers = JoinSet::new();
    for worker in 0..4 {
        let (semel, consumer) = (lab.semel.clone(), lab.consumer.clone());
        let mine: Vec<Message> = (1..=many).filter(|n| n % 4 == worker).map(sequence).collect();
        workers.spawn(async move {
            for batch in shuffled(mine, worker).chunks(3) {
                let told = batch_settled::<H>(&semel, &consumer, batch, H::CONFLICTS).await;
                assert!(told.iter().all(|fate| matches!(fate, Fate::Applied)), "{told:?}");
            }
        });
    }
    workers.join_all().await;
    lab.applied_once(&(1..=many).map(sequence).collect::<Vec<_>>()).await;
    assert_eq!(lab.harness.ranges(&lab.consumer, &lane()).await, contiguous(many));
}

/// I6: as if a partition were given to all of them at once. Who is fenced reads on where it stands.
pub async fn workers_on_one_partition_apply_each_record_once<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let many: u64 = crate::counts::rounds(40, 400).into();
    let mut workers = JoinSet::new();
    for _ in 0..4 {
        let (semel, consumer) = (lab.semel.clone(), lab.consumer.clone());
        workers.spawn(async move {
            let mut at = 0;
            while at < many {
                match settled::<H>(&semel, &consumer, &record(at, at)).await {
                    Ok(_) => at += 1,
                    Err(OnceError::Store(Error::Fenced)) => at = stored::<H>(&semel, &consumer).await,
                    Err(error) => panic!("record {at} is {error:?}"),
                }
            }
        });
    }
    workers.join_all().await;
    lab.applied_once(&(0..many).map(|n| record(n, n)).collect::<Vec<_>>()).await;
    assert_eq!(offsets::next(&lab).await, i64::try_from(many).ok());
}

/// I6: batches take what they share in one order, whatever the order of their messages.
pub async fn batches_that_race_in_any_order_apply_each_message_once<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for round in 0..crate::counts::rounds(3, 30).into() {
        let all = mixed(round);
        let mut workers = JoinSet::new();
        for worker in 0..4 {
            let (semel, consumer) = (lab.semel.clone(), lab.consumer.clone());
            let batch = shuffled(all.clone(), 4 * round + worker);
            workers.spawn(async move {
                let told = batch_settled::<H>(&semel, &consumer, &batch, H::CONFLICTS).await;
                let decided = told.iter().all(|fate| matches!(fate, Fate::Applied | Fate::Duplicate));
                assert!(decided, "{told:?}");
            });
        }
        workers.join_all().await;
        for message in &all {
            assert_eq!(lab.count(message).await, 1, "{message:?}");
        }
    }
}

/// I6: messages that run each by itself are taken in their own order, so that batches may block each other; the one
/// that is rolled back for it is run again.
pub async fn batches_that_race_with_bad_messages_apply_the_others_once<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let good = mixed(0);
    let mut all = good.clone();
    all.insert(0, id("bad").that(Deed::Fail));
    let mut workers = JoinSet::new();
    for worker in 0..3 {
        let (semel, consumer, batch) = (lab.semel.clone(), lab.consumer.clone(), shuffled(all.clone(), worker));
        workers.spawn(async move {
            let told = batch_settled::<H>(&semel, &consumer, &batch, true).await;
            for (fate, message) in told.iter().zip(&batch) {
                assert_eq!(matches!(fate, Fate::Failed(Failure::Wanted)), message.label == "bad", "{told:?}");
            }
        });
    }
    workers.join_all().await;
    lab.applied_once(&good).await;
    lab.applies(&id("bad")).await;
}

/// I6: what comes early is delivered again, and nobody overtakes.
pub async fn changes_to_one_entity_that_race_apply_once_and_in_order<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let all: Vec<Message> = (1..=10).map(|version| versioned("account", version, Rule::Each)).collect();
    let mut workers = JoinSet::new();
    for worker in 0..4 {
        let (semel, consumer) = (lab.semel.clone(), lab.consumer.clone());
        let mut queue: VecDeque<Message> = shuffled(all.clone(), worker).into();
        workers.spawn(async move {
            while let Some(message) = queue.pop_front() {
                match settled::<H>(&semel, &consumer, &message).await.unwrap() {
                    Consumed::Applied(()) | Consumed::Duplicate => {}
                    Consumed::Early => queue.push_back(message),
                    Consumed::Stale => panic!("{message:?} was passed over"),
                }
            }
        });
    }
    workers.join_all().await;
    lab.applied_once(&all).await;
    assert_eq!(lab.applied().await, labels(&all));
}

/// I6: two messages that claim to be the same change, or the same state. The other one is stale.
pub async fn messages_of_one_version_that_race_apply_once<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for (round, rule) in
        (1..=crate::counts::rounds(6, 60)).flat_map(|round| [(round, Rule::Each), (round, Rule::Latest)])
    {
        let (start, mut racers) = (Arc::new(Barrier::new(6)), JoinSet::new());
        for racer in 0..6 {
            let (semel, consumer, start) = (lab.semel.clone(), lab.consumer.clone(), start.clone());
            let message = id(&format!("{rule:?} {round} {racer}"));
            let message = message.with_version(&format!("{rule:?}"), round.into(), rule);
            racers.spawn(async move {
                start.wait().await;
                settled::<H>(&semel, &consumer, &message).await
            });
        }
        let told: Vec<Consumed<()>> = racers.join_all().await.into_iter().map(Result::unwrap).collect();
        let applied = told.iter().filter(|consumed| **consumed == Consumed::Applied(())).count();
        let stale = told.iter().filter(|consumed| **consumed == Consumed::Stale).count();
        assert_eq!((applied, stale), (1, 5), "{told:?} in round {round} by {rule:?}");
    }
    assert_eq!(lab.applied().await.len(), 2 * crate::counts::rounds(6, 60) as usize);
}

/// The first of each kind, of which nothing is stored, and then the second.
fn firsts_and_seconds() -> impl Iterator<Item = Message> {
    [1, 2].into_iter().flat_map(|n| Kind::ALL.map(|kind| kind.message(n)))
}

/// Messages of several kinds and lanes, others in every round.
fn mixed(round: u64) -> Vec<Message> {
    let ids = (0..8).map(|n| id(&format!("{round} {n}")));
    let places =
        (0..12).map(|n: u16| placed(Sequence { lane: n % 3, sequence: 4 * round + u64::from(n / 3) + 1, ..lane() }));
    ids.chain(places).collect()
}

/// A delivery whose effect is done and waits for the word: whether to commit, or to fail.
async fn held<H: Harness>(lab: &Lab<H>, message: &Message) -> (JoinHandle<Delivered>, oneshot::Sender<bool>) {
    let (release, released) = oneshot::channel();
    let (reached, reaching) = oneshot::channel();
    let (semel, consumer, message) = (lab.semel.clone(), lab.consumer.clone(), message.clone());
    let word = std::sync::Mutex::new(Some((reached, released)));
    let first = tokio::spawn(async move {
        let delivery = message.delivery.clone();
        let effect = async move |tx: &mut <H::Store as Store>::Tx| {
            perform::<H>(tx, &message).await?;
            let (reached, released) = word.lock().unwrap().take().unwrap();
            reached.send(()).unwrap();
            if released.await.unwrap() { Ok(()) } else { Err(Failure::Wanted) }
        };
        semel.consume(&consumer, &delivery, effect).await
    });
    reaching.await.unwrap();
    (first, release)
}

/// The same message once more, of which nothing is told while the first is held.
async fn waiting<H: Harness>(lab: &Lab<H>, message: &Message) -> JoinHandle<Delivered> {
    let (semel, consumer, message) = (lab.semel.clone(), lab.consumer.clone(), message.clone());
    let mut second = tokio::spawn(async move { deliver::<H>(&semel, &consumer, &message).await });
    let told = timeout(WATCHED, &mut second).await;
    assert!(told.is_err(), "{told:?} while the first is held");
    second
}

/// Delivers again what ended in a conflict, as a broker does, if the harness says that it may.
async fn settled<H: Harness>(semel: &Semel<H::Store>, consumer: &Consumer, message: &Message) -> Delivered {
    loop {
        match deliver::<H>(semel, consumer, message).await {
            Err(error) if is_conflict::<H, _>(&error) => {}
            told => return told,
        }
    }
}

/// Delivers a batch again for as long as it ends in a conflict, if it may.
async fn batch_settled<H: Harness>(
    semel: &Semel<H::Store>,
    consumer: &Consumer,
    batch: &[Message],
    may_conflict: bool,
) -> Vec<Fate<Failure>> {
    loop {
        match deliver_all::<H>(semel, consumer, batch).await {
            Err(OnceError::Store(error)) if may_conflict && error.next() == Next::RunAgain => {}
            told => return told.unwrap(),
        }
    }
}

async fn stored<H: Harness>(semel: &Semel<H::Store>, consumer: &Consumer) -> u64 {
    let place = partition();
    let next = semel.store().next_offset(consumer, &place.source, &place.topic, place.partition).await.unwrap();
    next.map_or(0, i64::unsigned_abs)
}
