//! The suite that every source passes, on NATS JetStream, and what is NATS's own.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::{self, Context, stream};
use semel::Source;
use semel::sink::Outgoing;
use semel::source::Redelivery;
use semel_brokers::{AnySource, Subscription, connect, open};
use semel_testkit::broker::{PASSWORD, server_url};
use semel_testkit::nats::{Nats, NatsRecipe};
use semel_testkit::poll::until;
use semel_testkit::sinks::publish;
use semel_testkit::sources::{Harness, Restart, numbered, receive, settle_all, take};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

struct OnNats {
    url: String,
    name: String,
    server: Option<Nats>,
}

impl OnNats {
    async fn on(url: String, server: Option<Nats>) -> OnNats {
        let name = format!("test-{}", uuid::Uuid::new_v4().simple());
        let harness = OnNats { url, name, server };
        harness.context().await.create_stream(harness.stream(3 * DAY)).await.unwrap();
        harness
    }

    fn stream(&self, max_age: Duration) -> stream::Config {
        let subjects = vec![format!("{}.>", self.name)];
        stream::Config { name: self.name.clone(), subjects, max_age, ..stream::Config::default() }
    }

    async fn context(&self) -> Context {
        let url = url::Url::parse(&self.url).unwrap();
        let (user, password) = (url.username().to_owned(), url.password().unwrap_or_default().to_owned());
        let options = async_nats::ConnectOptions::with_user_and_password(user, password);
        let address = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(4222));
        jetstream::new(options.connect(address).await.unwrap())
    }

    /// Publishes as somebody else than Semel would.
    async fn publish_foreign(&self, topic: &str, headers: HeaderMap, payload: &'static str) {
        let subject = format!("{}.{topic}", self.name);
        self.context().await.publish_with_headers(subject, headers, payload.into()).await.unwrap().await.unwrap();
    }

    fn source_url(&self, rest: &str) -> String {
        format!("{}?stream={}&prefix={}.{rest}", self.url, self.name, self.name)
    }

    async fn open_with(&self, consumer: &str, rest: &str) -> AnySource {
        open(&self.source_url(rest), &Subscription::new(consumer)).await.unwrap()
    }
}

impl Harness for OnNats {
    type Source = AnySource;

    async fn shared() -> OnNats {
        OnNats::on(server_url::<NatsRecipe>(), None).await
    }

    async fn open(&self, consumer: &str, generation: u32) -> AnySource {
        let subscription = Subscription::new(consumer).in_generation(generation);
        open(&self.source_url("&ack_wait=2s"), &subscription).await.unwrap()
    }

    async fn publish(&self, events: &[Outgoing]) {
        let sink = connect(&format!("{}?stream={}&prefix={}.", self.url, self.name, self.name), "test").await.unwrap();
        let results = publish(&sink, events).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }

    fn topic(&self) -> String {
        "stored.two words".to_owned()
    }

    fn longest(&self) -> Option<Duration> {
        Some(3 * DAY)
    }
}

impl Restart for OnNats {
    async fn own() -> OnNats {
        let server = Nats::temporary().unwrap();
        OnNats::on(server.url(), Some(server)).await
    }

    fn kill(&mut self) {
        self.server.as_mut().unwrap().kill().unwrap();
    }

    async fn restart(&mut self) {
        self.server.as_mut().unwrap().restart().unwrap();
    }
}

semel_testkit::source_tests!(OnNats);

