//! Events and the lane's position, committed together.

use std::collections::HashSet;
use std::time::Duration;

use semel::sink::{Guarantee, Lane, Position, Sink};
use semel_brokers::kafka::Kafka;
use semel_testkit::kafka as server;

use crate::cluster::{Topic, publish, shared_url, take};

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_commits_with_its_position() {
    let topic = Topic::shared(&[]).await;
    let sink = topic.sink("mode=transactional").await;
    assert_eq!(sink.guarantee(), Guarantee::Transactional);
    assert_eq!(take(&sink).await, None);
    for batch in 0..3 {
        let events: Vec<_> =
            (batch * 10..batch * 10 + 10).map(|n| topic.event(&format!("{}", n % 3), n, vec![])).collect();
        assert!(publish(&sink, &events, batch * 10 + 10).await.iter().all(|result| result == "ok"));
    }
    assert_eq!(topic.read().len(), 30);
    assert_eq!(take(&sink).await, Some(30));
    assert_eq!(sink.take_lane(Lane(4)).await.unwrap(), None);
    sink.close().await;
    assert_eq!(take(&topic.sink("mode=transactional").await).await, Some(30));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_was_not_taken_cannot_be_published() {
    let topic = Topic::shared(&[]).await;
    let sink = topic.sink("mode=transactional&lanes=4").await;
    let results = publish(&sink, &[topic.event("key", 1, vec![])], 1).await;
    assert!(results[0].contains("has to be taken"), "{results:?}");
    take(&sink).await;
    let error = sink.take_lane(Lane(4)).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("add partitions"), "{source}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_of_two_producers_of_a_lane_is_fenced() {
    let topic = Topic::shared(&[]).await;
    let (older, newer) = (topic.sink("mode=transactional").await, topic.sink("mode=transactional").await);
    assert_eq!(take(&older).await, None);
    assert_eq!(publish(&older, &[topic.event("key", 1, vec![])], 1).await, ["ok"]);
    assert_eq!(take(&newer).await, Some(1));
    let results = publish(&older, &[topic.event("key", 2, vec![]), topic.event("key", 3, vec![])], 3).await;
    assert_eq!(results, ["fenced", "fenced"]);
    assert_eq!(publish(&newer, &[topic.event("key", 2, vec![])], 2).await, ["ok"]);
    let sequences: Vec<u64> = topic.read().iter().map(|record| record.sequence()).collect();
    assert_eq!(sequences, [1, 2]);
    assert_eq!(take(&older).await, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_event_keeps_its_whole_batch_back_and_the_lane_goes_on() {
    let topic = Topic::shared(&[("max.message.bytes", "2000")]).await;
    let sink = topic.sink("mode=transactional").await;
    take(&sink).await;
    let batch = [
        topic.event("other", 1, vec![]),
        topic.event("large", 2, vec![0; 5000]),
        topic.event("large", 3, vec![0; 5000]),
    ];
    let results = publish(&sink, &batch, 3).await;
    assert!(results[0] == "behind" && results[1].starts_with("refused") && results[2] == "behind", "{results:?}");
    assert_eq!(topic.read().len(), 0);
    assert_eq!(publish(&sink, &batch[..1], 1).await, ["ok"]);
    // More than the topic takes at once goes in several steps of one transaction.
    let many: Vec<_> =
        (10..60).map(|sequence| topic.event(&format!("{}", sequence % 7), sequence, vec![0; 300])).collect();
    assert!(publish(&sink, &many, 60).await.iter().all(|result| result == "ok"));
    assert_eq!(topic.read().len(), 51);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_timeout_above_the_brokers_is_refused_with_the_limit() {
    let limit = server::TRANSACTION_MAX_TIMEOUT.as_millis();
    let url = format!("{}?mode=transactional&transaction_timeout_ms={}", shared_url(), limit + 1);
    let error = Kafka::connect(&url, "tests").await.unwrap_err();
    assert!(matches!(error, semel_brokers::Error::Refused(_)), "{error:?}");
    for part in ["transaction_timeout_ms=", "transaction.max.timeout.ms", &limit.to_string()] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_dropped_at_any_moment_leaves_each_event_once() {
    let topic = Topic::shared(&[]).await;
    let sink = topic.sink("mode=transactional").await;
    let mut published = take(&sink).await.unwrap_or(0);
    for round in 0..20 {
        let batch: Vec<_> =
            (published..published + 20).map(|n| topic.event(&format!("{}", n % 5), n, vec![1; 50])).collect();
        let position = Position((published + 20).to_be_bytes().to_vec());
        // Any moment will do, from before the first record to after the commit.
        let moment = Duration::from_micros(round * 1500);
        let _ = tokio::time::timeout(moment, sink.publish(Lane(3), &batch, &position)).await;
        published = take(&sink).await.unwrap_or(0);
    }
    let arrived = topic.read();
    let ids: HashSet<&str> = arrived.iter().map(|record| record.id()).collect();
    assert_eq!((arrived.len(), ids.len() as u64), (ids.len(), published));
    assert!(published > 0, "no publication was fast enough to commit");
}
