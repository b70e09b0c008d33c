//! Pipelines that are killed.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use rustix::process::{Signal, getpid, kill_process};
use semel::source::Message;
use semel_brokers::kafka::pipeline::{Failure, Out};
use semel_testkit::counts::rounds;
use semel_testkit::poll::PATIENCE;

use crate::cluster::{Topic, shared_url};
use crate::consuming::send;
use crate::pipeline::{copier, copy, each_once, pipeline, written};

const INPUT: &str = "SEMEL_TEST_PIPELINE_INPUT";
const OUTPUT: &str = "SEMEL_TEST_PIPELINE_OUTPUT";
/// After how many records, and then how many microseconds later, or as soon as the broker has their results.
const DIES: &str = "SEMEL_TEST_PIPELINE_DIES";
const SEEN: &str = "seen";

/// I4 inside Kafka: kills before, during and after the commit lose nothing and double nothing for a reader of committed
/// records.
#[tokio::test(flavor = "multi_thread")]
async fn killed_pipelines_leave_each_record_once() {
    let (input, output) = (Topic::shared(&[]).await, Topic::shared(&[]).await);
    let kills = u64::from(rounds(8, 200));
    for kill in 0..kills {
        send(&input, &format!("key-{}", kill % 7), kill * 60..kill * 60 + 60).await;
        // The last record of a batch was transformed: its transaction begins, is filled, and commits.
        let records = 20 * (1 + kill % 3);
        let moment = if kill % 2 == 0 { SEEN.to_owned() } else { (kill * 7919 % 12_000).to_string() };
        let killed = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "pipeline_crash::a_pipeline_that_is_killed", "--nocapture"])
            .envs([(INPUT, &input.name), (OUTPUT, &output.name)])
            .env(DIES, format!("{records} {moment}"))
            .output()
            .unwrap();
        assert_eq!(killed.status.signal(), Some(Signal::KILL.as_raw()), "{killed:?}");
    }
    let total = kills * 60;
    let last = pipeline(&input, copier(&output)).with_instance("killed").unwrap();
    let tally = last.run(written(&output, usize::try_from(total).unwrap())).await.unwrap();
    assert!(tally.read < total, "nothing was committed between the kills");
    each_once(&output, 0..total);
}

/// The body of the process that is killed; alone it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_is_killed() {
    let (Ok(input), Ok(output), Ok(dies)) = (std::env::var(INPUT), std::env::var(OUTPUT), std::env::var(DIES)) else {
        return;
    };
    let (records, moment) = dies.split_once(' ').unwrap();
    let records: u32 = records.parse().unwrap();
    let (input, output) = (Topic { url: shared_url(), name: input }, Topic { url: shared_url(), name: output });
    let watch = (moment == SEEN).then(|| tokio::task::block_in_place(|| Watch::begin(&output)));
    let moment = Duration::from_micros(moment.parse().unwrap_or(0));
    let (seen, watch) = (AtomicU32::new(0), Mutex::new(watch));
    let transform = |message: &Message| -> Result<Vec<Out>, Failure> {
        if seen.fetch_add(1, Ordering::Relaxed) + 1 == records {
            let (watch, number) = (watch.lock().unwrap().take(), message.sequence.as_ref().unwrap().sequence);
            std::thread::spawn(move || {
                match watch {
                    Some(watch) => watch.wait_for(number),
                    // The moment is what is tested; nobody waits for anything here.
                    None => std::thread::park_timeout(moment),
                }
                kill_process(getpid(), Signal::KILL).unwrap();
            });
        }
        Ok(vec![copy(message, &output.name)])
    };
    let killed = pipeline(&input, transform).with_instance("killed").unwrap();
    killed.run(std::future::pending()).await.unwrap();
}

/// Sees what is written from now on, before it is committed.
struct Watch(BaseConsumer);

impl Watch {
    fn begin(topic: &Topic) -> Watch {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", topic.url.trim_start_matches("kafka://").trim_end_matches('/'))
            .set("group.id", "semel-tests-watch")
            .set("enable.auto.commit", "false")
            .set("isolation.level", "read_uncommitted")
            .set("fetch.wait.max.ms", "1000")
            .create()
            .unwrap();
        let partitions = consumer.fetch_metadata(Some(&topic.name), PATIENCE).unwrap().topics()[0].partitions().len();
        let mut ends = TopicPartitionList::new();
        for partition in 0..i32::try_from(partitions).unwrap() {
            let (_, end) = consumer.fetch_watermarks(&topic.name, partition, PATIENCE).unwrap();
            ends.add_partition_offset(&topic.name, partition, Offset::Offset(end)).unwrap();
        }
        consumer.assign(&ends).unwrap();
        Watch(consumer)
    }

    fn wait_for(&self, number: u64) {
        let expected = number.to_string().into_bytes();
        loop {
            let Some(Ok(record)) = self.0.poll(PATIENCE) else { continue };
            let mut headers = record.headers().into_iter().flat_map(Headers::iter);
            if headers.any(|header| header.key == "n" && header.value == Some(&expected)) {
                return;
            }
        }
    }
}
