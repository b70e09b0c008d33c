//! Records that are read, transformed and written inside Kafka.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use semel::source::Message;
use semel_brokers::kafka::pipeline::{Error, Failure, Guarantee, Out, Pipeline, Transform};
use semel_testkit::poll::PATIENCE;
use tokio::sync::Notify;

use crate::cluster::{Arrived, Topic, publish};
use crate::consuming::send;

/// The record that every test makes of a message: the same number and key.
pub(crate) fn copy(message: &Message, output: &str) -> Out {
    let number = message.sequence.as_ref().unwrap().sequence;
    Out::new(output, message.ordering_key.clone(), message.payload.clone()).with_header("n", number.to_string())
}

pub(crate) fn copier(output: &Topic) -> impl Fn(&Message) -> Result<Vec<Out>, Failure> + Send + Sync + use<> {
    let output = output.name.clone();
    move |message| Ok(vec![copy(message, &output)])
}

pub(crate) fn pipeline<T: Transform>(input: &Topic, transform: T) -> Pipeline<T> {
    let pipeline = Pipeline::new(&input.url, &[&input.name], &input.name, &input.name, transform).unwrap();
    pipeline.with_batch(20, Duration::from_millis(20))
}

fn number(record: &Arrived) -> u64 {
    record.headers["n"].parse().unwrap()
}

/// Waits until a reader of committed records finds this many. It reads beside the pipeline, not in its stead.
pub(crate) fn written(output: &Topic, count: usize) -> impl Future<Output = ()> + Send + use<> {
    let output = output.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let gives_up = Instant::now() + PATIENCE;
        loop {
            let found = output.read().len();
            if found >= count {
                return;
            }
            assert!(Instant::now() < gives_up, "{found} of {count} were written");
        }
    });
    async { reading.await.unwrap() }
}

