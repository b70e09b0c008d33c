//! The suite that every source passes, on Redis Streams, and what is Redis's own.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, FromRedisValue};
use semel::Source;
use semel::sink::Outgoing;
use semel::source::{Error, Received, Redelivery};
use semel_brokers::redis::{Receipt, RedisSource};
use semel_brokers::{Subscription, connect};
use semel_testkit::broker::server_url;
use semel_testkit::poll::{PATIENCE, until};
use semel_testkit::redis::{Redis, RedisRecipe};
use semel_testkit::sinks::{batch, publish};
use semel_testkit::sources::{Harness, Restart};

/// Streams on a server, the first of which is the suite's topic.
struct Streams {
    url: String,
    name: String,
    server: Option<Redis>,
}

impl Streams {
    fn on_shared() -> Streams {
        Streams { url: server_url::<RedisRecipe>(), name: unique(), server: None }
    }

    fn source_url(&self, rest: &str) -> String {
        format!("{}?stream={}&claim_after=1500ms{rest}", self.url, self.name)
    }

    async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
    }

    async fn order<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.connection().await).await.unwrap()
    }

    /// Publishes so many events to a stream, numbered from one.
    async fn fill(&self, stream: &str, count: u64) {
        Harness::publish(self, &batch(stream, 0, 1..count + 1, 3)).await;
    }

    /// How many entries the group has handed out and not seen acknowledged.
    async fn pending(&self) -> usize {
        let held: Vec<redis::Value> = self.order(&["XPENDING", &self.name, "c", "-", "+", "100000"]).await;
        held.len()
    }

    async fn members(&self) -> usize {
        let members: Vec<redis::Value> = self.order(&["XINFO", "CONSUMERS", &self.name, "c"]).await;
        members.len()
    }
}

impl Harness for Streams {
    type Source = RedisSource;

    async fn shared() -> Streams {
        Streams::on_shared()
    }

    async fn open(&self, consumer: &str, generation: u32) -> RedisSource {
        let subscription = Subscription::new(consumer).in_generation(generation);
        RedisSource::open(&self.source_url(""), &subscription).await.unwrap()
    }

    async fn publish(&self, events: &[Outgoing]) {
        let sink = connect(&self.url, "test").await.unwrap();
        let results = publish(&sink, events).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }

    fn topic(&self) -> String {
        self.name.clone()
    }

    fn longest(&self) -> Option<Duration> {
        None
    }
}

impl Restart for Streams {
    async fn own() -> Streams {
        let server = Redis::temporary().unwrap();
        Streams { url: server.url(), name: unique(), server: Some(server) }
    }

    fn kill(&mut self) {
        self.server.as_mut().unwrap().kill().unwrap();
    }

    async fn restart(&mut self) {
        self.server.as_mut().unwrap().restart().unwrap();
    }
}

semel_testkit::source_tests!(Streams);

fn unique() -> String {
    format!("test-{}", uuid::Uuid::new_v4().simple())
}

/// Receives until there are so many.
async fn take(source: &RedisSource, count: usize) -> Vec<Received<Receipt>> {
    let mut received = Vec::new();
    while received.len() < count {
        let more = tokio::time::timeout(PATIENCE, source.receive(100)).await.expect("nothing came");
        received.extend(more.unwrap());
    }
    assert_eq!(received.len(), count);
    received
}

async fn acknowledge(source: &RedisSource, received: &[Received<Receipt>]) {
    let receipts: Vec<&Receipt> = received.iter().map(|it| &it.receipt).collect();
    source.acknowledge(&receipts).await.unwrap();
}

fn sequences(received: &[Received<Receipt>]) -> Vec<u64> {
    let mut sequences: Vec<u64> = received.iter().map(|it| it.message.sequence.as_ref().unwrap().sequence).collect();
    sequences.sort_unstable();
    sequences
}

#[tokio::test]
async fn what_is_given_back_comes_again_long_before_claim_after() {
    let streams = Streams::on_shared();
    streams.fill(&streams.name, 5).await;
    let url = streams.source_url("").replace("claim_after=1500ms", "claim_after=1h");
    let source = RedisSource::open(&url, &Subscription::new("c")).await.unwrap();
    let received = take(&source, 5).await;
    let receipts: Vec<&Receipt> = received.iter().map(|it| &it.receipt).collect();
    source.give_back(&receipts[1..4]).await.unwrap();
    assert_eq!(sequences(&take(&source, 3).await), [2, 3, 4]);
}

