//! What a member of a group is given, and where the group reads on.

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use semel::Source;
use semel::source::{Message, Redelivery};
use semel_brokers::kafka::KafkaSource;
use semel_brokers::kafka::source::Receipt;
use semel_brokers::{Error, Subscription};
use semel_testkit::kafka as server;
use semel_testkit::poll::{PATIENCE, until_none_left};
use semel_testkit::sources::{receive, settle_all, take};

use crate::cluster::{Topic, publish};
use crate::source::open;

pub(crate) async fn send(topic: &Topic, key: &str, numbers: std::ops::Range<u64>) {
    let sink = topic.sink("").await;
    let events: Vec<_> = numbers.map(|n| topic.event(key, n, n.to_string().into_bytes())).collect();
    let results = publish(&sink, &events, 0).await;
    assert!(results.iter().all(|result| result == "ok"), "{results:?}");
}

/// Writes records to partition 0 in one transaction, which is committed or aborted: each leaves a control record.
pub(crate) async fn transact(topic: &Topic, payloads: &[&str], is_committed: bool) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", topic.url.trim_start_matches("kafka://").trim_end_matches('/'));
    config.set("transactional.id", format!("{}-{}", topic.name, payloads[0]));
    let producer: FutureProducer = config.create().unwrap();
    let (name, payloads) = (topic.name.clone(), payloads.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
    let transacting = tokio::task::spawn_blocking(move || {
        producer.init_transactions(PATIENCE).unwrap();
        producer.begin_transaction().unwrap();
        for payload in &payloads {
            drop(producer.send_result(FutureRecord::to(&name).partition(0).key("k").payload(payload)).unwrap());
        }
        producer.flush(PATIENCE).unwrap();
        match is_committed {
            true => producer.commit_transaction(PATIENCE).unwrap(),
            false => producer.abort_transaction(PATIENCE).unwrap(),
        }
    });
    transacting.await.unwrap();
}

pub(crate) fn numbers(taken: &[(Message, Receipt)]) -> Vec<u64> {
    taken.iter().map(|(message, _)| message.sequence.as_ref().unwrap().sequence).collect()
}

