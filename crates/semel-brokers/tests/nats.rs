//! The suite that every sink passes, on NATS JetStream, and what is NATS's own.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use async_nats::jetstream::{self, Context, stream};
use percent_encoding::percent_decode_str;
use semel::sink::{Error, Guarantee};
use semel::{Event, Sink};
use semel_brokers::{AnySink, connect};
use semel_testkit::broker::{PASSWORD, server_url};
use semel_testkit::nats::{Nats, NatsRecipe};
use semel_testkit::sinks::{Arrived, Harness, batch, outgoing, publish};

struct OnNats {
    url: String,
    name: String,
    server: Option<Nats>,
}

impl OnNats {
    async fn on(url: String, server: Option<Nats>) -> OnNats {
        let name = format!("test-{}", uuid::Uuid::new_v4().simple());
        let harness = OnNats { url, name, server };
        let subjects = vec![format!("{}.stored.>", harness.name)];
        let config = stream::Config { name: harness.name.clone(), subjects, ..stream::Config::default() };
        harness.context().await.create_stream(config).await.unwrap();
        harness
    }

    async fn context(&self) -> Context {
        let url = url::Url::parse(&self.url).unwrap();
        let (user, password) = (url.username().to_owned(), url.password().unwrap_or_default().to_owned());
        let options = async_nats::ConnectOptions::with_user_and_password(user, password);
        let address = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(4222));
        jetstream::new(options.connect(address).await.unwrap())
    }

    fn sink_url(&self) -> String {
        format!("{}?stream={}&prefix={}.", self.url, self.name, self.name)
    }
}

impl Harness for OnNats {
    type Sink = AnySink;

    async fn shared() -> OnNats {
        OnNats::on(server_url::<NatsRecipe>(), None).await
    }

    async fn own() -> OnNats {
        let server = Nats::temporary().unwrap();
        OnNats::on(server.url(), Some(server)).await
    }

    async fn connect(&self) -> AnySink {
        connect(&self.sink_url(), "test").await.unwrap()
    }

    async fn connect_with_password(&self, password: &str) -> Result<(), String> {
        let url = self.sink_url().replace(PASSWORD, password);
        connect(&url, "test").await.map(drop).map_err(|error| format!("{error} {error:?}"))
    }

    fn topic(&self) -> String {
        "stored.two words".to_owned()
    }

