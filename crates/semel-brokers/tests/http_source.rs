//! The suite that every source passes, on webhooks between the real sink and the real source, and what is their own.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::sink::{Error, Lane, Outgoing, Position};
use semel::source::Redelivery;
use semel::{Clock, Event, Sink, Source};
use semel_brokers::http::{HttpSink, HttpSource, Options, Secret};
use semel_brokers::{Subscription, open};
use semel_testkit::cluster::free_port;
use semel_testkit::poll::{until, until_some};
use semel_testkit::sinks::{batch, outgoing};
use semel_testkit::sources::{Harness, settle_all, take};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

const SHARED: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_AAAA9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PRIVATE: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc=";
const PUBLIC: &str = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=";

/// A source on a port of its own, and senders that send to it until it acknowledges.
struct OnHttp {
    port: u16,
    sink: Arc<HttpSink>,
    answered: Arc<AtomicUsize>,
    /// One for each ordering key, so that its events are sent one after the other.
    senders: Mutex<BTreeMap<String, mpsc::UnboundedSender<Outgoing>>>,
}

impl OnHttp {
    fn sender(&self) -> mpsc::UnboundedSender<Outgoing> {
        let (sink, answered) = (Arc::clone(&self.sink), Arc::clone(&self.answered));
        let (sender, mut events) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                while send(&sink, &event).await.is_err() {
                    tokio::task::yield_now().await;
                }
                answered.fetch_add(1, Ordering::SeqCst);
            }
        });
        sender
    }
}

impl Harness for OnHttp {
    type Source = HttpSource;

    async fn shared() -> OnHttp {
        let port = free_port().unwrap();
        let url = format!("http://127.0.0.1:{port}/in?semel_allow_loopback=true&semel_secret={SHARED}");
        let sink = Arc::new(HttpSink::from_url(&url).unwrap());
        OnHttp { port, sink, answered: Arc::default(), senders: Mutex::default() }
    }

    async fn open(&self, consumer: &str, _: u32) -> HttpSource {
        let url = format!("http://127.0.0.1:{}/in?secret={SHARED}&redelivery=36h", self.port);
        // One that was dropped frees its port a moment later.
        until_some("the port is free", async || HttpSource::open(&url, &Subscription::new(consumer)).await.ok()).await
    }

    async fn publish(&self, events: &[Outgoing]) {
        let mut senders = self.senders.lock().unwrap();
        for event in events {
            let sender = senders.entry(event.event.ordering_key.clone()).or_insert_with(|| self.sender());
            sender.send(event.clone()).unwrap();
        }
    }

    async fn acknowledged(&self, _: &HttpSource, count: usize) {
        until("the senders have their answers", async || self.answered.load(Ordering::SeqCst) >= count).await;
    }

    fn topic(&self) -> String {
        "charges".to_owned()
    }

    fn longest(&self) -> Option<Duration> {
        Some(Duration::from_secs(36 * 60 * 60))
    }
}

// One process listens, senders keep no history, and they wait for their answer instead of being told that it takes
// long.
semel_testkit::source_tests! { @modules OnHttp,
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
}

async fn listening(query: &str) -> HttpSource {
    HttpSource::open(&format!("http://127.0.0.1:0/in{query}"), &Subscription::new("test")).await.unwrap()
}

fn sink(to: SocketAddr, secrets: &[&str]) -> HttpSink {
    let secrets = secrets.iter().map(|secret| Secret::parse(secret).unwrap()).collect();
    let options = Options { secrets, allow_loopback: true, ..Options::default() };
    HttpSink::new(&format!("http://{to}/in"), options).unwrap()
}

async fn send(sink: &HttpSink, event: &Outgoing) -> Result<(), Error> {
    sink.publish(Lane(0), std::slice::from_ref(event), &Position(Vec::new())).await.remove(0)
}

