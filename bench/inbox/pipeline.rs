//! From one topic of Kafka to another, exactly once and at least once.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures_util::future::try_join_all;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{FutureProducer, FutureRecord};
use semel::Message;
use semel_bench::processor::Used;
use semel_brokers::kafka::pipeline::{Failure, Out, Pipeline};
use tokio::sync::OnceCell;

use crate::bench::Bench;
use crate::case::Piped;
use crate::load::{Numbered, PARTITIONS};
use crate::meter::{Measured, rate};

const INPUT: &str = "said";
const OUTPUT: &str = "repeated";

/// How many records are sent before their acknowledgements are waited for.
const WINDOW: u64 = 10_000;

/// The longest that one pipeline may take.
const LIMIT: Duration = Duration::from_secs(300);

/// The topics, filled when they are first asked for.
#[derive(Debug, Default)]
pub(crate) struct Topics(OnceCell<()>);

/// What a pipeline has seen so far.
#[derive(Debug, Default)]
struct Seen {
    records: AtomicU64,
    began: std::sync::OnceLock<Instant>,
    ended: std::sync::OnceLock<Instant>,
}

/// Measures a case: every record of the input, from the first that is read to the last commit.
pub(crate) async fn measure(bench: &Bench, topics: &Topics, piped: Piped) -> Result<Measured> {
    topics.0.get_or_try_init(|| fill(bench)).await?;
    let (records, name) = (bench.options.records(), bench.stage.fresh_name());
    let seen = Arc::new(Seen::default());
    let seeing = Arc::clone(&seen);
    let repeat = move |message: &Message| -> Result<Vec<Out>, Failure> {
        seeing.began.get_or_init(Instant::now);
        seeing.records.fetch_add(1, Ordering::Relaxed);
        Ok(vec![Out::new(OUTPUT, message.ordering_key.clone(), message.payload.clone())])
    };
    let pipeline = Pipeline::new(&bench.kafka()?.url(), &[INPUT], &name, &name, repeat)?
        .with_guarantee(piped.guarantee)
        .with_batch(piped.batch, Duration::from_millis(100));
    // It is asked between batches, when the last one is committed.
    let stop = poll_fn(|_| {
        if seen.records.load(Ordering::Relaxed) < records {
            return Poll::Pending;
        }
        seen.ended.get_or_init(Instant::now);
        Poll::Ready(())
    });
    let before = Used::now(bench.stage.postmaster);
    let running = tokio::time::timeout(LIMIT, pipeline.run(stop));
    let tally = running.await.context("the pipeline was not through in time")??;
    let used = Used::now(bench.stage.postmaster);
    if tally.read < records {
        bail!("{records} records were written and {} read", tally.read);
    }
    let (Some(began), Some(ended)) = (seen.began.get(), seen.ended.get()) else { bail!("nothing was read") };
    Ok(Measured {
        messages_per_second: rate(tally.read, *ended - *began),
        messages_per_commit: tally.read as f64 / tally.committed.max(1) as f64,
        journal_bytes: None,
        processor: used.since(before, tally.read),
        troubles: tally.aborted,
    })
}

/// Creates the topics and writes the input.
async fn fill(bench: &Bench) -> Result<()> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bench.kafka()?.address().to_string());
    let admin: AdminClient<DefaultClientContext> = config.create()?;
    let partitions = i32::try_from(PARTITIONS)?;
    let topics = [INPUT, OUTPUT].map(|name| NewTopic::new(name, partitions, TopicReplication::Fixed(1)));
    for created in admin.create_topics(&topics, &AdminOptions::new()).await? {
        created.map_err(|(topic, code)| anyhow::anyhow!("the topic {topic} was not created: {code}"))?;
    }
    let (records, payload) = (bench.options.records(), vec![b'.'; bench.options.payload_bytes]);
    eprintln!("writing {records} records");
    let producer: FutureProducer = config.set("enable.idempotence", "true").create()?;
    for first in (0..records).step_by(usize::try_from(WINDOW)?) {
        let sent = (first..records.min(first + WINDOW)).map(|number| {
            let key = Numbered(number).account().to_string();
            producer.send_result(FutureRecord::to(INPUT).key(&key).payload(&payload)).map_err(|(error, _)| error)
        });
        for delivered in try_join_all(sent.collect::<Result<Vec<_>, _>>()?).await? {
            delivered.map_err(|(error, _)| error)?;
        }
    }
    Ok(())
}