/// Each number once, and each key's in their order.
pub(crate) fn each_once(output: &Topic, numbers: std::ops::Range<u64>) {
    let arrived = output.read();
    let mut keys: HashMap<&str, Vec<u64>> = HashMap::new();
    for record in &arrived {
        keys.entry(&record.key).or_default().push(number(record));
    }
    assert!(keys.values().all(|numbers| numbers.is_sorted()), "{keys:?}");
    let mut found: Vec<u64> = arrived.iter().map(number).collect();
    found.sort_unstable();
    assert_eq!(found, numbers.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_record_is_transformed_once_and_keys_keep_their_order() {
    let (input, output) = (Topic::shared(&[]).await, Topic::shared(&[]).await);
    for key in 0..5 {
        send(&input, &format!("key-{key}"), key * 40..key * 40 + 40).await;
    }
    let tally = pipeline(&input, copier(&output)).run(written(&output, 200)).await.unwrap();
    assert_eq!((tally.read, tally.written, tally.dead, tally.aborted), (200, 200, 0, 0));
    assert!(tally.committed >= 10);
    // A second run begins behind the first.
    send(&input, "key-0", 200..210).await;
    let tally = pipeline(&input, copier(&output)).run(written(&output, 210)).await.unwrap();
    assert_eq!(tally.read, 10);
    each_once(&output, 0..210);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_transformed_stops_the_pipeline_behind_all_before_it() {
    let (input, output) = (Topic::shared(&[]).await, Topic::shared(&[]).await);
    send(&input, "key", 0..10).await;
    let attempts = AtomicU32::new(0);
    let transform = |message: &Message| match message.sequence.as_ref().unwrap().sequence {
        7 => {
            attempts.fetch_add(1, Ordering::Relaxed);
            Err(Failure::from("seven is out of bounds"))
        }
        _ => Ok(vec![copy(message, &output.name)]),
    };
    let error = pipeline(&input, transform).with_attempts(3).run(std::future::pending()).await.unwrap_err();
    match &error {
        Error::Poison { place, attempts: 3, cause } => {
            assert!(place.starts_with(&input.name) && place.ends_with("/7"), "{place}");
            assert_eq!(cause.to_string(), "seven is out of bounds");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(attempts.load(Ordering::Relaxed), 3);
    each_once(&output, 0..7);
    pipeline(&input, copier(&output)).run(written(&output, 10)).await.unwrap();
    each_once(&output, 0..10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_written_in_the_transaction_that_passes_it_by() {
    let (input, output, dead) = (Topic::shared(&[]).await, Topic::shared(&[]).await, Topic::shared(&[]).await);
    send(&input, "key", 0..10).await;
    let transform = |message: &Message| match message.sequence.as_ref().unwrap().sequence {
        4 => Err(Failure::hopeless("four is no number")),
        _ => Ok(vec![copy(message, &output.name)]),
    };
    let pipeline = pipeline(&input, transform).with_dead_letters(&dead.name).unwrap();
    let tally = pipeline.run(written(&output, 9)).await.unwrap();
    assert_eq!((tally.read, tally.written, tally.dead), (10, 10, 1));
    let letters = dead.read();
    let [letter] = letters.as_slice() else { panic!("{letters:?}") };
    assert_eq!((letter.key.as_str(), letter.payload.as_slice(), letter.sequence()), ("key", &b"4"[..], 4));
    assert_eq!(letter.headers["semel_dead_cause"], "four is no number");
    assert_eq!(letter.headers["semel_dead_attempts"], "1");
    assert!(letter.headers["semel_dead_place"].ends_with("/4"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_record_aborts_its_transaction_and_nothing_of_it_is_seen() {
    let (input, output) = (Topic::shared(&[]).await, Topic::shared(&[("max.message.bytes", "1000")]).await);
    send(&input, "key", 0..5).await;
    let transform = |message: &Message| {
        let large = Out::new(&output.name, "key", vec![0; 5000]).with_header("n", "99");
        let last = message.sequence.as_ref().unwrap().sequence == 4;
        Ok(vec![copy(message, &output.name)].into_iter().chain(last.then_some(large)).collect())
    };
    let error = pipeline(&input, transform).with_attempts(2).run(std::future::pending()).await.unwrap_err();
    assert!(matches!(&error, Error::Refused(reason) if reason.contains(&output.name)), "{error:?}");
    pipeline(&input, copier(&output)).run(written(&output, 5)).await.unwrap();
    each_once(&output, 0..5);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_transaction_is_read_again_and_leaves_one_result() {
    let (input, output) = (Topic::shared(&[]).await, Topic::shared(&[("max.message.bytes", "1000")]).await);
    send(&input, "key", 0..30).await;
    let large = AtomicU32::new(2);
    let transform = |message: &Message| {
        let mut outs = vec![copy(message, &output.name)];
        let is_last = message.sequence.as_ref().unwrap().sequence == 15;
        let taken = large.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(is_last.into()));
        if is_last && taken.is_ok() {
            outs.push(Out::new(&output.name, "key", vec![0; 5000]).with_header("n", "99"));
        }
        Ok(outs)
    };
    let tally = pipeline(&input, transform).run(written(&output, 30)).await.unwrap();
    assert_eq!((tally.read, tally.written), (30, 30));
    assert!(tally.aborted > 0, "{tally:?}");
    each_once(&output, 0..30);
}

/// One begins, another joins it under load, and the first leaves under load when both have done something. How long the
/// group takes to share its partitions is the broker's affair, so records keep coming until it has.
#[tokio::test(flavor = "multi_thread")]
async fn members_that_come_and_go_leave_each_record_once() {
    const ROUND: u64 = 100;
    let (input, output) = (Topic::shared(&[]).await, Topic::shared(&[]).await);
    let passed = [AtomicU64::new(0), AtomicU64::new(0)];
    let [first, second] = [("first", &passed[0]), ("second", &passed[1])].map(|(instance, passed)| {
        let counting = |message: &Message| {
            passed.fetch_add(1, Ordering::Relaxed);
            Ok(vec![copy(message, &output.name)])
        };
        pipeline(&input, counting).with_instance(instance).unwrap()
    });
    let (joins, leaves, ends) = (Notify::new(), Notify::new(), Notify::new());
    let sink = input.sink("").await;
    let round = async |sent: &mut u64| {
        let numbers = *sent..*sent + ROUND;
        *sent = numbers.end;
        let events: Vec<_> =
            numbers.map(|n| input.event(&format!("key-{}", n % 20), n, n.to_string().into_bytes())).collect();
        assert!(publish(&sink, &events, 0).await.iter().all(|result| result == "ok"));
    };
    let feeding = async {
        let (mut sent, gives_up) = (0, Instant::now() + PATIENCE);
        round(&mut sent).await;
        joins.notify_one();
        while passed.iter().any(|passed| passed.load(Ordering::Relaxed) == 0) {
            assert!(Instant::now() < gives_up, "{passed:?} of {sent}");
            round(&mut sent).await;
            // One round ahead of them, so that they are at work whenever the group changes.
            written(&output, (sent - ROUND) as usize).await;
        }
        round(&mut sent).await;
        leaves.notify_one();
        round(&mut sent).await;
        written(&output, sent as usize).await;
        ends.notify_one();
        sent
    };
    let joining = async {
        joins.notified().await;
        second.run(ends.notified()).await
    };
    let (first, second, sent) = tokio::join!(first.run(leaves.notified()), joining, feeding);
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(first.read > 0 && second.read > 0, "{first:?} {second:?}");
    assert_eq!(first.read + second.read, sent);
    each_once(&output, 0..sent);
}

/// A mistake, and a process that was taken for dead: they fence each other, and neither writes what the other has.
#[tokio::test(flavor = "multi_thread")]
async fn two_that_run_as_the_same_instance_still_leave_each_record_once() {
    let (input, output) = (Topic::shared(&[]).await, Topic::shared(&[]).await);
    send(&input, "key", 0..200).await;
    let twins =
        [copier(&output), copier(&output)].map(|copier| pipeline(&input, copier).with_instance("same").unwrap());
    let [one, other] = &twins;
    let (one, other) = tokio::join!(one.run(written(&output, 200)), other.run(written(&output, 200)));
    for ended in [&one, &other] {
        assert!(matches!(ended, Ok(_) | Err(Error::Fenced)), "{ended:?}");
    }
    if one.is_err() && other.is_err() {
        pipeline(&input, copier(&output)).with_instance("same").unwrap().run(written(&output, 200)).await.unwrap();
    }
    each_once(&output, 0..200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transform_may_wait_and_at_least_once_can_be_compared_with() {
    struct Slow(String);

    impl Transform for Slow {
        async fn transform(&self, message: &Message) -> Result<Vec<Out>, Failure> {
            tokio::task::yield_now().await;
            Ok(vec![copy(message, &self.0)])
        }
    }

    let (input, output) = (Topic::shared(&[]).await, Topic::shared(&[]).await);
    send(&input, "key", 0..50).await;
    let pipeline = pipeline(&input, Slow(output.name.clone())).with_guarantee(Guarantee::AtLeastOnce);
    let tally = pipeline.run(written(&output, 50)).await.unwrap();
    assert_eq!((tally.read, tally.written), (50, 50));
    each_once(&output, 0..50);
}

#[test]
fn what_cannot_work_is_refused_at_once() {
    let nothing = |_: &Message| Ok(Vec::new());
    for (url, inputs, word) in [
        ("kafka://h/?mode=transactional", vec!["a"], "mode"),
        ("kafka://h/", vec![], "topic"),
        ("kafka://h/", vec!["two words"], "two words"),
    ] {
        let error = Pipeline::new(url, &inputs, "group", "prefix", nothing).map(drop).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
}
