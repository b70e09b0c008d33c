//! A consumer that goes by offsets: its store says where it reads on, and nobody else.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use semel::Source;
use semel::source::{Error, Message, Recognition};
use semel_brokers::kafka::KafkaSource;
use semel_brokers::kafka::source::Receipt;
use semel_brokers::{Resume, Subscription};
use semel_testkit::sources::{receive, settle_all, take};

use crate::cluster::Topic;
use crate::consuming::{numbers, send, transact};

/// Offsets as a consumer's database holds them, by partition.
#[derive(Debug, Default)]
struct Applied {
    next: Mutex<HashMap<(String, i32), i64>>,
    asked: AtomicU32,
    /// How many of the next questions are not answered.
    away: AtomicU32,
}

impl Applied {
    /// Advances by compare-and-set, as an inbox does. `false` if somebody else has.
    fn apply(&self, message: &Message) -> bool {
        let place = message.offset.clone().unwrap();
        let mut next = self.next.lock().unwrap();
        let stored = next.get(&(place.topic.clone(), place.partition)).copied();
        if stored.is_some_and(|stored| stored != place.from) {
            return false;
        }
        next.insert((place.topic, place.partition), place.offset + 1);
        true
    }

    fn forget_after(&self, topic: &Topic, offset: i64) {
        self.next.lock().unwrap().iter_mut().for_each(|((name, _), next)| {
            if *name == topic.name {
                *next = offset;
            }
        });
    }
}

impl Resume for Applied {
    fn next_offset<'a>(
        &'a self,
        source: &'a str,
        topic: &'a str,
        partition: i32,
    ) -> Pin<Box<dyn Future<Output = Result<Option<i64>, semel::Error>> + Send + 'a>> {
        Box::pin(async move {
            assert!(!source.is_empty(), "the cluster has an id");
            self.asked.fetch_add(1, Ordering::Relaxed);
            let left = self.away.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
            if left.is_ok() {
                return Err(semel::Error::Deadline);
            }
            Ok(self.next.lock().unwrap().get(&(topic.to_owned(), partition)).copied())
        })
    }
}

async fn open(topic: &Topic, applied: &Arc<Applied>) -> KafkaSource {
    let resume: Arc<dyn Resume> = Arc::clone(applied) as Arc<dyn Resume>;
    let subscription = Subscription {
        recognition: Recognition::Offset,
        resume: Some(resume),
        ..Subscription::new(format!("{}-offsets", topic.name))
    };
    KafkaSource::open(&format!("{}?topic={}", topic.url, topic.name), &subscription).await.unwrap()
}

