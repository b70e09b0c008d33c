//! Which event goes when (I5).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use semel::sink::{Error, Outgoing};
use semel_brokers::http::Options;
use tokio::sync::Barrier;

use crate::receiver::{Receiver, Seen, outgoing, publish};

const KEYS: usize = 4;

/// Five events of each of four keys, interleaved.
fn batch() -> Vec<Outgoing> {
    (0..5 * KEYS as u64).map(|sequence| outgoing(&format!("key-{}", sequence % KEYS as u64), sequence)).collect()
}

#[tokio::test]
async fn keys_travel_side_by_side_and_each_in_order() {
    // Nobody is answered until a request of every key has arrived: it takes them all at once to get through.
    let barrier = Arc::new(Barrier::new(KEYS));
    let under_way = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
    let (all, counts) = (barrier.clone(), under_way.clone());
    let receiver = Receiver::start(move |seen| {
        let (all, counts) = (all.clone(), counts.clone());
        async move {
            *counts.lock().expect("a lock").entry(seen.key()).or_default() += 1;
            all.wait().await;
            let mut counts = counts.lock().expect("a lock");
            let count = counts.get_mut(&seen.key()).expect("a count");
            assert_eq!(*count, 1, "of one key one event is unacknowledged");
            *count -= 1;
        }
    })
    .await;
    let sink = receiver.sink(Options::default());
    for result in publish(&sink, &batch()).await {
        result.expect("acknowledged");
    }
    let mut last = HashMap::new();
    for seen in receiver.seen() {
        assert!(last.insert(seen.key(), seen.sequence()).is_none_or(|last| last < seen.sequence()));
    }
    assert_eq!(receiver.seen().len(), 5 * KEYS);
}

#[tokio::test]
async fn no_more_requests_are_under_way_than_the_limit() {
    let pairs = Arc::new(Barrier::new(2));
    let under_way = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (pair, now, peak) = (pairs.clone(), under_way.clone(), most.clone());
    let receiver = Receiver::start(move |_| {
        let (pair, now, peak) = (pair.clone(), now.clone(), peak.clone());
        async move {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            pair.wait().await;
            now.fetch_sub(1, Ordering::SeqCst);
        }
    })
    .await;
    let sink = receiver.sink(Options { concurrency: 2, ..Options::default() });
    for result in publish(&sink, &batch()).await {
        result.expect("acknowledged");
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_refused_event_holds_its_own_key_only() {
    for status in [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::INTERNAL_SERVER_ERROR] {
        let answer = move |seen: Seen| if seen.sequence() == 5 { status } else { StatusCode::OK };
        let receiver = Receiver::start(move |seen| std::future::ready(answer(seen))).await;
        let sink = receiver.sink(Options { concurrency: 1, ..Options::default() });
        let batch = batch();
        let results = publish(&sink, &batch).await;
        for (outgoing, result) in batch.iter().zip(&results) {
            match (outgoing.event.ordering_key.as_str(), outgoing.sequence) {
                ("key-1", 5) if status.is_server_error() => assert!(matches!(result, Err(Error::Unavailable(_)))),
                ("key-1", 5) => assert!(matches!(result, Err(Error::Refused(_)))),
                ("key-1", 6..) => assert!(matches!(result, Err(Error::Behind))),
                _ => assert!(result.is_ok(), "{outgoing:?} {result:?}"),
            }
        }
        assert!(receiver.seen().iter().all(|seen| seen.key() != "key-1" || seen.sequence() <= 5));
    }
}
