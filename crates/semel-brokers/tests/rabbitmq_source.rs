//! The suite that every source passes, on RabbitMQ, and what is RabbitMQ's own.
#![cfg(feature = "rabbitmq")]
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use semel::Source;
use semel::sink::Outgoing;
use semel::source::{Error, Received, Redelivery};
use semel_brokers::rabbitmq::{RabbitMqSource, Receipt};
use semel_brokers::{Subscription, connect};
use semel_testkit::broker::{PASSWORD, server_url};
use semel_testkit::poll::{PATIENCE, until};
use semel_testkit::rabbitmq::{RabbitMq, RabbitMqRecipe};
use semel_testkit::sinks::{batch, publish};
use semel_testkit::sources::{Harness, Restart};

struct Queue {
    url: String,
    name: String,
    server: Option<RabbitMq>,
}

impl Queue {
    /// A durable queue, which a sink without an exchange publishes to by its name.
    async fn declared(url: String, server: Option<RabbitMq>) -> Queue {
        let queue = Queue { url, name: unique(), server };
        let (_connection, channel) = queue.channel().await;
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        for name in [queue.name.clone(), format!("{} is declared", queue.name)] {
            channel.queue_declare(ShortString::from(name), durable, FieldTable::default()).await.unwrap();
        }
        queue
    }

    async fn shared() -> Queue {
        Queue::declared(server_url::<RabbitMqRecipe>(), None).await
    }

    async fn channel(&self) -> (Connection, Channel) {
        let connection = Connection::connect(&self.url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        (connection, channel)
    }

    fn source_url(&self, rest: &str) -> String {
        format!("{}?queue={}{rest}", self.url, self.name)
    }

    async fn open(&self, rest: &str) -> RabbitMqSource {
        RabbitMqSource::open(&self.source_url(rest), &Subscription::new("c")).await.unwrap()
    }

    async fn publish(&self, count: u64) {
        let sink = connect(&self.url, "test").await.unwrap();
        let results = publish(&sink, &batch(&self.name, 0, 1..count + 1, 3)).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }

    /// How many messages wait in the queue, with nobody.
    async fn waiting(&self) -> u32 {
        let (_connection, channel) = self.channel().await;
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let name = ShortString::from(self.name.as_str());
        channel.queue_declare(name, passive, FieldTable::default()).await.unwrap().message_count()
    }
}

/// An exchange for the suite. Each of its consumers has a queue of its own, which it makes itself.
struct Exchange {
    url: String,
    name: String,
    server: Option<RabbitMq>,
}

impl Exchange {
    async fn on(url: String, server: Option<RabbitMq>) -> Exchange {
        let (queue, name) = (Queue::declared(url.clone(), None).await, unique());
        let (_connection, channel) = queue.channel().await;
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let exchange = ShortString::from(name.as_str());
        channel.exchange_declare(exchange.clone(), ExchangeKind::Topic, durable, FieldTable::default()).await.unwrap();
        if server.is_some() {
            // A replicated queue that was made seconds before its only server is killed may never find a leader again,
            // so the consumer finds another kind of queue.
            let queue = ShortString::from(format!("{name}-surviving"));
            let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(queue.clone(), durable, FieldTable::default()).await.unwrap();
            let (all, options) = (ShortString::from("#"), QueueBindOptions::default());
            channel.queue_bind(queue, exchange, all, options, FieldTable::default()).await.unwrap();
            // What takes a binding to the disk of a server that has just started is a queue declared behind it.
            Queue::declared(url.clone(), None).await;
        }
        Exchange { url, name, server }
    }
}

impl Harness for Exchange {
    type Source = RabbitMqSource;

    async fn shared() -> Exchange {
        Exchange::on(server_url::<RabbitMqRecipe>(), None).await
    }

    async fn open(&self, consumer: &str, generation: u32) -> RabbitMqSource {
        let (url, name) = (&self.url, &self.name);
        let url = format!("{url}?queue={name}-{consumer}&create=true&exchange={name}&key=%23&redelivery=5d");
        let subscription = Subscription::new(consumer).in_generation(generation);
        RabbitMqSource::open(&url, &subscription).await.unwrap()
    }

