//! Who gets which messages.

use std::collections::BTreeMap;
use std::sync::Mutex;

use semel::Source;

use super::redelivering::{all_until, ids};
use super::{Harness, numbered, receive, settle_all};
use crate::poll::until;

/// Two processes of one consumer get each message once between them.
pub async fn two_who_read_as_one_consumer_share_the_messages<H: Harness>() {
    let harness = H::shared().await;
    let sources = [harness.open("sharing", 0).await, harness.open("sharing", 0).await];
    let deliveries: [Mutex<BTreeMap<u64, u32>>; 2] = Default::default();
    let reading = |number: usize| {
        let (source, deliveries) = (&sources[number], &deliveries[number]);
        async move {
            loop {
                let taken = receive(source, 5).await;
                for (message, _) in &taken {
                    let number = message.sequence.as_ref().unwrap().sequence;
                    *deliveries.lock().unwrap().entry(number).or_default() += 1;
                }
                settle_all(source, &taken).await;
            }
        }
    };
    let testing = async {
        // A broker may take a while until it shares among both: until then what comes proves nothing.
        let mut warm = 0;
        until("both get messages", async || {
            harness.publish(&numbered(&harness.topic(), 1000 + warm..1040 + warm)).await;
            warm += 40;
            deliveries.iter().all(|deliveries| !deliveries.lock().unwrap().is_empty())
        })
        .await;
        harness.publish(&numbered(&harness.topic(), 0..200)).await;
        let counts = || {
            let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
            for deliveries in &deliveries {
                for (number, count) in deliveries.lock().unwrap().range(0..200) {
                    *counts.entry(*number).or_default() += count;
                }
            }
            counts
        };
        until("all arrive", async || counts().len() == 200).await;
        let doubled: Vec<_> = counts().into_iter().filter(|(_, count)| *count > 1).collect();
        assert!(doubled.is_empty(), "{doubled:?}");
    };
    tokio::select! {
        () = testing => {}
        _ = async { tokio::join!(reading(0), reading(1)) } => {}
    }
    for source in &sources {
        source.close().await;
    }
}

/// Consumers do not take messages from each other.
pub async fn another_consumer_gets_every_message_too<H: Harness>() {
    let harness = H::shared().await;
    let (one, other) = (harness.open("one", 0).await, harness.open("other", 0).await);
    let sent = numbered(&harness.topic(), 0..30);
    harness.publish(&sent).await;
    let expected = sent.iter().map(|sent| sent.id.to_string()).collect();
    assert_eq!(all_until(&one, &expected).await, expected);
    assert_eq!(all_until(&other, &expected).await, expected);
    one.close().await;
    other.close().await;
}

/// History can be run again on purpose: where the broker keeps it, a new generation is given all of it.
pub async fn a_new_generation_begins_with_the_first_message<H: Harness>() {
    let harness = H::shared().await;
    let first = harness.open("replayed", 0).await;
    let sent = numbered(&harness.topic(), 0..30);
    harness.publish(&sent).await;
    let expected = sent.iter().map(|sent| sent.id.to_string()).collect();
    assert_eq!(all_until(&first, &expected).await, expected);
    first.close().await;
    let second = harness.open("replayed", 1).await;
    let mut came = Vec::new();
    while !ids(&came).is_superset(&expected) {
        let taken = receive(&second, 50).await;
        settle_all(&second, &taken).await;
        came.extend(taken);
    }
    assert_eq!(came.len(), 30);
    second.close().await;
}
