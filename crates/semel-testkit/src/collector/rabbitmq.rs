//! A queue of RabbitMQ.

use std::fmt;

use lapin::options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use tokio::sync::Mutex;

use super::{Arrival, topics_of, unique};
use crate::broker::server_url;
use crate::rabbitmq::RabbitMqRecipe;

/// A queue with a name of its own, and an exchange that fills it.
pub struct RabbitMqQueue {
    url: String,
    name: String,
    topics: [String; 2],
    _connection: Connection,
    channel: Channel,
    /// Reading a queue empties it.
    read: Mutex<Vec<Arrival>>,
}

impl fmt::Debug for RabbitMqQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the queue {}", self.name)
    }
}

impl RabbitMqQueue {
    /// A new queue on the shared server.
    pub async fn create() -> RabbitMqQueue {
        let (url, name) = (server_url::<RabbitMqRecipe>(), unique());
        let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let short = |text: &str| ShortString::from(text);
        let exchange = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let none = FieldTable::default;
        channel.exchange_declare(short(&name), ExchangeKind::Direct, exchange, none()).await.unwrap();
        let queue = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(short(&name), queue, none()).await.unwrap();
        let topics = topics_of(&name);
        for topic in &topics {
            let binding = QueueBindOptions::default();
            channel.queue_bind(short(&name), short(&name), short(topic), binding, none()).await.unwrap();
        }
        RabbitMqQueue { url, name, topics, _connection: connection, channel, read: Mutex::default() }
    }

    pub(super) fn sink_url(&self) -> String {
        format!("{}?exchange={}", self.url, self.name)
    }

    pub(super) fn topics(&self) -> &[String; 2] {
        &self.topics
    }

    pub(super) async fn arrived(&self) -> Vec<Arrival> {
        let mut read = self.read.lock().await;
        let queue = || ShortString::from(self.name.as_str());
        while let Some(message) = self.channel.basic_get(queue(), BasicGetOptions { no_ack: true }).await.unwrap() {
            let delivery = &message.delivery;
            let fields = delivery.properties.headers().as_ref().unwrap().inner();
            let text = |name: &str| match fields.get(name) {
                Some(AMQPValue::LongString(text)) => String::from_utf8(text.as_bytes().to_vec()).unwrap(),
                other => panic!("the header {name} is {other:?}"),
            };
            read.push(Arrival {
                id: text("cloudEvents_id"),
                topic: delivery.routing_key.as_str().to_owned(),
                event_type: text("cloudEvents_type"),
                ordering_key: text("cloudEvents_partitionkey"),
                lane: text("semel-lane").parse().unwrap(),
                sequence: text("semel-sequence").parse().unwrap(),
                incarnation: text("semel-incarnation"),
                payload: delivery.data.clone(),
            });
        }
        read.clone()
    }
}
