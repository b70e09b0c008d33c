//! The suite that every sink passes, on RabbitMQ, and what is RabbitMQ's own.
#![allow(clippy::unwrap_used, missing_docs)]

use lapin::options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use semel::Event;
use semel::sink::Error;
use semel_brokers::{AnySink, connect};
use semel_testkit::broker::{PASSWORD, server_url};
use semel_testkit::rabbitmq::{MAX_MESSAGE_BYTES, RabbitMq, RabbitMqRecipe};
use semel_testkit::sinks::{Arrived, Harness, batch, outgoing, publish};

struct OnRabbitMq {
    url: String,
    name: String,
    server: Option<RabbitMq>,
}

impl OnRabbitMq {
    async fn on(url: String, server: Option<RabbitMq>) -> OnRabbitMq {
        let name = format!("test {}", uuid::Uuid::new_v4().simple());
        let harness = OnRabbitMq { url, name, server };
        let (_connection, channel) = harness.channel().await;
        let exchange = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let name = || ShortString::from(harness.name.as_str());
        channel.exchange_declare(name(), ExchangeKind::Direct, exchange, FieldTable::default()).await.unwrap();
        let queue = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(name(), queue, FieldTable::default()).await.unwrap();
        let binding = QueueBindOptions::default();
        channel.queue_bind(name(), name(), name(), binding, FieldTable::default()).await.unwrap();
        // A RabbitMQ that has just started and is killed may come back without a binding that it had confirmed: now and
        // then one waits for seconds in a buffer. Another durable queue takes the buffer to the disk.
        let last = ShortString::from(format!("{} is bound", harness.name));
        channel.queue_declare(last, queue, FieldTable::default()).await.unwrap();
        harness
    }

    async fn channel(&self) -> (Connection, Channel) {
        let connection = Connection::connect(&self.url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        (connection, channel)
    }

    fn sink_url(&self) -> String {
        format!("{}?exchange={}", self.url, self.name.replace(' ', "%20"))
    }
}

impl Harness for OnRabbitMq {
    type Sink = AnySink;

    async fn shared() -> OnRabbitMq {
        OnRabbitMq::on(server_url::<RabbitMqRecipe>(), None).await
    }

    async fn own() -> OnRabbitMq {
        let server = RabbitMq::temporary().unwrap();
        OnRabbitMq::on(server.url(), Some(server)).await
    }

    async fn connect(&self) -> AnySink {
        connect(&self.sink_url(), "test").await.unwrap()
    }

    async fn connect_with_password(&self, password: &str) -> Result<(), String> {
        let url = self.sink_url().replace(PASSWORD, password);
        connect(&url, "test").await.map(drop).map_err(|error| format!("{error} {error:?}"))
    }

    fn topic(&self) -> String {
        self.name.clone()
    }

    async fn refused(&self, key: &str) -> Vec<Event> {
        vec![Event::bytes("bound to no queue", key, "t", "c", "x").unwrap()]
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let (_connection, channel) = self.channel().await;
        let mut arrived = Vec::new();
        let queue = || ShortString::from(self.name.as_str());
        while let Some(message) = channel.basic_get(queue(), BasicGetOptions { no_ack: true }).await.unwrap() {
            let properties = &message.delivery.properties;
            assert_eq!(*properties.delivery_mode(), Some(2));
            let fields = properties.headers().as_ref().unwrap().inner();
            let find = |name: &str| fields.get(name).map(text);
            let attribute = |name: &str| find(name).unwrap_or_else(|| panic!("no header {name}"));
            assert_eq!(attribute("cloudEvents_specversion"), "1.0");
            assert_eq!(properties.message_id().as_ref().unwrap().as_str(), attribute("cloudEvents_id"));
            let ours = ["cloudEvents_", "semel-", "trace"];
            let own = fields.iter().filter(|(name, _)| !ours.iter().any(|ours| name.as_str().starts_with(ours)));
            arrived.push(Arrived {
                id: attribute("cloudEvents_id"),
                source: attribute("cloudEvents_source"),
                event_type: attribute("cloudEvents_type"),
                time: attribute("cloudEvents_time"),
                content_type: properties.content_type().as_ref().unwrap().as_str().to_owned(),
                ordering_key: attribute("cloudEvents_partitionkey"),
                lane: attribute("semel-lane").parse().unwrap(),
                sequence: attribute("semel-sequence").parse().unwrap(),
                incarnation: attribute("semel-incarnation"),
                traceparent: find("traceparent"),
                tracestate: find("tracestate"),
                headers: own.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect(),
                payload: message.delivery.data.clone(),
            });
        }
        arrived
    }

    fn kill(&mut self) {
        self.server.as_mut().unwrap().kill().unwrap();
    }

