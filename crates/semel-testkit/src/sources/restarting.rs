//! A broker that dies.

use std::collections::BTreeSet;

use semel::Source;

use super::redelivering::{all_until, ids};
use super::{Restart, numbered, settle_all, take};

/// The source finds its broker again by itself, and everything that was not acknowledged comes.
pub async fn a_broker_killed_in_the_middle_loses_nothing<H: Restart>() {
    let mut harness = H::own().await;
    let source = harness.open("surviving", 0).await;
    let mut sent = numbered(&harness.topic(), 0..100);
    harness.publish(&sent).await;
    let mut taken = take(&source, 40).await;
    let unacknowledged = taken.split_off(20);
    settle_all(&source, &taken).await;
    let acknowledged = ids(&taken);
    harness.kill();
    harness.restart().await;
    let more = numbered(&harness.topic(), 100..120);
    harness.publish(&more).await;
    sent.extend(more);
    let expected: BTreeSet<String> =
        sent.iter().map(|sent| sent.id.to_string()).filter(|id| !acknowledged.contains(id)).collect();
    assert!(expected.is_superset(&ids(&unacknowledged)) && expected.len() == 100);
    // An acknowledgement that the broker did not get to write down comes again, too.
    assert!(all_until(&source, &expected).await.is_superset(&expected));
    source.close().await;
}
