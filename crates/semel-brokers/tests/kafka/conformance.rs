//! The suite that every sink passes, on Kafka with an idempotent producer.

use semel::Event;
use semel_brokers::{AnySink, connect};
use semel_testkit::kafka as server;
use semel_testkit::sinks::{Arrived, Harness};

use crate::cluster::Topic;

struct OnKafka {
    topic: Topic,
    server: Option<server::Kafka>,
}

impl OnKafka {
    async fn sink(&self, url: &str) -> Result<AnySink, semel_brokers::Error> {
        connect(&format!("{url}?timeout_ms=4000"), "test").await
    }
}

impl Harness for OnKafka {
    type Sink = AnySink;

    async fn shared() -> OnKafka {
        OnKafka { topic: Topic::shared(&[]).await, server: None }
    }

    async fn own() -> OnKafka {
        let server = server::Kafka::temporary().unwrap();
        OnKafka { topic: Topic::on(&server.url(), &[]).await, server: Some(server) }
    }

    async fn connect(&self) -> AnySink {
        self.sink(&self.topic.url).await.unwrap()
    }

    async fn connect_with_password(&self, password: &str) -> Result<(), String> {
        // The listener that asks for passwords is a private server's own.
        let server = server::Kafka::temporary().unwrap();
        self.sink(&server.url_with_password(server::PASSWORD)).await.unwrap();
        let wrong = self.sink(&server.url_with_password(password)).await;
        wrong.map(drop).map_err(|error| format!("{error} {error:?}"))
    }

    fn topic(&self) -> String {
        self.topic.name.clone()
    }

    async fn refused(&self, key: &str) -> Vec<Event> {
        vec![
            Event::bytes(format!("{}-missing", self.topic.name), key, "t", "c", "there is no such topic").unwrap(),
            Event::bytes("two words", key, "t", "c", "no topic can have this name").unwrap(),
            // With its headers it is over the topic's max.message.bytes of little more than 1 MiB.
            Event::bytes(self.topic(), key, "t", "c", vec![0; semel::event::MAX_PAYLOAD_BYTES]).unwrap(),
        ]
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let ours = ["ce_", "semel_", "trace", "content-type"];
        let arrived = self.topic.read().into_iter().map(|record| {
            let text = |name: &str| record.headers.get(name).cloned();
            let attribute = |name: &str| text(name).unwrap_or_else(|| panic!("no header {name}"));
            assert_eq!(attribute("ce_specversion"), "1.0");
            assert_eq!(attribute("ce_partitionkey"), record.key);
            let own = record.headers.iter().filter(|(name, _)| !ours.iter().any(|ours| name.starts_with(ours)));
            let mut headers: Vec<(String, String)> = own.map(|(name, value)| (name.clone(), value.clone())).collect();
            headers.sort();
            Arrived {
                id: attribute("ce_id"),
                source: attribute("ce_source"),
                event_type: attribute("ce_type"),
                time: attribute("ce_time"),
                content_type: attribute("content-type"),
                ordering_key: record.key.clone(),
                lane: attribute("semel_lane").parse().unwrap(),
                sequence: record.sequence(),
                incarnation: attribute("semel_incarnation"),
                traceparent: text("traceparent"),
                tracestate: text("tracestate"),
                headers,
                payload: record.payload.clone(),
            }
        });
        arrived.collect()
    }

    fn kill(&mut self) {
        self.server.as_mut().unwrap().kill().unwrap();
    }

    async fn restart(&mut self) {
        self.server.as_mut().unwrap().restart().unwrap();
    }
}

semel_testkit::sink_tests!(OnKafka);