    async fn publish(&self, events: &[Outgoing]) {
        let sink = connect(&format!("{}?exchange={}", self.url, self.name), "test").await.unwrap();
        let results = publish(&sink, events).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }

    fn topic(&self) -> String {
        format!("{} topic", self.name)
    }

    fn longest(&self) -> Option<Duration> {
        Some(Duration::from_secs(5 * 24 * 3600))
    }
}

impl Restart for Exchange {
    async fn own() -> Exchange {
        let server = RabbitMq::temporary().unwrap();
        Exchange::on(server.url(), Some(server)).await
    }

    fn kill(&mut self) {
        self.server.as_mut().unwrap().kill().unwrap();
    }

    async fn restart(&mut self) {
        self.server.as_mut().unwrap().restart().unwrap();
    }
}

// A queue keeps no history for another generation, and its messages stay with whoever has them without a word.
semel_testkit::source_tests! { @modules Exchange,
    arriving {
        a_message_arrives_whole,
        messages_of_a_key_arrive_in_their_order,
        a_receive_that_is_dropped_loses_nothing,
        how_long_a_message_may_come_again_is_told_as_the_broker_is_set,
    }
    redelivering {
        what_is_not_acknowledged_comes_again_after_a_crash_and_the_rest_does_not,
        what_is_given_back_comes_again,
    }
    sharing {
        two_who_read_as_one_consumer_share_the_messages,
        another_consumer_gets_every_message_too,
    }
    restarting {
        a_broker_killed_in_the_middle_loses_nothing,
    }
}

fn unique() -> String {
    format!("test-{}", uuid::Uuid::new_v4().simple())
}

async fn take(source: &RabbitMqSource, count: usize) -> Vec<Received<Receipt>> {
    let mut received = Vec::new();
    while received.len() < count {
        let more = tokio::time::timeout(PATIENCE, source.receive(100)).await.expect("nothing came");
        received.extend(more.unwrap());
    }
    assert_eq!(received.len(), count);
    received
}

fn receipts(received: &[Received<Receipt>]) -> Vec<&Receipt> {
    received.iter().map(|it| &it.receipt).collect()
}

fn sequences(received: &[Received<Receipt>]) -> Vec<u64> {
    received.iter().map(|it| it.message.sequence.as_ref().unwrap().sequence).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_queue_is_refused_with_the_way_out_and_made_if_asked_for() {
    let url = server_url::<RabbitMqRecipe>();
    let queue = Queue { url, name: unique(), server: None };
    let (_connection, channel) = queue.channel().await;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let exchange = || ShortString::from(queue.name.as_str());
    channel.exchange_declare(exchange(), ExchangeKind::Topic, durable, FieldTable::default()).await.unwrap();

    let missing = RabbitMqSource::open(&queue.source_url(""), &Subscription::new("c")).await.unwrap_err().to_string();
    assert!(missing.contains("does not exist") && missing.contains("create=true"), "{missing}");
    assert!(!missing.contains(PASSWORD), "{missing}");

    let source = queue.open(&format!("&create=true&exchange={}", queue.name)).await;
    let sink = connect(&format!("{}?exchange={}", queue.url, queue.name), "test").await.unwrap();
    let results = publish(&sink, &batch("any topic", 0, 1..6, 2)).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let received = take(&source, 5).await;
    assert_eq!(received[0].message.topic, "any topic");
    source.acknowledge(&receipts(&received)).await.unwrap();
    source.close().await;
    // The queue that was made is found again.
    queue.open("").await.close().await;
    assert_eq!(queue.waiting().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_messages_than_the_prefetch_are_unacknowledged() {
    let queue = Queue::shared().await;
    queue.publish(12).await;
    let source = queue.open("&prefetch=5").await;
    let first = take(&source, 5).await;
    assert_eq!((sequences(&first), queue.waiting().await), (vec![1, 2, 3, 4, 5], 7));
    source.acknowledge(&receipts(&first[..2])).await.unwrap();
    let more = take(&source, 2).await;
    assert_eq!((sequences(&more), queue.waiting().await), (vec![6, 7], 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_back_comes_again_before_what_is_behind_it() {
    let queue = Queue::shared().await;
    queue.publish(6).await;
    let source = queue.open("&prefetch=4").await;
    let first = take(&source, 4).await;
    source.give_back(&receipts(&first[1..])).await.unwrap();
    let again = take(&source, 3).await;
    assert_eq!(sequences(&again), [2, 3, 4]);
    assert_eq!(again[0].message, first[1].message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_known_by_its_message_id_and_without_one_cannot_be_recognised() {
    let queue = Queue::shared().await;
    let (_connection, channel) = queue.channel().await;
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let named = BasicProperties::default()
        .with_message_id(ShortString::from("one"))
        .with_type(ShortString::from("charge.created"))
        .with_content_type(ShortString::from("text/plain"));
    for properties in [named, BasicProperties::default()] {
        let (exchange, name) = (ShortString::from(""), ShortString::from(queue.name.as_str()));
        let publishing = channel.basic_publish(exchange, name, BasicPublishOptions::default(), b"x", properties);
        publishing.await.unwrap().await.unwrap();
    }
    let source = queue.open("").await;
    let received = take(&source, 2).await;
    let message = &received[0].message;
    let known = (message.id.as_str(), message.message_type.as_str(), message.content_type.as_str());
    assert_eq!(known, ("one", "charge.created", "text/plain"));
    assert_eq!((&message.payload[..], received[0].unusable.as_deref()), (&b"x"[..], None));
    assert!(received[1].unusable.as_ref().unwrap().contains("no id"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_long_messages_may_come_again_is_assumed_unless_the_url_says_it() {
    let queue = Queue::shared().await;
    let Redelivery::Within { longest, because } = queue.open("").await.redelivery().await.unwrap() else { panic!() };
    assert_eq!(longest, Duration::from_secs(3 * 24 * 3600));
    assert!(because.contains("assumed") && because.contains("`redelivery=`"), "{because}");
    let told = queue.open("&redelivery=14d").await.redelivery().await.unwrap();
    let Redelivery::Within { longest, because } = told else { panic!() };
    assert_eq!(longest, Duration::from_secs(14 * 24 * 3600));
    assert!(because.contains("redelivery=14days"), "{because}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_that_cannot_work_is_refused_with_the_reason() {
    let url = server_url::<RabbitMqRecipe>();
    let cases = [
        (url.clone(), "queue=NAME"),
        (format!("{url}?queue=q&exchange=e"), "create=true"),
        (format!("{url}?queue=q&create=true&key=k"), "needs an `exchange`"),
        (format!("{url}?queue=q&prefetch=0"), "between 1 and 65535"),
        (format!("{url}?queue=q&nobody=1"), "`nobody`"),
        (format!("{url}?queue=q").replace(PASSWORD, "hidden"), "refuses the user"),
    ];
    for (url, expected) in cases {
        let error = RabbitMqSource::open(&url, &Subscription::new("c")).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains(PASSWORD) && !error.contains("hidden"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_broker_was_killed_what_was_in_hand_comes_again_and_its_receipts_are_void() {
    let server = RabbitMq::temporary().unwrap();
    let mut queue = Queue::declared(server.url(), Some(server)).await;
    queue.publish(6).await;
    let source = queue.open("").await;
    let first = take(&source, 6).await;
    source.acknowledge(&receipts(&first[..1])).await.unwrap();
    // The acknowledgement is written, and nobody confirms it: it counts when the broker has read it.
    assert_eq!(queue.waiting().await, 0);
    queue.server.as_mut().unwrap().kill().unwrap();
    assert!(matches!(source.receive(1).await, Err(Error::Unavailable(_))));
    queue.server.as_mut().unwrap().restart().unwrap();
    let mut again = Vec::new();
    until("they come again", async || {
        again.extend(source.receive(10).await.unwrap_or_default());
        again.len() >= 5
    })
    .await;
    // Receipts of the lost connection say nothing about what came over the new one.
    source.acknowledge(&receipts(&first[1..])).await.unwrap();
    let mut all = sequences(&again);
    all.sort_unstable();
    assert!(all.ends_with(&[2, 3, 4, 5, 6]), "{all:?}");
    source.close().await;
    assert_eq!(queue.waiting().await as usize, again.len());
}