    async fn restart(&mut self) {
        self.server.as_mut().unwrap().restart().unwrap();
    }
}

fn text(value: &AMQPValue) -> String {
    let AMQPValue::LongString(text) = value else { panic!("{value:?} is no text") };
    String::from_utf8(text.as_bytes().to_vec()).unwrap()
}

semel_testkit::sink_tests!(OnRabbitMq);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_unroutable_event_among_many_in_flight_is_the_one_refused() {
    let harness = OnRabbitMq::shared().await;
    let sink = harness.connect().await;
    let mut sent = batch(&harness.topic(), 0, 0..900, 900);
    for (index, outgoing) in sent.iter_mut().enumerate() {
        if index % 7 == 3 {
            outgoing.event.topic = format!("nowhere {index}");
        }
    }
    let results = publish(&sink, &sent).await;
    for (outgoing, result) in sent.iter().zip(&results) {
        let lost = outgoing.event.topic != harness.topic();
        assert_eq!(matches!(result, Err(Error::Refused(_))), lost, "{} {result:?}", outgoing.sequence);
        assert_eq!(result.is_ok(), !lost, "{} {result:?}", outgoing.sequence);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_exchange_is_refused_by_name_at_the_start_and_waited_for_later() {
    let harness = OnRabbitMq::shared().await;
    let error = connect(&format!("{}?exchange=missing", harness.url), "test").await.unwrap_err().to_string();
    assert!(error.contains("\"missing\" does not exist"), "{error}");

    let sink = harness.connect().await;
    let (_connection, channel) = harness.channel().await;
    channel.exchange_delete(ShortString::from(harness.name.as_str()), Default::default()).await.unwrap();
    let sent = batch(&harness.topic(), 0, 0..20, 20);
    for batch in [&sent[..], &sent[..1], &sent[1..2], &sent[..]] {
        let results = publish(&sink, batch).await;
        assert!(results.iter().all(|result| matches!(result, Err(Error::Unavailable(_)))), "{results:?}");
    }
    let exchange = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let name = || ShortString::from(harness.name.as_str());
    channel.exchange_declare(name(), ExchangeKind::Direct, exchange, FieldTable::default()).await.unwrap();
    channel.queue_bind(name(), name(), name(), QueueBindOptions::default(), FieldTable::default()).await.unwrap();
    let results = publish(&sink, &sent).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_exchange_topics_are_queues() {
    let harness = OnRabbitMq::shared().await;
    let sink = connect(&harness.url, "test").await.unwrap();
    let event = Event::bytes(harness.topic(), "k", "t", "c", "x").unwrap();
    let results = publish(&sink, &[outgoing(0, 1, event)]).await;
    assert!(results[0].is_ok(), "{results:?}");
    assert_eq!(harness.arrived().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_makes_the_broker_close_the_channel_is_found_and_refused() {
    let harness = OnRabbitMq::own().await;
    let sink = harness.connect().await;
    let mut sent = batch(&harness.topic(), 0, 0..40, 20);
    sent[7].event.payload = vec![0; MAX_MESSAGE_BYTES + 1].into();
    // The channel broke with other events in it: nobody knows over which, so none is blamed.
    let first = publish(&sink, &sent).await;
    assert!(!first.iter().any(|result| matches!(result, Err(Error::Refused(_)))), "{first:?}");
    // Sent one by one, it is found: those before it arrive, and what could not be sent after it waits.
    let second = publish(&sink, &sent).await;
    assert!(second[..7].iter().all(Result::is_ok), "{second:?}");
    assert!(matches!(second[7], Err(Error::Refused(_))), "{second:?}");
    let others: Vec<_> =
        sent.iter().filter(|it| it.event.ordering_key != sent[7].event.ordering_key).cloned().collect();
    let third = publish(&sink, &others).await;
    assert!(third.iter().all(Result::is_ok), "{third:?}");
}

/// The lane whose event broke a channel is sent one by one next, whichever lane publishes in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_makes_the_broker_close_the_channel_is_found_though_other_lanes_publish_meanwhile() {
    let harness = OnRabbitMq::own().await;
    let sink = harness.connect().await;
    let mut sent = batch(&harness.topic(), 3, 0..20, 20);
    sent[7].event.payload = vec![0; MAX_MESSAGE_BYTES + 1].into();
    let broken = publish(&sink, &sent).await;
    assert!(broken.iter().any(|result| matches!(result, Err(Error::Unavailable(_)))), "{broken:?}");
    for lane in [0, 4] {
        let others = publish(&sink, &batch(&harness.topic(), lane, 0..20, 20)).await;
        assert!(others.iter().all(Result::is_ok), "{others:?}");
    }
    let again = publish(&sink, &sent).await;
    assert!(again[..7].iter().all(Result::is_ok), "{again:?}");
    assert!(matches!(again[7], Err(Error::Refused(_))), "{again:?}");
}
