//! Places in a partition of Kafka: the offset advances by compare-and-set.

use semel::inbox::Offset;
use semel::once::Error as OnceError;
use semel::{Error, Inbox};

use super::harness::Harness;
use super::lab::{Lab, refused};
use super::message::{Deed, partition, record, recorded};

/// A log may have lost its beginning, and a consumer may begin where it likes.
pub async fn a_partition_begins_at_any_offset<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let mut all = Vec::new();
    for (number, from, offset) in [(0, 0, 0), (1, 0, 41), (2, 41, 41), (3, i64::MAX - 1, i64::MAX - 1)] {
        let next = async || lab.harness.store().next_offset(&lab.consumer, "cluster", "charges", number).await.unwrap();
        assert_eq!(next().await, None);
        let message = recorded(Offset { partition: number, from, offset, ..partition() });
        lab.applies(&message).await;
        assert_eq!(next().await, Some(offset + 1));
        lab.is_known(&message).await;
        assert_eq!(next().await, Some(offset + 1));
        all.push(message);
    }
    lab.applied_once(&all).await;
}

/// Wherever its worker read on.
pub async fn what_lies_below_the_stored_offset_is_a_duplicate<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let applied = [record(10, 10), record(11, 11), record(12, 15)];
    for message in &applied {
        lab.applies(message).await;
    }
    for below in [record(0, 0), record(10, 10), record(11, 13), record(3, 15), record(15, 15)] {
        lab.is_known(&below).await;
    }
    assert_eq!(next(&lab).await, Some(16));
    lab.applied_once(&applied).await;
}

/// Compaction and transactions leave gaps.
pub async fn offsets_that_are_missing_do_not_matter<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let applied = [record(0, 3), record(4, 9), record(10, 1_000), record(1_001, 1_001)];
    for message in &applied {
        lab.applies(message).await;
    }
    assert_eq!(next(&lab).await, Some(1_002));
    lab.applied_once(&applied).await;
}

/// I7: nobody moves the offset but who read on where it stands.
pub async fn a_worker_that_did_not_read_on_from_the_stored_offset_is_fenced<H: Harness>() {
    let lab = Lab::<H>::open().await;
    lab.applies(&record(0, 4)).await;
    for elsewhere in [record(3, 7), record(0, 5), record(4, 5), record(6, 6), record(9, 9)] {
        let error = refused(lab.deliver(&elsewhere.that(Deed::Panic)).await);
        assert!(matches!(error, Error::Fenced), "{error:?}");
        assert_eq!(next(&lab).await, Some(5));
    }
    lab.applies(&record(5, 5)).await;
    lab.applied_once(&[record(0, 4), record(5, 5)]).await;
}

/// I6, with its control: if a worker that lost the partition could store an offset further on, what lies between would
/// be taken for duplicates, and lost.
pub async fn what_a_fenced_worker_held_applies_once_by_the_one_who_read_on<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let (mut highest, mut by_maximum) = (None, Vec::new());
    // The worker that lost the partition holds record 4, which followed two that it could not apply.
    let script = [(0, 0), (1, 1), (4, 4), (2, 2), (3, 3), (4, 4), (5, 5)];
    for (from, offset) in script {
        match lab.deliver(&record(from, offset)).await {
            Ok(_) => {}
            Err(OnceError::Store(Error::Fenced)) => assert_eq!((offset, next(&lab).await), (4, Some(2))),
            Err(error) => panic!("record {offset} is {error:?}"),
        }
        if highest < Some(offset) {
            highest = Some(offset);
            by_maximum.push(offset);
        }
    }
    assert_eq!(by_maximum, [0, 1, 4, 5], "the control loses what lies between");
    lab.applied_once(&[0, 1, 2, 3, 4, 5].map(|n| record(n, n))).await;
    assert_eq!(next(&lab).await, Some(6));
}

/// I6: its successors cannot overtake it.
pub async fn a_failed_record_leaves_the_offset_where_it_was<H: Harness>() {
    let lab = Lab::<H>::open().await;
    lab.applies(&record(0, 0)).await;
    for deed in [Deed::Fail, Deed::Refuse] {
        let failed = lab.deliver(&record(1, 1).that(deed)).await;
        assert!(matches!(failed, Err(OnceError::Effect(_))), "{failed:?}");
        assert_eq!(next(&lab).await, Some(1));
    }
    assert!(matches!(refused(lab.deliver(&record(2, 2)).await), Error::Fenced));
    let applied = [0, 1, 2].map(|n| record(n, n));
    for message in &applied[1..] {
        lab.applies(message).await;
    }
    assert_eq!(next(&lab).await, Some(3));
    lab.applied_once(&applied).await;
}

/// Where the lab's consumer reads on in the partition of [`record`].
pub(super) async fn next<H: Harness>(lab: &Lab<H>) -> Option<i64> {
    let Offset { source, topic, partition, .. } = partition();
    lab.harness.store().next_offset(&lab.consumer, &source, &topic, partition).await.unwrap()
}
