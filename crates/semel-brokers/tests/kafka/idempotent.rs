//! At least once, in order.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use semel::sink::{Guarantee, Sink};
use semel_testkit::kafka as server;

use crate::cluster::{Topic, first_occurrences, publish};

#[tokio::test(flavor = "multi_thread")]
async fn an_event_arrives_with_its_identity_its_bytes_and_its_headers() {
    let topic = Topic::shared(&[]).await;
    let sink = topic.sink("").await;
    assert_eq!(sink.guarantee(), Guarantee::AtLeastOnce);
    let bytes: Vec<u8> = (0..=255).collect();
    let mut outgoing = topic.event("account-1", 41, bytes.clone());
    outgoing.event = outgoing.event.header("tenant", "blue").unwrap().header("ce_id", "forged").unwrap();
    outgoing.event = outgoing.event.traced("00-11-22-01", Some("vendor=1".into()));
    assert_eq!(publish(&sink, &[outgoing.clone()], 0).await, ["ok"]);

    let [arrived] = topic.read().try_into().unwrap();
    assert_eq!((arrived.key.as_str(), &arrived.payload), ("account-1", &bytes));
    let expected = [
        ("ce_specversion", "1.0"),
        ("ce_id", &outgoing.id.to_string()),
        ("ce_source", "/semel/tests"),
        ("ce_type", "test.happened"),
        ("ce_time", "2023-11-14T22:13:20.123Z"),
        ("ce_partitionkey", "account-1"),
        ("content-type", "application/octet-stream"),
        ("semel_lane", "3"),
        ("semel_sequence", "41"),
        ("semel_incarnation", "7"),
        ("traceparent", "00-11-22-01"),
        ("tracestate", "vendor=1"),
        ("tenant", "blue"),
        ("semel_header_ce_id", "forged"),
    ];
    for (name, value) in expected {
        assert_eq!(arrived.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert_eq!(arrived.headers.len(), expected.len());
    sink.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_keys_order_is_kept_over_many_batches_and_keys() {
    let topic = Topic::shared(&[]).await;
    let sink = topic.sink("").await;
    for batch in 0..10 {
        let events: Vec<_> = (batch * 300..(batch + 1) * 300)
            .map(|sequence| topic.event(&format!("key-{}", sequence * 7 % 37), sequence, vec![1; 100]))
            .collect();
        assert!(publish(&sink, &events, 0).await.iter().all(|result| result == "ok"));
    }
    sink.close().await;
    let arrived = topic.read();
    assert_eq!(arrived.len(), 3000);
    assert_eq!(arrived.iter().map(|record| record.id()).collect::<HashSet<_>>().len(), 3000);
    assert!(first_occurrences(&arrived).values().all(|sequences| sequences.is_sorted()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_event_holds_back_its_key_and_no_other() {
    let topic = Topic::shared(&[("max.message.bytes", "2000")]).await;
    let sink = topic.sink("").await;
    let missing = format!("{}-missing", topic.name);
    let batch = [
        topic.event("large", 1, vec![0; 10]),
        topic.event("large", 2, vec![0; 5000]),
        topic.event("other", 3, vec![0; 10]),
        topic.event("large", 4, vec![0; 10]),
        topic.event_for(&missing, "lost", 5, vec![]),
        topic.event("lost", 6, vec![]),
        topic.event_for("no such/name", "odd", 7, vec![]),
        topic.event("other", 8, vec![0; 10]),
    ];
    let results = publish(&sink, &batch, 0).await;
    let words: Vec<&str> = results.iter().map(|result| result.split(':').next().unwrap()).collect();
    assert_eq!(words, ["ok", "refused", "ok", "behind", "refused", "behind", "refused", "ok"], "{results:?}");
    assert!(results[1].contains("2000 (max.message.bytes)"), "{}", results[1]);
    assert!(results[4].contains(&missing), "{}", results[4]);
    let keys = first_occurrences(&topic.read());
    assert_eq!((&keys["large"], &keys["other"], keys.get("lost")), (&vec![1], &vec![3, 8], None));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_just_fits_its_topic_is_taken() {
    let topic = Topic::shared(&[("max.message.bytes", "2000")]).await;
    let sink = topic.sink("").await;
    // Around the limit by one byte each: were our count too small, the broker would refuse a batch.
    let batch: Vec<_> =
        (1400..2000).map(|bytes| topic.event(&format!("{bytes}"), bytes, vec![0; bytes as usize])).collect();
    let results = publish(&sink, &batch, 0).await;
    let taken = results.iter().take_while(|result| *result == "ok").count();
    assert!(taken > 0 && taken < batch.len(), "{results:?}");
    assert!(results[taken..].iter().all(|result| result.starts_with("refused")), "{results:?}");
    assert_eq!(topic.read().len(), taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_lowered_behind_the_sinks_back_lets_nothing_overtake() {
    let topic = Topic::shared(&[]).await;
    let sink = topic.sink("timeout_ms=30000").await;
    assert_eq!(publish(&sink, &[topic.event("key", 0, vec![])], 0).await, ["ok"]);
    topic.alter("max.message.bytes", "2000").await;
    // The first record is too large now. It fills a batch of its own, and those after it make one that would be taken.
    let large = || topic.event("key", 1, vec![0; 1_000_000]);
    let mut batch = vec![large()];
    batch.extend((2..5).map(|sequence| topic.event("key", sequence, vec![])));
    let results = publish(&sink, &batch, 0).await;
    assert!(results[0].starts_with("unavailable"), "{}", results[0]);
    assert!(results[1..].iter().all(|result| result == "behind"), "{results:?}");
    assert_eq!(first_occurrences(&topic.read())["key"], [0]);

    let batch =
        [topic.event("key", 1, vec![0; 900_000]), topic.event("key", 2, vec![]), topic.event("other", 3, vec![])];
    let results = publish(&sink, &batch, 0).await;
    assert!(results[0].starts_with("refused") && results[1..] == ["behind", "ok"], "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_dies_makes_events_wait_and_loses_none() {
    let mut kafka = server::Kafka::temporary().unwrap();
    let topic = Topic::on(&kafka.url(), &[]).await;
    let sink = topic.sink("timeout_ms=3000").await;
    let batch = |from: u64| -> Vec<_> {
        (from..from + 50).map(|sequence| topic.event(&format!("key-{}", sequence % 5), sequence, vec![7; 50])).collect()
    };
    assert!(publish(&sink, &batch(0), 0).await.iter().all(|result| result == "ok"));
    kafka.kill().unwrap();
    let asked = Instant::now();
    let results = publish(&sink, &batch(50), 0).await;
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert!(results[..5].iter().all(|result| result.starts_with("unavailable")), "{results:?}");
    assert!(results[5..].iter().all(|result| result == "behind"), "{results:?}");

    kafka.restart().unwrap();
    // What timed out was purged: had it stayed queued, it would be sent now, and be found twice below.
    let results = publish(&sink, &batch(50), 0).await;
    assert!(results.iter().all(|result| result == "ok"), "{results:?}");
    assert!(publish(&sink, &batch(100), 0).await.iter().all(|result| result == "ok"));
    sink.close().await;
    let arrived = topic.read();
    let ids: HashSet<&str> = arrived.iter().map(|record| record.id()).collect();
    assert_eq!(ids.len(), 150);
    assert_eq!(arrived.len(), 150);
    assert!(first_occurrences(&arrived).values().all(|sequences| sequences.is_sorted()));
}
