//! Pipelines that are killed.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use semel::source::Message;
use semel_brokers::kafka::pipeline::{Failure, Out};
use semel_testkit::counts::rounds;

use crate::cluster::{Topic, shared_url};
use crate::consuming::send;
use crate::pipeline::{copier, copy, each_once, pipeline, written};

const INPUT: &str = "SEMEL_TEST_PIPELINE_INPUT";
const OUTPUT: &str = "SEMEL_TEST_PIPELINE_OUTPUT";
/// After how many records, and how many microseconds later.
const DIES: &str = "SEMEL_TEST_PIPELINE_DIES";

/// I4 inside Kafka: kills before, during and after the commit lose nothing and double nothing for a reader of committed
/// records.
#[tokio::test(flavor = "multi_thread")]
async fn killed_pipelines_leave_each_record_once() {
    let (input, output) = (Topic::shared(&[]).await, Topic::shared(&[]).await);
    let kills = u64::from(rounds(5, 200));
    for kill in 0..kills {
        send(&input, &format!("key-{}", kill % 7), kill * 60..kill * 60 + 60).await;
        // The last record of a batch was transformed: its transaction begins, is filled, and commits.
        let (records, moment_us) = (20 * (1 + kill % 3), kill * 7919 % 12_000);
        let killed = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "pipeline_crash::a_pipeline_that_is_killed", "--nocapture"])
            .envs([(INPUT, &input.name), (OUTPUT, &output.name)])
            .env(DIES, format!("{records} {moment_us}"))
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
    let (records, moment_us) = dies.split_once(' ').unwrap();
    let records: u32 = records.parse().unwrap();
    let moment = Duration::from_micros(moment_us.parse().unwrap());
    let (input, output) = (Topic { url: shared_url(), name: input }, Topic { url: shared_url(), name: output });
    let seen = AtomicU32::new(0);
    let transform = |message: &Message| -> Result<Vec<Out>, Failure> {
        if seen.fetch_add(1, Ordering::Relaxed) + 1 == records {
            std::thread::spawn(move || {
                // The moment is what is tested; nobody waits for anything here.
                std::thread::park_timeout(moment);
                kill_process(getpid(), Signal::KILL).unwrap();
            });
        }
        Ok(vec![copy(message, &output.name)])
    };
    let killed = pipeline(&input, transform).with_instance("killed").unwrap();
    killed.run(std::future::pending()).await.unwrap();
}
