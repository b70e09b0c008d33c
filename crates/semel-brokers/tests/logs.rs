//! What the sinks and their client libraries log: neither payloads nor passwords, however much is asked for.
#![allow(clippy::unwrap_used)]

use std::io;
use std::sync::{Arc, Mutex};

use semel::{Event, Sink};
use semel_brokers::{connect, may_log};
use semel_testkit::broker::{PASSWORD, server_url};
use semel_testkit::nats::NatsRecipe;
use semel_testkit::rabbitmq::RabbitMqRecipe;
use semel_testkit::redis::RedisRecipe;
use semel_testkit::sinks::{outgoing, publish};
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;

const PAYLOAD: &str = "a-payload-for-nobodys-log";

/// Log lines, kept.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

impl Lines {
    /// Everything logged so far, and nothing of it the next time.
    fn take(&self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut *self.0.lock().unwrap())).into_owned()
    }
}

/// A sink that takes the topic `stored`, and one that refuses `nowhere`, on every broker.
async fn publish_everywhere() {
    let nats = server_url::<NatsRecipe>();
    let stream = format!("logs-{}", uuid::Uuid::new_v4().simple());
    let nobody = semel_testkit::cluster::free_port().unwrap();
    let mut urls = vec![
        format!("{nats}?stream={stream}&prefix={stream}.&create=true"),
        server_url::<RedisRecipe>(),
        server_url::<RabbitMqRecipe>(),
        format!("http://semel:{PASSWORD}@127.0.0.1:{nobody}/?semel_allow_loopback=true&semel_timeout_ms=1000"),
    ];
    if cfg!(feature = "kafka") {
        urls.push(std::env::var("SEMEL_TEST_KAFKA_URL").unwrap_or_else(|_| kafka()));
    }
    for url in urls {
        let sink = connect(&url, "logs").await.unwrap();
        for topic in ["stored", "no where"] {
            let event = Event::bytes(topic, "key", "test.logged", "text/plain", PAYLOAD).unwrap();
            let event = event.header("note", PAYLOAD).unwrap();
            // Refused or not: what is asked is what is said about it.
            let _ = publish(&sink, &[outgoing(0, 1, event)]).await;
        }
        sink.close().await;
        let wrong = url.replace(PASSWORD, "wr0ng-and-hidden");
        let _ = connect(&wrong, "logs").await.map(drop);
    }
}

fn kafka() -> String {
    use semel_testkit::kafka::{Kafka, server_dir};
    let kafka = Kafka::running(&server_dir()).unwrap().expect("no Kafka: run `cargo xtask services up`");
    let url = kafka.url();
    kafka.keep_running();
    url
}

/// One test only in this program, because the subscriber is the process's: client libraries log from threads of their
/// own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_payloads_nor_passwords_are_logged_at_any_level() {
    let (limited, unlimited) = (Lines::default(), Lines::default());
    let layer = |lines: &Lines| tracing_subscriber::fmt::layer().with_ansi(false).with_writer(lines.clone());
    let with_limit = layer(&limited).with_filter(filter_fn(may_log)).boxed();
    let without = layer(&unlimited).with_filter(LevelFilter::TRACE).boxed();
    tracing_subscriber::registry().with(vec![with_limit, without]).init();
    publish_everywhere().await;
    let said = limited.take();
    for hidden in [PAYLOAD, PASSWORD, "wr0ng-and-hidden"] {
        let leak = said.lines().find(|line| line.contains(hidden));
        assert!(leak.is_none(), "{leak:?}");
    }
    assert!(said.contains("async_nats"), "nothing was logged at all");
    assert!(unlimited.take().contains(PAYLOAD), "no library leaks any more: the limit has become needless");
}
