//! What arrives: whole and in order, however receiving is broken off.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use semel::inbox::Sequence;
use semel::source::{Message, Redelivery};
use semel::{Event, Source};

use super::{Harness, numbered, receive, settle_all, take};
use crate::poll::PATIENCE;
use crate::sinks::{batch, outgoing};

/// Every attribute, header and byte of an event reaches its consumer.
pub async fn a_message_arrives_whole<H: Harness>() {
    let harness = H::shared().await;
    let source = harness.open("whole", 0).await;
    let payload: Vec<u8> = (0..=255).chain([0, 13, 10, 0]).collect();
    let event = Event::bytes(harness.topic(), "clé \"1\" 100%", "charge.created", "application/octet-stream", payload);
    let event = event.unwrap().header("attempt", "1").unwrap().header("Region", "Zürich, CH = 50%").unwrap();
    // Names that brokers, CloudEvents or Semel give a meaning to.
    let event = event.header("ce-id", "forged").unwrap().header("x-delay", "5").unwrap();
    let event = event.traced("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some("vendor=a b".to_owned()));
    let sent = outgoing(3, u64::MAX / 4, event);
    let small = outgoing(0, 1, Event::bytes(harness.topic(), "k", "t", "c", Vec::new()).unwrap());
    for sent in [sent, small] {
        harness.publish(std::slice::from_ref(&sent)).await;
        let taken = take(&source, 1).await;
        let arrived = &taken[0].0;
        let event = &sent.event;
        let place = Sequence {
            incarnation: sent.incarnation.clone(),
            topic: event.topic.clone(),
            lane: sent.lane.0,
            sequence: sent.sequence,
        };
        let expected = Message {
            id: sent.id.to_string(),
            topic: event.topic.clone(),
            ordering_key: event.ordering_key.clone(),
            message_type: event.event_type.clone(),
            producer: sent.source.clone(),
            content_type: event.content_type.clone(),
            payload: event.payload.clone(),
            sequence: Some(place),
            headers: arrived.headers.clone(),
            offset: arrived.offset.clone(),
        };
        assert_eq!(*arrived, expected);
        for (name, value) in &event.headers {
            assert_eq!(arrived.header(name), Some(value.as_str()), "{name} of {:?}", arrived.headers);
        }
        assert_eq!(arrived.header("traceparent"), event.traceparent.as_deref());
        assert_eq!(arrived.header("tracestate"), event.tracestate.as_deref());
        settle_all(&source, &taken).await;
    }
    source.close().await;
}

/// First deliveries of one ordering key come in the order in which they were published (I5).
pub async fn messages_of_a_key_arrive_in_their_order<H: Harness>() {
    let harness = H::shared().await;
    let source = harness.open("ordered", 0).await;
    let sent = batch(&harness.topic(), 1, 0..300, 12);
    let (head, tail) = sent.split_at(200);
    harness.publish(head).await;
    let mut seen = BTreeSet::new();
    let mut keys: HashMap<String, Vec<u64>> = HashMap::new();
    let mut published = false;
    while seen.len() < sent.len() {
        let taken = receive(&source, 50).await;
        for (message, _) in &taken {
            if seen.insert(message.id.clone()) {
                let number = message.sequence.as_ref().unwrap().sequence;
                keys.entry(message.ordering_key.clone()).or_default().push(number);
            }
        }
        settle_all(&source, &taken).await;
        if !published {
            harness.publish(tail).await;
            published = true;
        }
    }
    assert_eq!(keys.len(), 12);
    for (key, numbers) in keys {
        assert!(numbers.is_sorted() && numbers.len() == 25, "{key} arrived as {numbers:?}");
    }
    source.close().await;
}

/// A `receive` may be dropped at any point: what it had taken is handed out by the next, or comes again.
pub async fn a_receive_that_is_dropped_loses_nothing<H: Harness>() {
    let harness = H::shared().await;
    let source = harness.open("dropped", 0).await;
    let sent = numbered(&harness.topic(), 0..60);
    harness.publish(&sent).await;
    let mut seen = BTreeSet::new();
    let mut broken_off = 0;
    let gives_up = tokio::time::Instant::now() + PATIENCE;
    while seen.len() < sent.len() {
        assert!(tokio::time::Instant::now() < gives_up, "{} of {} came", seen.len(), sent.len());
        // From a glance, which ends before anything can arrive, to long enough for anything; and a second one, so that
        // there is one that ends early however much has arrived.
        let glance = Duration::from_micros(100 << (broken_off % 13));
        for (patience, most) in [(glance, 7), (Duration::ZERO, 1)] {
            match tokio::time::timeout(patience, source.receive(most)).await {
                Ok(received) => {
                    let taken: Vec<_> = received.unwrap().into_iter().map(|it| (it.message, it.receipt)).collect();
                    seen.extend(taken.iter().map(|(message, _)| message.id.clone()));
                    settle_all(&source, &taken).await;
                }
                Err(_) => broken_off += 1,
            }
        }
    }
    assert!(broken_off > 0, "none was broken off");
    source.close().await;
}

/// I9 rests on it: nothing may come again for longer than the source says.
pub async fn how_long_a_message_may_come_again_is_told_as_the_broker_is_set<H: Harness>() {
    let harness = H::shared().await;
    let source = harness.open("told", 0).await;
    match (source.redelivery().await.unwrap(), harness.longest()) {
        (Redelivery::Within { longest, because }, Some(set)) => assert_eq!(longest, set, "{because}"),
        (Redelivery::Unlimited { because }, None) => assert!(!because.is_empty()),
        (told, set) => panic!("the broker is set to {set:?} and the source says {told:?}"),
    }
    source.close().await;
}