    async fn refused(&self, key: &str) -> Vec<Event> {
        vec![
            Event::bytes("elsewhere", key, "t", "c", "no stream has this subject").unwrap(),
            // With its headers it is over the server's max_payload of 1 MiB.
            Event::bytes(self.topic(), key, "t", "c", vec![0; semel::event::MAX_PAYLOAD_BYTES]).unwrap(),
        ]
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let stream = self.context().await.get_stream(&self.name).await.unwrap();
        let mut arrived = Vec::new();
        for sequence in 1..=stream.cached_info().state.last_sequence {
            let message = stream.get_raw_message(sequence).await.unwrap();
            assert_eq!(message.subject.as_str(), format!("{}.stored.two%20words", self.name));
            let headers = &message.headers;
            let text = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
            let attribute = |name: &str| {
                let value = text(name).unwrap_or_else(|| panic!("no header {name}"));
                percent_decode_str(&value).decode_utf8().unwrap().into_owned()
            };
            assert_eq!(text("Nats-Msg-Id").unwrap(), attribute("ce-id"));
            assert_eq!(attribute("ce-specversion"), "1.0");
            let ours = ["ce-", "semel-", "Nats-", "trace"];
            let mut own: Vec<(String, String)> = headers
                .iter()
                .filter(|(name, _)| !ours.iter().any(|ours| name.to_string().starts_with(ours)))
                .flat_map(|(name, values)| values.iter().map(|v| (name.to_string(), v.as_str().to_owned())))
                .collect();
            own.sort();
            arrived.push(Arrived {
                id: attribute("ce-id"),
                source: attribute("ce-source"),
                event_type: attribute("ce-type"),
                time: attribute("ce-time"),
                content_type: attribute("ce-datacontenttype"),
                ordering_key: attribute("ce-partitionkey"),
                lane: attribute("semel-lane").parse().unwrap(),
                sequence: attribute("semel-sequence").parse().unwrap(),
                incarnation: attribute("semel-incarnation"),
                traceparent: text("traceparent").map(|_| attribute("traceparent")),
                tracestate: text("tracestate").map(|_| attribute("tracestate")),
                headers: own,
                payload: message.payload.to_vec(),
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

semel_testkit::sink_tests!(OnNats);

#[tokio::test]
async fn the_guarantee_names_the_streams_own_window() {
    let harness = OnNats::shared().await;
    let config = stream::Config {
        name: harness.name.clone(),
        subjects: vec![format!("{}.stored.>", harness.name)],
        duplicate_window: Duration::from_secs(17),
        ..stream::Config::default()
    };
    harness.context().await.update_stream(config).await.unwrap();
    let guarantee = harness.connect().await.guarantee();
    assert_eq!(guarantee, Guarantee::Deduplicated { window: Duration::from_secs(17) });
}

#[tokio::test]
async fn a_missing_stream_is_refused_with_what_to_create_or_created_on_request() {
    let server = server_url::<NatsRecipe>();
    let name = format!("test-{}", uuid::Uuid::new_v4().simple());
    let url = format!("{server}?stream={name}&prefix={name}.");
    let error = connect(&url, "test").await.unwrap_err().to_string();
    assert!(error.contains("nats stream add") && error.contains("create=true"), "{error}");
    let sink = connect(&format!("{url}&create=true"), "test").await.unwrap();
    let results = publish(&sink, &batch("orders", 0, 0..10, 2)).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

#[tokio::test]
async fn an_event_never_lands_in_another_stream_than_the_one_named() {
    let harness = OnNats::shared().await;
    let other = OnNats::shared().await;
    let url = format!("{}?stream={}&prefix={}.", harness.url, harness.name, other.name);
    let sink = connect(&url, "test").await.unwrap();
    let event = Event::bytes(other.topic(), "k", "t", "c", "x").unwrap();
    let results = publish(&sink, &[outgoing(0, 1, event)]).await;
    assert!(matches!(results[0], Err(Error::Refused(_))), "{results:?}");
    assert_eq!(other.arrived().await, []);
}

#[tokio::test]
async fn a_stream_that_takes_nothing_more_makes_events_wait() {
    for full in [true, false] {
        let harness = OnNats::shared().await;
        let sink = harness.connect().await;
        assert!(publish(&sink, &batch(&harness.topic(), 0, 0..1, 1)).await[0].is_ok());
        let config = stream::Config {
            name: harness.name.clone(),
            subjects: vec![format!("{}.stored.>", harness.name)],
            max_messages: if full { 1 } else { -1 },
            discard: if full { stream::DiscardPolicy::New } else { stream::DiscardPolicy::Old },
            sealed: !full,
            ..stream::Config::default()
        };
        harness.context().await.update_stream(config).await.unwrap();
        let results = publish(&sink, &batch(&harness.topic(), 0, 1..3, 2)).await;
        assert!(results.iter().all(|result| matches!(result, Err(Error::Unavailable(_)))), "{full}: {results:?}");
    }
}

#[tokio::test]
async fn a_header_can_neither_pose_as_an_attribute_nor_steer_the_broker() {
    let harness = OnNats::shared().await;
    let sink = harness.connect().await;
    let event = Event::bytes(harness.topic(), "k", "t", "c", "x").unwrap();
    let event = event.header("ce-id", "forged").unwrap().header("Nats-Rollup", "all").unwrap();
    let results = publish(&sink, &[outgoing(0, 1, event.clone()), outgoing(0, 2, event)]).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let stream = harness.context().await.get_stream(&harness.name).await.unwrap();
    assert_eq!(stream.cached_info().state.messages, 2);
    let message = stream.get_raw_message(1).await.unwrap();
    assert_eq!(message.headers.get("semel-header-ce-id").unwrap().as_str(), "forged");
    assert_ne!(message.headers.get("ce-id").unwrap().as_str(), "forged");
}