#[tokio::test]
async fn a_foreign_message_is_known_by_the_first_of_its_names() {
    let harness = OnNats::shared().await;
    let source = harness.open_with("naming", "&ack_wait=10m").await;
    let mut headers = HeaderMap::new();
    headers.insert("Tenant", "acme");
    harness.publish_foreign("a", headers.clone(), "no name").await;
    headers.insert("Nats-Msg-Id", "by NATS");
    harness.publish_foreign("b", headers.clone(), "one name").await;
    headers.insert("Nats-Msg-Id", "by NATS, too");
    headers.insert("ce-id", "by%20CloudEvents");
    harness.publish_foreign("c", headers, "two names").await;

    let taken = take(&source, 3).await;
    let ids: Vec<&str> = taken.iter().map(|(message, _)| message.id.as_str()).collect();
    assert!(ids[0].starts_with(&format!("{}:1:", harness.name)), "{ids:?}");
    assert_eq!(ids[1..], ["by NATS", "by CloudEvents"]);
    for (message, topic) in taken.iter().map(|(message, _)| message).zip(["a", "b", "c"]) {
        assert_eq!((message.topic.as_str(), message.ordering_key.as_str()), (topic, message.id.as_str()));
        assert_eq!(message.headers, [("Tenant".to_owned(), "acme".to_owned())]);
        assert_eq!(message.sequence, None);
    }
    source.give_back(&[&taken[0].1]).await.unwrap();
    let again = take(&source, 1).await;
    assert_eq!(again[0].0, taken[0].0, "it has the same name at every delivery");
}

#[tokio::test]
async fn a_stream_that_keeps_messages_for_ever_says_so_unless_the_operator_knows_better() {
    let harness = OnNats::shared().await;
    let context = harness.context().await;
    context.update_stream(harness.stream(Duration::ZERO)).await.unwrap();
    let source = harness.open_with("told", "").await;
    assert!(
        matches!(source.redelivery().await.unwrap(), Redelivery::Unlimited { because } if because.contains("max_age"))
    );
    let told = harness.open_with("told", "&redelivery=7d").await;
    let expected = Redelivery::Within { longest: 7 * DAY, because: "redelivery=7days of the source's URL".to_owned() };
    assert_eq!(told.redelivery().await.unwrap(), expected);
    // A stream that keeps them longer than that is believed more, and a change is seen while reading.
    context.update_stream(harness.stream(8 * DAY)).await.unwrap();
    for source in [source, told] {
        let because = format!("max_age 8days of stream {}", harness.name);
        assert_eq!(source.redelivery().await.unwrap(), Redelivery::Within { longest: 8 * DAY, because });
    }
}