fn apply(applied: &Applied, taken: &[(Message, Receipt)]) {
    for (message, _) in taken {
        assert!(applied.apply(message), "{:?} is fenced", message.offset);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_reads_on_where_its_store_says_and_not_where_the_group_does() {
    let topic = Topic::shared(&[]).await;
    send(&topic, "key", 0..10).await;
    let applied = Arc::new(Applied::default());
    let source = open(&topic, &applied).await;
    let taken = take(&source, 10).await;
    // Six are applied and four acknowledged when it dies.
    apply(&applied, &taken[..6]);
    settle_all(&source, &taken[..4]).await;
    drop(source);
    let next = open(&topic, &applied).await;
    let again = take(&next, 4).await;
    assert_eq!(numbers(&again), [6, 7, 8, 9]);
    apply(&applied, &again);
    settle_all(&next, &again).await;
    next.close().await;
    // All is acknowledged, and the database is restored to an older state.
    applied.forget_after(&topic, 3);
    let restored = open(&topic, &applied).await;
    let again = take(&restored, 7).await;
    assert_eq!(numbers(&again), (3..10).collect::<Vec<_>>());
    apply(&applied, &again);
    restored.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_back_is_read_again_from_where_the_store_is() {
    let topic = Topic::shared(&[]).await;
    send(&topic, "key", 0..10).await;
    let applied = Arc::new(Applied::default());
    let source = open(&topic, &applied).await;
    let taken = take(&source, 6).await;
    apply(&applied, &taken[..2]);
    // Another worker applied two more, so the third is fenced and everything goes back.
    apply(&applied, &taken[2..4]);
    assert!(!applied.apply(&taken[2].0));
    source.give_back(&taken[2..].iter().map(|(_, receipt)| receipt).collect::<Vec<_>>()).await.unwrap();
    let again = take(&source, 6).await;
    assert_eq!(numbers(&again), (4..10).collect::<Vec<_>>());
    apply(&applied, &again);
    // What was read before it was given back cannot send the partition back once more.
    source.give_back(&[&taken[5].1]).await.unwrap();
    send(&topic, "key", 10..11).await;
    assert_eq!(numbers(&take(&source, 1).await), [10]);
    source.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_that_aborted_transactions_leave_out_fence_nobody() {
    let topic = Topic::shared(&[]).await;
    let applied = Arc::new(Applied::default());
    for round in 0..3 {
        transact(&topic, &[&format!("aborted {round}")], false).await;
        transact(&topic, &[&format!("one {round}"), &format!("two {round}")], true).await;
    }
    let source = open(&topic, &applied).await;
    let taken = take(&source, 3).await;
    apply(&applied, &taken);
    drop(source);
    let next = open(&topic, &applied).await;
    let rest = take(&next, 3).await;
    apply(&applied, &rest);
    let payloads: Vec<_> = taken.iter().chain(&rest).map(|(message, _)| message.payload.clone()).collect();
    assert_eq!(payloads, ["one 0", "two 0", "one 1", "two 1", "one 2", "two 2"]);
    next.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_store_does_not_say_where_to_read_nothing_is_read() {
    let topic = Topic::shared(&[]).await;
    send(&topic, "key", 0..5).await;
    let applied = Arc::new(Applied::default());
    let source = open(&topic, &applied).await;
    let taken = take(&source, 5).await;
    apply(&applied, &taken[..2]);
    source.close().await;
    applied.away.store(12, Ordering::Release);
    let next = open(&topic, &applied).await;
    let again = take(&next, 3).await;
    assert_eq!(numbers(&again), [2, 3, 4]);
    assert_eq!(applied.away.load(Ordering::Acquire), 0);
    apply(&applied, &again);
    next.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_shorter_than_what_was_applied_is_refused() {
    let topic = Topic::shared(&[]).await;
    send(&topic, "key", 0..5).await;
    let applied = Arc::new(Applied::default());
    let source = open(&topic, &applied).await;
    let taken = take(&source, 5).await;
    apply(&applied, &taken);
    source.close().await;
    applied.forget_after(&topic, 1000);
    let next = open(&topic, &applied).await;
    let error = next.receive(1).await.unwrap_err();
    let reason = std::error::Error::source(&error).unwrap().to_string();
    assert!(matches!(error, Error::Refused(_)) && reason.contains("1000") && reason.contains(&topic.name), "{reason}");
    next.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_move_between_two_members_and_each_record_applies_once() {
    let topic = Topic::shared(&[]).await;
    for key in 0..10 {
        send(&topic, &format!("key-{key}"), key * 100..key * 100 + 100).await;
    }
    let applied = Arc::new(Applied::default());
    let mut effects: HashMap<u64, u32> = HashMap::new();
    let first = open(&topic, &applied).await;
    let held = take(&first, 300).await;
    let second = open(&topic, &applied).await;
    // Members apply what they hold, whether or not the partition is still theirs.
    let mut pending = vec![(0, held), (1, receive(&second, 100).await)];
    while effects.len() < 1000 {
        if let Some((owner, taken)) = pending.pop() {
            let source = [&first, &second][owner];
            for (message, receipt) in &taken {
                let place = message.offset.clone().unwrap();
                let stored = applied.next.lock().unwrap().get(&(place.topic, place.partition)).copied();
                if stored.is_some_and(|stored| place.offset < stored) {
                    source.acknowledge(&[receipt]).await.unwrap();
                } else if applied.apply(message) {
                    *effects.entry(message.sequence.as_ref().unwrap().sequence).or_default() += 1;
                    source.acknowledge(&[receipt]).await.unwrap();
                } else {
                    source.give_back(&[receipt]).await.unwrap();
                }
            }
            continue;
        }
        let taken = tokio::select! {
            taken = receive(&first, 50) => (0, taken),
            taken = receive(&second, 50) => (1, taken),
        };
        pending.push(taken);
    }
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    first.close().await;
    second.close().await;
}
