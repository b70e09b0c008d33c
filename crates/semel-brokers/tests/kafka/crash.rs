//! Publishers that are killed, in transactional mode.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use semel::sink::Outgoing;
use semel_testkit::kafka as server;

use crate::cluster::{Topic, first_occurrences, publish, take};

const URL: &str = "SEMEL_TEST_CRASH_URL";
const TOPIC: &str = "SEMEL_TEST_CRASH_TOPIC";

#[tokio::test(flavor = "multi_thread")]
async fn killed_publishers_leave_each_event_once_where_the_position_says() {
    let topic = Topic::shared(&[]).await;
    let kills = if std::env::var_os("SEMEL_TEST_LONG").is_some() { 200 } else { 50 };
    for kill in 0..kills {
        let mut publisher = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::the_publisher_to_kill", "--nocapture"])
            .envs([(URL, &topic.url), (TOPIC, &topic.name)])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(publisher.stdout.take().unwrap()).lines();
        // After its start, or after one or two commits, and then at some moment of the next transaction.
        let seen = lines.by_ref().map_while(Result::ok).filter(|line| line.contains("publishing")).take(1 + kill % 3);
        assert_eq!(seen.count(), 1 + kill % 3, "the publisher ended by itself");
        std::thread::sleep(Duration::from_micros((kill as u64 * 7919) % 12_000));
        publisher.kill().unwrap();
        publisher.wait().unwrap();
    }
    let position = take(&topic.sink("mode=transactional").await).await.unwrap();
    each_once(&topic, position);
    assert!(position > kills as u64, "hardly anything was published between the kills");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_killed_under_transactions_leaves_each_event_once_where_the_position_says() {
    let mut kafka = server::Kafka::temporary().unwrap();
    let topic = Topic::on(&kafka.url(), &[]).await;
    let mut next = 0;
    for kill in 1..4 {
        let sink = topic.sink("mode=transactional&timeout_ms=3000").await;
        next = take(&sink).await.unwrap_or(next);
        let (killed, publishing) = tokio::join!(
            async {
                // Some transactions commit before the kill, which comes in the middle of another.
                tokio::time::sleep(Duration::from_millis(kill * 150)).await;
                tokio::task::block_in_place(|| kafka.kill())
            },
            async {
                loop {
                    let results = publish(&sink, &batch(&topic, next), next + 20).await;
                    if results.iter().any(|result| result != "ok") {
                        return results;
                    }
                    next += 20;
                }
            }
        );
        killed.unwrap();
        assert!(publishing[0].starts_with("unavailable"), "{publishing:?}");
        kafka.restart().unwrap();
        let position = take(&topic.sink("mode=transactional&timeout_ms=60000").await).await.unwrap_or(0);
        // The transaction that was cut off either committed or did not; what was acknowledged before it did.
        assert!(position == next || position == next + 20, "{position} after {next}");
        next = position;
    }
    each_once(&topic, next);
}

/// Not a test of its own: the process that the test above starts and kills.
#[tokio::test(flavor = "multi_thread")]
async fn the_publisher_to_kill() {
    let (Ok(url), Ok(name)) = (std::env::var(URL), std::env::var(TOPIC)) else { return };
    let topic = Topic { url, name };
    let sink = topic.sink("mode=transactional").await;
    let mut next = take(&sink).await.unwrap_or(0);
    loop {
        tell_progress(next);
        let batch: Vec<_> =
            (next..next + 20).map(|n| topic.event(&format!("key-{}", n % 5), n, vec![1; 200])).collect();
        next += 20;
        let results = publish(&sink, &batch, next).await;
        assert!(results.iter().all(|result| result == "ok"), "{results:?}");
    }
}

fn batch(topic: &Topic, next: u64) -> Vec<Outgoing> {
    (next..next + 20).map(|n| topic.event(&format!("key-{}", n % 5), n, vec![1; 200])).collect()
}

fn each_once(topic: &Topic, position: u64) {
    let arrived = topic.read();
    let ids: HashSet<&str> = arrived.iter().map(|record| record.id()).collect();
    let sequences: HashSet<u64> = arrived.iter().map(|record| record.sequence()).collect();
    assert_eq!(arrived.len(), ids.len(), "a reader of committed records found duplicates");
    assert_eq!(sequences, (0..position).collect(), "what arrived is not what the position says");
    assert!(first_occurrences(&arrived).values().all(|sequences| sequences.is_sorted()));
}

#[allow(clippy::print_stdout)]
fn tell_progress(next: u64) {
    println!("publishing from {next}");
}