#[tokio::test]
async fn a_consumer_that_would_lose_messages_is_refused() {
    let harness = OnNats::shared().await;
    let stream = harness.context().await.get_stream(&harness.name).await.unwrap();
    let config = |name: &str| pull::Config { durable_name: Some(name.to_owned()), ..pull::Config::default() };
    let cases = [
        (pull::Config { ack_policy: AckPolicy::None, ..config("none") }, "acknowledged"),
        (pull::Config { ack_policy: AckPolicy::All, ..config("all") }, "acknowledged"),
        (pull::Config { max_deliver: 3, ..config("three") }, "3 deliveries"),
        (pull::Config { headers_only: true, ..config("headers") }, "payloads"),
        (pull::Config { filter_subject: format!("{}.a", harness.name), ..config("filter") }, "subjects"),
        (pull::Config { ack_wait: Duration::from_secs(7), ..config("wait") }, "7s"),
    ];
    for (config, told) in cases {
        let name = config.durable_name.clone().unwrap();
        stream.create_consumer(config).await.unwrap();
        let error = open(&harness.source_url("&ack_wait=2s"), &Subscription::new(name)).await.unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    stream.create_consumer(config("usual")).await.unwrap();
    let source = harness.open_with("usual", "").await;
    assert_eq!(source.prolong_every(), Some(Duration::from_secs(10)), "a third of the server's 30 s");
}

#[tokio::test]
async fn a_missing_stream_and_a_wrong_password_are_refused_without_telling_it() {
    let harness = OnNats::shared().await;
    let missing = harness.source_url("").replace(&format!("stream={}", harness.name), "stream=nowhere");
    let error = open(&missing, &Subscription::new("c")).await.unwrap_err();
    assert!(error.to_string().contains("nats stream add nowhere"), "{error}");
    let wrong = harness.source_url("").replace(PASSWORD, "wrong-hush-hush");
    let error = open(&wrong, &Subscription::new("c")).await.unwrap_err();
    assert!(error.to_string().contains("password") && !format!("{error} {error:?}").contains("hush"), "{error:?}");
    let source = harness.open_with("c", "").await;
    assert!(!format!("{source:?}").contains(PASSWORD), "{source:?}");
}

#[tokio::test]
async fn a_subject_narrows_what_is_read() {
    let harness = OnNats::shared().await;
    let source = harness.open_with("narrow", &format!("&subject={}.eu.*", harness.name)).await;
    for topic in ["eu.a", "us.a", "eu.b.c", "eu.b"] {
        harness.publish_foreign(topic, HeaderMap::new(), "x").await;
    }
    let topics: Vec<String> = take(&source, 2).await.into_iter().map(|(message, _)| message.topic).collect();
    assert_eq!(topics, ["eu.a", "eu.b"]);
}

#[tokio::test]
async fn more_than_may_be_unacknowledged_is_not_handed_out_until_there_is_room() {
    let harness = OnNats::shared().await;
    let source = harness.open_with("bounded", "&max_ack_pending=10").await;
    harness.publish(&numbered(&harness.topic(), 0..15)).await;
    let taken = take(&source, 10).await;
    let waiting = receive(&source, 10);
    let acknowledging = async {
        let mut stream = harness.context().await.get_stream(&harness.name).await.unwrap();
        stream.info().await.unwrap();
        let info = stream.consumer_info("bounded").await.unwrap();
        assert_eq!(info.num_ack_pending, 10);
        settle_all(&source, &taken[..5]).await;
    };
    let (rest, ()) = tokio::join!(waiting, acknowledging);
    assert!((1..=5).contains(&rest.len()), "{}", rest.len());
}

#[tokio::test]
async fn what_came_while_nobody_receives_is_prolonged_and_comes_first() {
    let harness = OnNats::shared().await;
    let source = harness.open_with("busy", "&ack_wait=1s").await;
    // Its request stays open at the server when nobody waits for it any more.
    let asked = tokio::time::timeout(Duration::from_millis(200), source.receive(10)).await;
    assert!(asked.is_err(), "{asked:?}");
    harness.publish(&numbered(&harness.topic(), 0..1)).await;
    let mut stream = harness.context().await.get_stream(&harness.name).await.unwrap();
    stream.info().await.unwrap();
    until("it came", async || stream.consumer_info("busy").await.unwrap().num_ack_pending == 1).await;

    let other = harness.open_with("busy", "&ack_wait=1s").await;
    let busy = async {
        let mut pulse = tokio::time::interval(source.prolong_every().unwrap());
        // Beyond the time after which the client gives such a request up.
        for _ in 0..36 {
            pulse.tick().await;
            source.prolong(&[]).await.unwrap();
        }
    };
    tokio::select! {
        taken = receive(&other, 10) => panic!("it is in hand: {:?}", taken[0].0),
        () = busy => {}
    }
    other.close().await;
    harness.publish(&numbered(&harness.topic(), 1..2)).await;
    let taken = take(&source, 2).await;
    let numbers: Vec<u64> = taken.iter().map(|(message, _)| message.sequence.as_ref().unwrap().sequence).collect();
    assert_eq!(numbers, [0, 1]);
    settle_all(&source, &taken).await;
    source.close().await;
}

#[tokio::test]
async fn a_consumer_that_somebody_deletes_is_made_again_and_nothing_is_lost() {
    let harness = OnNats::shared().await;
    let source = harness.open("deleted", 0).await;
    let stream = harness.context().await.get_stream(&harness.name).await.unwrap();
    stream.delete_consumer("deleted").await.unwrap();
    let sent = numbered(&harness.topic(), 0..10);
    harness.publish(&sent).await;
    let mut came = BTreeSet::new();
    while came.len() < sent.len() {
        let taken = receive(&source, 50).await;
        settle_all(&source, &taken).await;
        came.extend(taken.into_iter().map(|(message, _)| message.id));
    }
    source.close().await;
    until("everything is acknowledged", async || stream.consumer_info("deleted").await.unwrap().num_ack_pending == 0)
        .await;
}
