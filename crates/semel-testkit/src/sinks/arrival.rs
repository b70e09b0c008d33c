//! What arrives: whole, in order, with the same identity each time.

use std::collections::HashMap;

use semel::sink::{Error, Guarantee, Outgoing};
use semel::{Event, Sink};

use super::{Arrived, Harness, batch, outgoing, publish};

/// Every attribute, header and byte of an event reaches a reader.
pub async fn an_event_arrives_whole<H: Harness>() {
    let harness = H::shared().await;
    let sink = harness.connect().await;
    let payload: Vec<u8> = (0..=255).chain([0, 13, 10, 0]).collect();
    let event = Event::bytes(harness.topic(), "clé \"1\" 100%", "charge.created", "application/octet-stream", payload);
    let event = event.unwrap().header("attempt", "1").unwrap().header("Region", "Zürich, CH = 50%").unwrap();
    let event = event.header("region", "another case").unwrap();
    let event = event.traced("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some("vendor=a b".to_owned()));
    let sent = outgoing(3, u64::MAX / 2, event);
    all_published(&publish(&sink, std::slice::from_ref(&sent)).await);
    sink.close().await;
    assert_eq!(harness.arrived().await, [expected(&sent)]);
}

/// An empty payload is a payload.
pub async fn the_smallest_event_arrives<H: Harness>() {
    let harness = H::shared().await;
    let sink = harness.connect().await;
    let sent = outgoing(0, 0, Event::bytes(harness.topic(), "k", "t", "c", Vec::new()).unwrap());
    all_published(&publish(&sink, std::slice::from_ref(&sent)).await);
    sink.close().await;
    assert_eq!(harness.arrived().await, [expected(&sent)]);
}

/// I5, with keys of one event and of many in the same batch.
pub async fn order_per_key_is_kept_over_many_keys_and_batches<H: Harness>() {
    let harness = H::shared().await;
    let sink = harness.connect().await;
    let mut sent = Vec::new();
    for (number, keys) in [1500, 40, 1, 7].into_iter().enumerate() {
        let first = number as u64 * 10_000;
        let length = if keys == 1 { 50 } else { 1500 };
        let batch = batch(&harness.topic(), 1, first..first + length, keys);
        all_published(&publish(&sink, &batch).await);
        sent.extend(batch);
    }
    sink.close().await;
    let arrived = harness.arrived().await;
    assert_eq!(arrived.len(), sent.len());
    in_order(&sent, &arrived);
}

/// Lanes share a sink and do not wait for each other.
pub async fn lanes_publish_side_by_side<H: Harness>() {
    let harness = H::shared().await;
    let sink = harness.connect().await;
    let batches: Vec<_> = (0..8).map(|lane| batch(&harness.topic(), lane, 0..200, 20)).collect();
    let results = futures_util::future::join_all(batches.iter().map(|batch| publish(&sink, batch))).await;
    results.iter().for_each(|results| all_published(results));
    sink.close().await;
    in_order(&batches.concat(), &harness.arrived().await);
}

/// A repeated publication carries the same id and sequence number; a sink that promises it, drops it.
pub async fn an_event_published_again_keeps_its_identity<H: Harness>() {
    let harness = H::shared().await;
    let sink = harness.connect().await;
    let sent = batch(&harness.topic(), 2, 0..50, 5);
    all_published(&publish(&sink, &sent).await);
    all_published(&publish(&sink, &sent).await);
    let deduplicated = matches!(sink.guarantee(), Guarantee::Deduplicated { window } if !window.is_zero());
    sink.close().await;
    let arrived = harness.arrived().await;
    assert_eq!(arrived.len(), if deduplicated { 50 } else { 100 });
    in_order(&sent, &arrived);
}

/// Closing takes nothing back, and a closed sink takes nothing more.
pub async fn what_was_acknowledged_is_there_after_close<H: Harness>() {
    let harness = H::shared().await;
    let sink = harness.connect().await;
    let sent = batch(&harness.topic(), 0, 0..300, 10);
    all_published(&publish(&sink, &sent).await);
    sink.close().await;
    let late = batch(&harness.topic(), 0, 300..320, 10);
    let refused = publish(&sink, &late).await;
    assert!(refused.iter().all(|result| matches!(result, Err(Error::Unavailable(_) | Error::Behind))), "{refused:?}");
    let arrived = harness.arrived().await;
    assert_eq!(arrived.len(), 300);
    in_order(&sent, &arrived);
}

/// Panics unless everything was acknowledged.
pub(super) fn all_published(results: &[Result<(), Error>]) {
    if let Some(failed) = results.iter().find(|result| result.is_err()) {
        panic!("{failed:?}");
    }
}

/// Panics unless all of `sent` arrived, each as it was sent however often, and first occurrences of each key in order.
pub(super) fn in_order(sent: &[Outgoing], arrived: &[Arrived]) {
    let sent_by_id: HashMap<String, &Outgoing> = sent.iter().map(|sent| (sent.id.to_string(), sent)).collect();
    let mut first_occurrences: HashMap<&str, Vec<u64>> = HashMap::new();
    let mut seen = HashMap::new();
    for arrived in arrived {
        let sent = sent_by_id.get(&arrived.id).unwrap_or_else(|| panic!("nobody sent {arrived:?}"));
        assert_eq!(*arrived, expected(sent));
        if seen.insert(arrived.id.as_str(), ()).is_none() {
            first_occurrences.entry(&arrived.ordering_key).or_default().push(arrived.sequence);
        }
    }
    let lost: Vec<u64> = sent.iter().filter(|s| !seen.contains_key(&*s.id.to_string())).map(|s| s.sequence).collect();
    assert!(lost.is_empty(), "{} of {} were lost: {lost:?}", lost.len(), sent.len());
    for (key, sequences) in first_occurrences {
        assert!(sequences.is_sorted(), "{key} arrived as {sequences:?}");
    }
}

fn expected(sent: &Outgoing) -> Arrived {
    let mut headers = sent.event.headers.clone();
    headers.sort_by(|(left, _), (right, _)| left.cmp(right));
    Arrived {
        id: sent.id.to_string(),
        source: sent.source.clone(),
        event_type: sent.event.event_type.clone(),
        time: "2023-11-14T22:13:20.123Z".to_owned(),
        content_type: sent.event.content_type.clone(),
        ordering_key: sent.event.ordering_key.clone(),
        lane: sent.lane.0,
        sequence: sent.sequence,
        incarnation: sent.incarnation.clone(),
        traceparent: sent.event.traceparent.clone(),
        tracestate: sent.event.tracestate.clone(),
        headers,
        payload: sent.event.payload.to_vec(),
    }
}