#[tokio::test]
async fn a_reader_that_closes_leaves_no_member_and_loses_nothing_that_it_held() {
    let streams = Streams::on_shared();
    streams.fill(&streams.name, 8).await;
    let url = streams.source_url("").replace("claim_after=1500ms", "claim_after=1h");
    let open = async || RedisSource::open(&url, &Subscription::new("c")).await.unwrap();
    let source = open().await;
    let received = take(&source, 8).await;
    acknowledge(&source, &received[..3]).await;
    source.close().await;
    assert!(matches!(source.receive(1).await, Err(Error::Unavailable(_))));
    let next = open().await;
    let again = take(&next, 5).await;
    assert_eq!(sequences(&again), [4, 5, 6, 7, 8]);
    acknowledge(&next, &again).await;
    assert_eq!(streams.members().await, 2, "the one that reads, and the name of what was given back");
    next.close().await;
    assert_eq!((streams.members().await, streams.pending().await), (1, 0));
}

#[tokio::test]
async fn several_streams_are_read_and_each_says_which_it_was() {
    let streams = Streams::on_shared();
    let second = unique();
    streams.fill(&streams.name, 30).await;
    streams.fill(&second, 20).await;
    let url = streams.source_url(&format!("&stream={second}"));
    let source = RedisSource::open(&url, &Subscription::new("c")).await.unwrap();
    // Few at a time, so that one read brings more than is asked for.
    let mut received = Vec::new();
    while received.len() < 50 {
        let some = source.receive(1).await.unwrap();
        assert_eq!(some.len(), 1);
        received.extend(some);
    }
    let of_second = received.iter().filter(|it| it.message.topic == second).count();
    assert_eq!(of_second, 20);
    acknowledge(&source, &received).await;
    assert_eq!(streams.pending().await, 0);
    let left: Vec<redis::Value> = streams.order(&["XPENDING", &second, "c", "-", "+", "100"]).await;
    assert!(left.is_empty());
}

#[tokio::test]
async fn a_group_that_is_gone_is_made_again_from_the_first_entry() {
    let streams = Streams::on_shared();
    streams.fill(&streams.name, 4).await;
    let source = streams.open("c", 0).await;
    let received = take(&source, 4).await;
    acknowledge(&source, &received).await;
    let _: i64 = streams.order(&["XGROUP", "DESTROY", &streams.name, "c"]).await;
    let mut again = Vec::new();
    until("the entries come again", async || {
        match source.receive(10).await {
            Ok(received) => again.extend(received),
            Err(error) => assert!(matches!(error, Error::Unavailable(_)), "{error:?}"),
        }
        again.len() >= 4
    })
    .await;
    assert_eq!(sequences(&again), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_foreign_entry_goes_by_its_place_and_without_a_payload_it_cannot_be_applied() {
    let streams = Streams::on_shared();
    let source = streams.open("c", 0).await;
    let placed: String = streams.order(&["XADD", &streams.name, "*", "payload", "x"]).await;
    let _: String = streams.order(&["XADD", &streams.name, "*", "amount", "7"]).await;
    let received = take(&source, 2).await;
    assert_eq!(received[0].message.id, format!("{}:{placed}", streams.name));
    assert_eq!((received[0].unusable.as_deref(), &received[0].message.payload[..]), (None, &b"x"[..]));
    assert!(received[1].unusable.as_ref().unwrap().contains("`payload`"));
}

#[tokio::test]
async fn without_a_word_in_the_url_an_entry_may_come_again_without_end() {
    let streams = Streams::on_shared();
    let Redelivery::Unlimited { because } = streams.open("c", 0).await.redelivery().await.unwrap() else { panic!() };
    assert!(because.contains("`redelivery=`"), "{because}");
    let told = RedisSource::open(&streams.source_url("&redelivery=7d"), &Subscription::new("c")).await.unwrap();
    let Redelivery::Within { longest, because } = told.redelivery().await.unwrap() else { panic!() };
    assert_eq!(longest, Duration::from_secs(7 * 24 * 3600));
    assert!(because.contains("redelivery=7days"), "{because}");
}

#[tokio::test]
async fn a_url_that_cannot_work_is_refused_with_the_reason() {
    let streams = Streams::on_shared();
    let taken = unique();
    let _: String = streams.order(&["SET", &taken, "something else"]).await;
    let cases = [
        (streams.url.clone(), "stream=NAME"),
        (format!("{}?stream=a&stream=a", streams.url), "twice"),
        (format!("{}?stream=a&claim_after=1ms", streams.url), "between 100ms"),
        (format!("{}?stream=a&maxlen=5", streams.url), "claim_after"),
        (format!("{}?stream={taken}", streams.url), "is no stream"),
    ];
    for (url, expected) in cases {
        let error = RedisSource::open(&url, &Subscription::new("c")).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains(semel_testkit::broker::PASSWORD), "{error}");
    }
}