/// Sends these bytes and returns all that is answered.
async fn raw(to: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[tokio::test]
async fn a_message_is_acknowledged_after_it_is_applied_and_not_before() {
    let source = listening("").await;
    let sink = sink(source.local_addr(), &[]);
    let event = batch("t", 0, 1..2, 1).remove(0);
    let mut sending = std::pin::pin!(send(&sink, &event));
    let taken = tokio::select! {
        answered = &mut sending => panic!("nobody has acknowledged it: {answered:?}"),
        taken = take(&source, 1) => taken,
    };
    let asked = tokio::time::timeout(Duration::from_millis(50), &mut sending).await;
    assert!(asked.is_err(), "{asked:?}");
    settle_all(&source, &taken).await;
    sending.await.unwrap();
}

#[tokio::test]
async fn a_message_that_is_in_hand_is_not_handed_out_again_and_all_its_senders_get_the_same_answer() {
    let source = listening("").await;
    let to = source.local_addr();
    let event = batch("t", 0, 1..2, 1).remove(0);
    let (first, second) = (sink(to, &[]), sink(to, &[]));
    let both = async { tokio::join!(send(&first, &event), send(&second, &event)) };
    let applying = async {
        let taken = take(&source, 1).await;
        // The other one has been read by now, or joins what is in hand, or comes after it was applied.
        let again = tokio::time::timeout(Duration::from_millis(100), source.receive(5)).await;
        assert!(again.is_err(), "{again:?}");
        settle_all(&source, &taken).await;
    };
    let ((one, other), ()) = tokio::join!(both, applying);
    one.unwrap();
    other.unwrap();
}

#[tokio::test]
async fn whoever_drops_a_message_has_it_sent_again() {
    let source = listening("").await;
    let sink = sink(source.local_addr(), &[]);
    let event = batch("t", 0, 1..2, 1).remove(0);
    let (answer, ()) = tokio::join!(send(&sink, &event), async { drop(take(&source, 1).await) });
    assert!(told(&answer.unwrap_err()).contains("503"));
}

#[tokio::test]
async fn a_sender_is_kept_waiting_no_longer_than_is_set_and_finds_its_message_in_hand_again() {
    let source = listening("?wait=50ms").await;
    let event = batch("t", 0, 1..2, 1).remove(0);
    // Each a new one: a sink leaves a receiver alone for as long as it asks for.
    let [first, second, third] = [(); 3].map(|()| sink(source.local_addr(), &[]));
    let (answer, taken) = tokio::join!(send(&first, &event), take(&source, 1));
    assert!(told(&answer.unwrap_err()).contains("503"));
    tokio::select! {
        answer = send(&second, &event) => assert!(told(&answer.unwrap_err()).contains("503")),
        again = take(&source, 1) => panic!("it is in hand: {:?}", again[0].0),
    }
    settle_all(&source, &taken).await;
    let applied_already = async { settle_all(&source, &take(&source, 1).await).await };
    let (answer, ()) = tokio::join!(send(&third, &event), applied_already);
    answer.unwrap();
}

#[tokio::test]
async fn what_is_signed_by_a_trusted_key_is_taken_and_nothing_else() {
    let source = listening(&format!("?secret={SHARED}&secret={PUBLIC}")).await;
    let to = source.local_addr();
    let event = batch("t", 0, 1..2, 1).remove(0);
    for secrets in [&[SHARED][..], &[PRIVATE], &[OTHER, SHARED]] {
        let sink = sink(to, secrets);
        let (answer, ()) = tokio::join!(send(&sink, &event), async {
            settle_all(&source, &take(&source, 1).await).await;
        });
        answer.unwrap();
    }
    for secrets in [&[OTHER][..], &[]] {
        let error = told(&send(&sink(to, secrets), &event).await.unwrap_err());
        assert!(error.contains("401"), "{error}");
    }
}

struct Ago(Duration);

impl Clock for Ago {
    fn now_ms(&self) -> i64 {
        semel::SystemClock.now_ms() - i64::try_from(self.0.as_millis()).unwrap()
    }
}

#[tokio::test]
async fn what_was_signed_long_ago_is_not_taken() {
    let source = listening(&format!("?secret={SHARED}&tolerance=1m")).await;
    let event = batch("t", 0, 1..2, 1).remove(0);
    for (ago, taken) in [(50, true), (70, false)] {
        let options = Options {
            secrets: vec![Secret::parse(SHARED).unwrap()],
            allow_loopback: true,
            clock: Arc::new(Ago(Duration::from_secs(ago))),
            ..Options::default()
        };
        let sink = HttpSink::new(&format!("http://{}/in", source.local_addr()), options).unwrap();
        let sending = send(&sink, &event);
        let answer = match taken {
            true => tokio::join!(sending, async { settle_all(&source, &take(&source, 1).await).await }).0,
            false => sending.await,
        };
        assert_eq!(answer.is_ok(), taken, "{ago} s ago: {answer:?}");
    }
}

#[tokio::test]
async fn a_request_that_is_no_message_is_told_why() {
    let source = listening(&format!("?secret={SHARED}")).await;
    let to = source.local_addr();
    let head = "Host: h\r\nConnection: close\r\n";
    let cases = [
        (format!("GET /in HTTP/1.1\r\n{head}\r\n"), "405", "method-not-allowed"),
        (format!("POST /out HTTP/1.1\r\n{head}Content-Length: 0\r\n\r\n"), "404", "not-found"),
        (format!("POST /in HTTP/1.1\r\n{head}Content-Length: 0\r\n\r\n"), "400", "webhook-id-invalid"),
        (
            format!("POST /in HTTP/1.1\r\n{head}Webhook-Id: a.b\r\nContent-Length: 0\r\n\r\n"),
            "400",
            "webhook-id-invalid",
        ),
        (
            format!("POST /in HTTP/1.1\r\n{head}Webhook-Id: a\r\nWebhook-Id: b\r\nContent-Length: 0\r\n\r\n"),
            "400",
            "once",
        ),
        (
            format!("POST /in HTTP/1.1\r\n{head}Webhook-Id: a\r\nContent-Length: 1048577\r\n\r\n"),
            "413",
            "message-too-large",
        ),
        (format!("POST /in HTTP/1.1\r\n{head}Webhook-Id: a\r\nContent-Length: 0\r\n\r\n"), "401", "timestamp-invalid"),
        (
            format!("POST /in HTTP/1.1\r\n{head}Webhook-Id: a\r\nWebhook-Timestamp: 1\r\nContent-Length: 0\r\n\r\n"),
            "401",
            "timestamp-out-of-tolerance",
        ),
    ];
    for (request, status, why) in cases {
        let answer = raw(to, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(why), "{request}{answer}");
        assert!(answer.contains("application/problem+json"), "{answer}");
        assert_eq!(answer.contains("allow: POST"), status == "405", "{answer}");
    }
    let chunk = "a".repeat(2 << 20);
    let request = format!(
        "POST /in HTTP/1.1\r\n{head}Webhook-Id: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{chunk}",
        2 << 20
    );
    let mut stream = TcpStream::connect(to).await.unwrap();
    let (mut read, mut write) = stream.split();
    let mut answer = [0; 12];
    let (_, answered) = tokio::join!(write.write_all(request.as_bytes()), read.read_exact(&mut answer));
    answered.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[tokio::test]
async fn what_a_foreign_sender_says_of_its_message_arrives_and_its_credentials_do_not() {
    let source = listening("").await;
    let request = "POST /in HTTP/1.1\r\nHost: h\r\nConnection: close\r\nWebhook-Id: msg_1\r\n\
                   Authorization: Bearer hush\r\nCookie: hush\r\nContent-Type: application/json\r\n\
                   Ce-Id: another\r\nCe-Type: paid\r\nTenant: acme\r\nContent-Length: 2\r\n\r\n{}";
    let (answer, taken) = tokio::join!(raw(source.local_addr(), request), async {
        let taken = take(&source, 1).await;
        settle_all(&source, &taken).await;
        taken
    });
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    let message = &taken[0].0;
    assert_eq!((message.id.as_str(), message.ordering_key.as_str(), message.topic.as_str()), ("msg_1", "msg_1", "/in"));
    assert_eq!((message.message_type.as_str(), message.content_type.as_str()), ("paid", "application/json"));
    let headers = [("ce-id", "another"), ("tenant", "acme")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(message.headers, headers);
}

#[tokio::test]
async fn more_than_there_is_room_for_is_to_be_sent_later() {
    let source = listening("").await;
    let to = source.local_addr();
    let head = "POST /in HTTP/1.1\r\nHost: h\r\nWebhook-Id: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let small = "POST /in HTTP/1.1\r\nHost: h\r\nConnection: close\r\nWebhook-Id: b\r\n\
                 Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    // Bodies of unknown length, which do not come: each may be as long as any.
    let mut held = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        held.push(stream);
    }
    until("there is no room", async || {
        let asked = tokio::time::timeout(Duration::from_millis(200), raw(to, small)).await;
        asked.is_ok_and(|answer| answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"))
    })
    .await;
    drop(held);
    source.give_back(&take_what_there_is(&source).await.iter().collect::<Vec<_>>()).await.unwrap();
    let event = outgoing(0, 1, Event::bytes("t", "k", "t", "c", "x").unwrap());
    until("there is room again", async || {
        let sink = sink(to, &[]);
        let sending = send(&sink, &event);
        tokio::select! {
            answer = sending => answer.is_ok(),
            taken = take(&source, 1) => { settle_all(&source, &taken).await; true }
        }
    })
    .await;
}

#[tokio::test]
async fn what_nobody_receives_takes_up_its_room_when_its_senders_were_told_to_come_again() {
    let source = listening("?wait=10ms").await;
    let to = source.local_addr();
    let body = "a".repeat(1 << 20);
    let large = |id: usize| {
        format!(
            "POST /in HTTP/1.1\r\nHost: h\r\nConnection: close\r\nWebhook-Id: {id}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for id in 0..70 {
        let mut stream = TcpStream::connect(to).await.unwrap();
        let (mut read, mut write) = stream.split();
        let (request, mut answer) = (large(id), [0; 12]);
        // Who gets no room is answered before its body is read.
        let (_, answered) = tokio::join!(write.write_all(request.as_bytes()), read.read_exact(&mut answer));
        answered.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 503");
    }
    let receipts = take_what_there_is(&source).await;
    assert_eq!(receipts.len(), 63, "each takes a little more than 1 MiB of the 64 MiB");
    source.acknowledge(&receipts.iter().collect::<Vec<_>>()).await.unwrap();
    let last = large(70);
    let (_, taken) = tokio::join!(raw(to, &last), take(&source, 1));
    assert_eq!(taken[0].0.id, "70");
}

async fn take_what_there_is(source: &HttpSource) -> Vec<<HttpSource as Source>::Receipt> {
    let received = tokio::time::timeout(Duration::from_millis(10), source.receive(1000)).await;
    received.map_or_else(|_| Vec::new(), |received| received.unwrap().into_iter().map(|it| it.receipt).collect())
}

#[tokio::test]
async fn a_source_that_closes_answers_those_who_wait_and_takes_nobody_new() {
    let source = listening("").await;
    let to = source.local_addr();
    let events = batch("t", 0, 1..3, 2);
    let (one, other) = (sink(to, &[]), sink(to, &[]));
    let sending = async { tokio::join!(send(&one, &events[0]), send(&other, &events[1])) };
    let closing = async {
        let taken = take(&source, 1).await;
        let (_, ()) = tokio::join!(source.close(), async { drop(taken) });
    };
    let ((first, second), ()) = tokio::join!(sending, closing);
    for answer in [first, second] {
        assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    }
    assert!(TcpStream::connect(to).await.is_err(), "nobody listens");
    assert!(matches!(source.receive(1).await, Err(semel::source::Error::Unavailable(_))));
}

#[tokio::test]
async fn nobody_listens_to_strangers_unless_told_to() {
    let error = open("http://0.0.0.0:0/in", &Subscription::new("c")).await.unwrap_err().to_string();
    assert!(error.contains("unsigned=true"), "{error}");
    for query in ["unsigned=true", &format!("secret={SHARED}")] {
        let source = open(&format!("http://0.0.0.0:0/t0ken?{query}"), &Subscription::new("c")).await.unwrap();
        let shown = format!("{source:?}");
        assert!(!shown.contains(&SHARED[6..]) && !shown.contains("t0ken"), "{shown}");
        source.close().await;
    }
}

#[tokio::test]
async fn senders_are_taken_to_try_for_four_days_unless_the_url_says_otherwise() {
    let told = listening("").await.redelivery().await.unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    assert!(
        matches!(&told, Redelivery::Within { longest, because } if *longest == 4 * day && because.contains("75h35m"))
    );
}
