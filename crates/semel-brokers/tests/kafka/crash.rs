//! Publishers that are killed, in transactional mode.

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use semel::sink::Outgoing;
use semel_testkit::counts::rounds;
use semel_testkit::kafka as server;
use tokio::sync::watch;

use crate::cluster::{Topic, first_occurrences, publish, take};

const URL: &str = "SEMEL_TEST_CRASH_URL";
const TOPIC: &str = "SEMEL_TEST_CRASH_TOPIC";
/// After how many commits, and how many microseconds into the next publication.
const DIES: &str = "SEMEL_TEST_CRASH_DIES";

#[tokio::test(flavor = "multi_thread")]
async fn killed_publishers_leave_each_event_once_where_the_position_says() {
    let topic = Topic::shared(&[]).await;
    let kills = rounds(8, 200);
    for kill in 0..kills {
        // In its first transaction, or after one or two commits.
        let commits = kill % 3;
        let moment_us = kill * 7919 % 12_000;
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::a_publisher_that_is_killed", "--nocapture"])
            .envs([(URL, &topic.url), (TOPIC, &topic.name)])
            .env(DIES, format!("{commits} {moment_us}"))
            .output()
            .unwrap();
        assert_eq!(output.status.signal(), Some(Signal::KILL.as_raw()), "{output:?}");
    }
    let position = take(&topic.sink("mode=transactional").await).await.unwrap();
    each_once(&topic, position);
    assert!(position > u64::from(kills), "hardly anything was published between the kills");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_killed_under_transactions_leaves_each_event_once_where_the_position_says() {
    let mut kafka = server::Kafka::temporary().unwrap();
    let topic = Topic::on(&kafka.url(), &[]).await;
    let mut next = 0;
    for kill in 1..=rounds(1, 3) {
        let sink = topic.sink("mode=transactional&timeout_ms=3000").await;
        next = take(&sink).await.unwrap_or(next);
        let (committed, mut commits) = watch::channel(0);
        let (killed, publishing) = tokio::join!(
            async {
                // Some transactions commit before the kill, which comes in the middle of another.
                commits.wait_for(|commits| *commits >= kill * 15).await.unwrap();
                tokio::task::block_in_place(|| kafka.kill())
            },
            async {
                loop {
                    let results = publish(&sink, &batch(&topic, next), next + 20).await;
                    if results.iter().any(|result| result != "ok") {
                        return results;
                    }
                    next += 20;
                    committed.send_modify(|commits| *commits += 1);
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

/// The body of the process that is killed; alone it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_is_killed() {
    let (Ok(url), Ok(name), Ok(dies)) = (std::env::var(URL), std::env::var(TOPIC), std::env::var(DIES)) else { return };
    let (commits, moment_us) = dies.split_once(' ').unwrap();
    let topic = Topic { url, name };
    let sink = topic.sink("mode=transactional").await;
    let mut next = take(&sink).await.unwrap_or(0);
    for _ in 0..commits.parse().unwrap() {
        let results = publish(&sink, &batch(&topic, next), next + 20).await;
        assert!(results.iter().all(|result| result == "ok"), "{results:?}");
        next += 20;
    }
    let last = batch(&topic, next);
    let mut publishing = pin!(publish(&sink, &last, next + 20));
    let moment = Duration::from_micros(moment_us.parse().unwrap());
    // Whether it was through by then or not, nothing is dropped or put in order before the end.
    let _ = tokio::time::timeout(moment, &mut publishing).await;
    kill_process(getpid(), Signal::KILL).unwrap();
    std::future::pending().await
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