fn payloads(taken: &[(Message, Receipt)]) -> Vec<String> {
    taken.iter().map(|(message, _)| String::from_utf8(message.payload.to_vec()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_acknowledgements_out_of_order_the_group_reads_on_at_the_first_open_record() {
    let topic = Topic::shared(&[]).await;
    send(&topic, "key", 0..10).await;
    let source = open(&topic, "unordered", 0).await;
    let mut taken = take(&source, 10).await;
    assert_eq!(numbers(&taken), (0..10).collect::<Vec<_>>());
    let open_record = taken.remove(3);
    taken.reverse();
    settle_all(&source, &taken).await;
    source.close().await;
    drop(open_record);
    let next = open(&topic, "unordered", 0).await;
    let again = take(&next, 7).await;
    assert_eq!(numbers(&again), (3..10).collect::<Vec<_>>());
    settle_all(&next, &again).await;
    next.close().await;
    send(&topic, "key", 10..11).await;
    let last = open(&topic, "unordered", 0).await;
    assert_eq!(numbers(&take(&last, 1).await), [10]);
    last.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_back_comes_again_and_what_is_in_hand_does_not() {
    let topic = Topic::shared(&[]).await;
    send(&topic, "key", 0..10).await;
    let source = open(&topic, "giving", 0).await;
    let taken = take(&source, 10).await;
    source.give_back(&[&taken[4].1, &taken[2].1]).await.unwrap();
    send(&topic, "key", 10..12).await;
    let again = take(&source, 4).await;
    assert_eq!(numbers(&again), [2, 4, 10, 11]);
    settle_all(&source, &taken).await;
    settle_all(&source, &again).await;
    source.close().await;
    send(&topic, "key", 12..13).await;
    let next = open(&topic, "giving", 0).await;
    assert_eq!(numbers(&take(&next, 1).await), [12]);
    next.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_transactions_are_not_seen_and_stop_nobody() {
    let topic = Topic::shared(&[]).await;
    for round in 0..3 {
        let [a, b, c] = ["a", "b", "c"].map(|name| format!("{name}{round}"));
        transact(&topic, &[&a, &b], false).await;
        transact(&topic, &[&c], true).await;
    }
    transact(&topic, &["last, and aborted"], false).await;
    let source = open(&topic, "aborted", 0).await;
    let taken = take(&source, 3).await;
    assert_eq!(payloads(&taken), ["c0", "c1", "c2"]);
    // Where each read on covers what lies between.
    let places: Vec<_> = taken.iter().map(|(message, _)| message.offset.clone().unwrap()).collect();
    assert_eq!(places[1].from, places[0].offset + 1);
    assert!(places[1].offset > places[1].from);
    // The place, and the timestamp.
    let (place, stored_ms) = taken[0].0.id.rsplit_once('/').unwrap();
    assert_eq!(place, format!("{}/0/{}", topic.name, places[0].offset));
    assert!(stored_ms.parse::<i64>().unwrap() > 1_700_000_000_000, "{stored_ms}");
    settle_all(&source, &taken).await;
    source.close().await;
    transact(&topic, &["d"], true).await;
    let next = open(&topic, "aborted", 0).await;
    assert_eq!(payloads(&take(&next, 1).await), ["d"]);
    next.close().await;
}

async fn settle(source: &KafkaSource, taken: &[(Message, Receipt)], applied: &mut BTreeSet<u64>) {
    settle_all(source, taken).await;
    applied.extend(numbers(taken));
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_move_between_two_members_and_nothing_is_lost() {
    let topic = Topic::shared(&[]).await;
    for key in 0..20 {
        send(&topic, &format!("key-{key}"), key * 50..key * 50 + 50).await;
    }
    let first = open(&topic, "moving", 0).await;
    let mut held = take(&first, 400).await;
    let mut applied: BTreeSet<u64> = BTreeSet::new();
    settle(&first, &held[..100], &mut applied).await;
    let held = held.split_off(100);
    let second = open(&topic, "moving", 0).await;
    // The second one has partitions by now, and the first one still works on what it was given of them.
    let moved = receive(&second, 100).await;
    settle(&first, &held, &mut applied).await;
    settle(&second, &moved, &mut applied).await;
    let group = topic.group("moving");
    // What went to the other one while it was in hand comes again there: only the group knows when all is done.
    until_none_left("the group has read everything", async || {
        let receiving = tokio::time::timeout(Duration::from_millis(50), async {
            tokio::select! {
                taken = receive(&first, 50) => (&first, taken),
                taken = receive(&second, 50) => (&second, taken),
            }
        });
        if let Ok((source, taken)) = receiving.await {
            settle(source, &taken, &mut applied).await;
        }
        topic.unread_by(&group)
    })
    .await;
    assert_eq!(applied, (0..1000).collect());
    first.close().await;
    second.close().await;
    send(&topic, "key-3", 1000..1001).await;
    let last = open(&topic, "moving", 0).await;
    let rest = take(&last, 1).await;
    assert_eq!(numbers(&rest), [1000], "all before it is committed");
    last.close().await;
}

/// A member that is busy for long must not be thrown out, nor hold up the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_receives_nothing_serves_its_group_all_the_same() {
    let topic = Topic::shared(&[]).await;
    let sink = topic.sink("").await;
    let events: Vec<_> = (0..6000).map(|n| topic.event(&format!("key-{}", n % 40), n, vec![])).collect();
    assert!(publish(&sink, &events, 0).await.iter().all(|result| result == "ok"));
    let busy = open(&topic, "busy", 0).await;
    // It has partitions, and by far too little room for what is in them.
    let held = take(&busy, 1).await;
    let other = open(&topic, "busy", 0).await;
    let mut seen: BTreeSet<u64> = numbers(&held).into_iter().collect();
    let shared = receive(&other, 100).await;
    settle(&other, &shared, &mut seen).await;
    settle_all(&busy, &held).await;
    while seen.len() < 6000 {
        tokio::select! {
            taken = receive(&busy, 500) => settle(&busy, &taken, &mut seen).await,
            taken = receive(&other, 500) => settle(&other, &taken, &mut seen).await,
        }
    }
    busy.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_instance_that_was_killed_gets_its_partitions_back_at_once() {
    let topic = Topic::shared(&[]).await;
    send(&topic, "key", 0..3).await;
    let subscription = Subscription::new(format!("{}-named", topic.name));
    // Longer than anything here may take, so that nobody waits for the group to notice.
    let url = format!("{}?topic={}&instance=one&session_timeout_ms=300000", topic.url, topic.name);
    let first = KafkaSource::open(&url, &subscription).await.unwrap();
    let taken = take(&first, 3).await;
    settle_all(&first, &taken[..1]).await;
    // With a name, a member does not tell the group that it leaves: to the group it was killed.
    first.close().await;
    let second = KafkaSource::open(&url, &subscription).await.unwrap();
    assert_eq!(numbers(&take(&second, 2).await), [1, 2]);
    second.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_kept_for_ever_is_told_unless_the_url_says_otherwise() {
    let day = Duration::from_secs(24 * 60 * 60);
    for settings in [[("retention.ms", "-1")], [("cleanup.policy", "compact")]] {
        let topic = Topic::shared(&settings).await;
        let source = open(&topic, "kept", 0).await;
        let told = source.redelivery().await.unwrap();
        assert!(
            matches!(&told, Redelivery::Unlimited { because } if because.contains(settings[0].0)),
            "{told:?} for {settings:?}"
        );
        source.close().await;
        let url = format!("{}?topic={}&redelivery=4d", topic.url, topic.name);
        let source = KafkaSource::open(&url, &Subscription::new(format!("{}-said", topic.name))).await.unwrap();
        match source.redelivery().await.unwrap() {
            Redelivery::Within { longest, because } => {
                assert_eq!(longest, 4 * day);
                assert!(because.contains("redelivery=4days") && because.contains(settings[0].0), "{because}");
            }
            told => panic!("{told:?}"),
        }
        source.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_topic_that_is_kept_longest_decides() {
    let short = Topic::shared(&[("retention.ms", "1000"), ("segment.ms", "1000")]).await;
    let long = Topic::shared(&[("retention.ms", "7200000"), ("segment.ms", "1000")]).await;
    let url = format!("{}?topic={}&topic={}", short.url, short.name, long.name);
    let source = KafkaSource::open(&url, &Subscription::new(format!("{}-two", short.name))).await.unwrap();
    let Redelivery::Within { because, .. } = source.redelivery().await.unwrap() else { panic!("it has an end") };
    assert!(because.contains(&long.name) && because.contains("retention.ms 2h"), "{because}");
    // Both are read.
    send(&short, "key", 0..1).await;
    send(&long, "key", 1..2).await;
    let mut seen = numbers(&take(&source, 2).await);
    seen.sort_unstable();
    assert_eq!(seen, [0, 1]);
    source.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_that_is_dropped_at_any_moment_keeps_what_it_could_have_returned() {
    let topic = Topic::shared(&[]).await;
    send(&topic, "key", 0..200).await;
    let source = open(&topic, "dropped", 0).await;
    let mut taken = Vec::new();
    let mut broken_off = 0_u32;
    while taken.len() < 200 {
        let patience = Duration::from_micros(100 << (broken_off % 13));
        match tokio::time::timeout(patience, source.receive(7)).await {
            Ok(received) => taken.extend(received.unwrap().into_iter().map(|it| (it.message, it.receipt))),
            Err(_) => broken_off += 1,
        }
    }
    assert_eq!(numbers(&taken), (0..200).collect::<Vec<_>>());
    assert!(broken_off > 0, "none was broken off");
    source.close().await;
}

/// Whether the group takes its member for dead meanwhile or not: if it does, what was not committed comes again; if
/// not, what is in hand stays there.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_and_comes_back_loses_nothing() {
    let mut server = server::Kafka::temporary().unwrap();
    let topic = Topic::on(&server.url(), &[]).await;
    send(&topic, "key", 0..100).await;
    let source = open(&topic, "surviving", 0).await;
    let held = take(&source, 40).await;
    settle_all(&source, &held[..20]).await;
    tokio::task::block_in_place(|| server.kill()).unwrap();
    assert!(source.redelivery().await.is_err(), "nobody is there to be asked");
    tokio::task::block_in_place(|| server.restart()).unwrap();
    send(&topic, "key", 100..120).await;
    source.give_back(&[&held[20].1]).await.unwrap();
    settle_all(&source, &held[21..]).await;
    let mut came = BTreeSet::new();
    let expected: BTreeSet<u64> = std::iter::once(20).chain(40..120).collect();
    while !came.is_superset(&expected) {
        let taken = receive(&source, 50).await;
        settle_all(&source, &taken).await;
        came.extend(numbers(&taken));
    }
    source.close().await;
    send(&topic, "key", 120..121).await;
    let next = open(&topic, "surviving", 0).await;
    assert_eq!(numbers(&take(&next, 1).await), [120]);
    next.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_exist_is_refused_by_name() {
    let topic = Topic::shared(&[]).await;
    let url = format!("{}?topic={}-missing", topic.url, topic.name);
    let error = KafkaSource::open(&url, &Subscription::new("nobody")).await.unwrap_err();
    assert!(matches!(&error, Error::Refused(reason) if reason.contains("-missing")), "{error:?}");
    let unreachable = KafkaSource::open("kafka://127.0.0.1:1/?topic=t&timeout_ms=500", &Subscription::new("n")).await;
    assert!(matches!(unreachable, Err(Error::Unavailable(_))), "{unreachable:?}");
}
