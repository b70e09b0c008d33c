//! What arrives, and what answers mean.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures_util::stream;
use semel::sink::{Error, Guarantee, Lane, Sink};
use semel::{Clock, Event};
use semel_brokers::http::{self, Failure, HttpSink, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};

use crate::receiver::{Receiver, listener, outgoing, publish, publish_one, told};

#[tokio::test]
async fn an_acknowledged_event_arrived_with_its_identity_and_its_bytes() {
    let receiver = Receiver::acknowledging().await;
    let payload = Bytes::from_static(b"\x00\xff\xfe not text \r\n");
    let mut event =
        Event::bytes("charges", "Käse \"1\"", "charge.created", "application/octet-stream", payload.clone())
            .expect("an event")
            .traced("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some("vendor=1".to_owned()));
    for (name, value) in [("tenant", "a"), ("tenant", "b"), ("Host", "evil"), ("ce-id", "forged"), ("TE", "trailers")] {
        event = event.header(name, value).expect("a header");
    }
    let sent = semel::sink::Outgoing { event, ..outgoing("a", 42) };
    let url = format!(
        "http://us%20er:p%40ss@{}/hook/a%20b?x=1&semel_timeout_ms=60000&y=%2F+&semel_allow_loopback=true#fragment",
        receiver.address
    );
    let sink = HttpSink::from_url(&url).expect("a sink");
    assert_eq!(sink.guarantee(), Guarantee::AtLeastOnce);
    assert_eq!(sink.take_lane(Lane(7)).await.expect("a lane"), None);
    publish_one(&sink, &sent).await.expect("acknowledged");
    sink.close().await;

    let seen = receiver.seen().pop().expect("a request");
    assert_eq!((seen.method.as_str(), seen.uri.to_string().as_str()), ("POST", "/hook/a%20b?x=1&y=%2F+"));
    assert_eq!(seen.body, payload);
    for (name, value) in [
        ("host", receiver.address.to_string().as_str()),
        ("authorization", "Basic dXMgZXI6cEBzcw=="),
        ("ce-specversion", "1.0"),
        ("ce-id", &sent.id.to_string()),
        ("ce-source", "/payments"),
        ("ce-type", "charge.created"),
        ("ce-time", "2023-11-14T22:13:20.123Z"),
        ("ce-partitionkey", "K%C3%A4se%20%221%22"),
        ("content-type", "application/octet-stream"),
        ("content-length", &payload.len().to_string()),
        ("semel-topic", "charges"),
        ("semel-lane", "7"),
        ("semel-sequence", "42"),
        ("semel-incarnation", "7301-1"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tracestate", "vendor=1"),
        ("webhook-id", &sent.id.to_string()),
        ("semel-header-host", "evil"),
        ("semel-header-ce-id", "forged"),
        ("semel-header-te", "trailers"),
    ] {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    assert_eq!(seen.headers.get_all("tenant").iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((seen.header("te"), seen.header("webhook-signature")), (None, None));
}

#[tokio::test]
async fn a_status_acknowledges_refuses_or_asks_for_another_attempt() {
    let receiver = Receiver::start(async |seen| {
        StatusCode::from_u16(u16::try_from(seen.sequence()).expect("a status")).expect("a status")
    })
    .await;
    let sink = receiver.sink(Options::default());
    for code in [200, 201, 202, 204, 299] {
        publish_one(&sink, &outgoing("a", code)).await.expect("acknowledged");
    }
    for code in [400, 402, 403, 404, 405, 406, 410, 411, 413, 414, 415, 422, 431, 451] {
        let error = publish_one(&sink, &outgoing("a", code)).await.expect_err("refused");
        assert!(matches!(error, Error::Refused(_)) && told(&error).contains(&code.to_string()), "{}", told(&error));
    }
    for code in [301, 302, 307, 308, 401, 407, 408, 409, 421, 425, 429, 500, 501, 502, 503, 504, 507, 520, 599] {
        let error = publish_one(&sink, &outgoing("a", code)).await.expect_err("unavailable");
        assert!(matches!(error, Error::Unavailable(_)) && told(&error).contains(&code.to_string()), "{}", told(&error));
    }
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_in_time_gets_the_same_id_again() {
    let held = Arc::new(Semaphore::new(0));
    let gate = held.clone();
    let receiver = Receiver::start(move |_| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.expect("a permit").forget();
        }
    })
    .await;
    let sink = receiver.sink(Options { timeout: Duration::from_secs(1), ..Options::default() });
    let batch = [outgoing("a", 1), outgoing("a", 2)];
    let results = publish(&sink, &batch).await;
    assert!(matches!(&results[0], Err(Error::Unavailable(source))
        if matches!(source.downcast_ref(), Some(Failure::Timeout(_)))));
    assert!(matches!(results[1], Err(Error::Behind)));

    held.add_permits(Semaphore::MAX_PERMITS / 2);
    let sink = receiver.sink(Options::default());
    for result in publish(&sink, &batch).await {
        result.expect("acknowledged");
    }
    let seen = receiver.seen();
    let ids: Vec<_> = seen.iter().map(|seen| (seen.header("webhook-id").expect("an id"), seen.sequence())).collect();
    let (first, second) = (batch[0].id.to_string(), batch[1].id.to_string());
    assert_eq!(ids, [(first.as_str(), 1), (&first, 1), (&second, 2)]);
}

#[tokio::test]
async fn a_receiver_that_is_down_is_waited_for_once_and_not_once_per_key() {
    let receiver = Receiver::start(async |_| std::future::pending::<()>().await).await;
    let options = Options { timeout: Duration::from_millis(300), concurrency: 2, ..Options::default() };
    let sink = receiver.sink(options);
    let batch: Vec<_> = (0..20).map(|sequence| outgoing(&format!("key {sequence}"), sequence)).collect();
    let results = publish(&sink, &batch).await;
    let not_tried = |result: &&Result<(), Error>| match result {
        Err(Error::Unavailable(source)) => matches!(source.downcast_ref(), Some(Failure::Down)),
        _ => false,
    };
    assert_eq!(results.iter().filter(not_tried).count(), 18);
    assert!(results.iter().all(|result| matches!(result, Err(Error::Unavailable(_)))));
    assert!(receiver.seen().len() <= 2, "{} attempts", receiver.seen().len());
}

#[tokio::test]
async fn what_a_stopped_receiver_missed_arrives_after_its_return() {
    let receiver = Receiver::start(async |_| [("connection", "close")]).await;
    let address = receiver.address;
    let sink = receiver.sink(Options::default());
    publish_one(&sink, &outgoing("a", 1)).await.expect("acknowledged");
    receiver.stop().await;
    let batch = [outgoing("a", 2), outgoing("a", 3), outgoing("b", 4)];
    let results = publish(&sink, &batch).await;
    assert!(matches!(results[..], [Err(Error::Unavailable(_)), Err(Error::Behind), Err(Error::Unavailable(_))]));

    let receiver = Receiver::on(listener(address).await, async |_| StatusCode::OK);
    for result in publish(&sink, &batch).await {
        result.expect("acknowledged");
    }
    let mut ids: Vec<_> = receiver.seen().iter().map(|seen| seen.header("webhook-id").map(str::to_owned)).collect();
    ids.sort();
    assert_eq!(ids, batch.map(|outgoing| Some(outgoing.id.to_string())));
}

#[tokio::test]
async fn nothing_listening_is_unavailable() {
    let port = listener(([127, 0, 0, 1], 0).into()).await.local_addr().expect("an address").port();
    let options = Options { allow_loopback: true, ..Options::default() };
    let sink = HttpSink::new(&format!("http://127.0.0.1:{port}/"), options).expect("a sink");
    let error = publish_one(&sink, &outgoing("a", 1)).await.expect_err("nobody is there");
    assert!(matches!(error, Error::Unavailable(_)) && told(&error).contains("cannot be connected"), "{}", told(&error));
}

#[tokio::test]
async fn a_receiver_that_hangs_up_or_speaks_no_http_is_unavailable() {
    for answer in
        [&b""[..], b"HTTP/1.1 2", b"220 mail.example ESMTP\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"]
    {
        let listener = listener(([127, 0, 0, 1], 0).into()).await;
        let address = listener.local_addr().expect("an address");
        let options = Options { allow_loopback: true, ..Options::default() };
        let sink = HttpSink::new(&format!("http://{address}/"), options).expect("a sink");
        let event = outgoing("a", 1);
        let (result, ()) = tokio::join!(publish_one(&sink, &event), async {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let read = socket.read(&mut [0; 4096]).await.expect("a request");
            assert!(read > 0, "no request came");
            socket.write_all(answer).await.expect("written");
        });
        let error = result.expect_err("no acknowledgement");
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    }
}

/// A clock that a test sets.
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn retry_after_is_honoured_up_to_its_bound() {
    let receiver = Receiver::start(async |seen| match seen.sequence() {
        1 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "7")]),
        2 => (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "86400")]),
        _ => (StatusCode::OK, [("retry-after", "7")]),
    })
    .await;
    let clock = Arc::new(SetClock(AtomicI64::new(1_700_000_000_000)));
    let options = Options { retry_after_limit: Duration::from_secs(60), clock: clock.clone(), ..Options::default() };
    let sink = receiver.sink(options);
    let waiting = |result: Result<(), Error>| match result {
        Err(Error::Unavailable(source)) => match source.downcast_ref() {
            Some(Failure::Waiting(left)) => *left,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };

    publish_one(&sink, &outgoing("a", 1)).await.expect_err("too many");
    assert_eq!(waiting(publish_one(&sink, &outgoing("b", 3)).await), Duration::from_secs(7));
    clock.0.fetch_add(6_999, Ordering::SeqCst);
    assert_eq!(waiting(publish_one(&sink, &outgoing("b", 3)).await), Duration::from_millis(1));
    assert_eq!(receiver.seen().len(), 1, "the receiver is left alone");
    clock.0.fetch_add(1, Ordering::SeqCst);
    publish_one(&sink, &outgoing("b", 3)).await.expect("acknowledged");

    publish_one(&sink, &outgoing("a", 2)).await.expect_err("overloaded");
    assert_eq!(waiting(publish_one(&sink, &outgoing("b", 4)).await), Duration::from_secs(60));
    clock.0.fetch_add(60_000, Ordering::SeqCst);
    publish_one(&sink, &outgoing("b", 4)).await.expect("acknowledged");
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let (gone, mut connection_gone) = mpsc::unbounded_channel::<()>();
    let receiver = Receiver::start(move |_| {
        let gone = gone.clone();
        async move {
            let endless = stream::unfold(gone, async |gone| {
                let chunk: Result<_, std::convert::Infallible> = Ok(Bytes::from_static(&[b'x'; 8192]));
                Some((chunk, gone))
            });
            Body::from_stream(endless)
        }
    })
    .await;
    let sink = receiver.sink(Options { timeout: Duration::from_secs(3600), ..Options::default() });
    publish_one(&sink, &outgoing("a", 1)).await.expect("the status acknowledges");
    drop(receiver);
    // The channel closes when the server has given the body up, which it does because the sink has hung up.
    assert_eq!(connection_gone.recv().await, None);
}

#[tokio::test]
async fn an_event_with_a_header_that_http_cannot_carry_is_refused_alone() {
    let receiver = Receiver::acknowledging().await;
    let sink = receiver.sink(Options::default());
    let mut odd = outgoing("a", 1);
    odd.event = odd.event.header("odd(name)", "x").expect("a header");
    let results = publish(&sink, &[odd, outgoing("a", 2), outgoing("b", 3)]).await;
    assert!(matches!(&results[0], Err(error @ Error::Refused(_)) if told(error).contains("odd(name)")));
    assert!(matches!(results[1], Err(Error::Behind)));
    assert!(results[2].is_ok());
    assert_eq!(receiver.seen().len(), 1);
}

#[tokio::test]
async fn no_secret_of_the_url_is_ever_shown() {
    let port = listener(([127, 0, 0, 1], 0).into()).await.local_addr().expect("an address").port();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let url = format!("http://user:hidden1@127.0.0.1:{port}/hidden2?token=hidden3&semel_secret={secret}");
    let sink = HttpSink::from_url(&format!("{url}&semel_allow_loopback=true")).expect("a sink");
    let error = publish_one(&sink, &outgoing("a", 1)).await.expect_err("nobody is there");
    let mut shown = format!("{sink:?} {} {error:?}", told(&error));
    for broken in [
        url.clone(),
        format!("{url}&semel_secret=whsec_hidden4"),
        format!("{url}&semel_secret_file=/hidden5"),
        format!("{url}&semel_unknown=hidden6"),
        format!("{url}&semel_timeout_ms=hidden7"),
        "http://user:hidden8@[::1/".to_owned(),
        "ftp://user:hidden9@example.com/".to_owned(),
    ] {
        let error = HttpSink::from_url(&broken).expect_err("broken");
        shown += &format!("{} {error:?}", told(&error));
    }
    assert!(!shown.contains("hidden") && !shown.contains("MfKQ"), "{shown}");
}

#[test]
fn an_unknown_parameter_of_ours_is_an_error_that_names_it() {
    match HttpSink::from_url("https://example.com/?semel_secrets=x") {
        Err(error @ http::Error::Parameter { .. }) => assert!(error.to_string().contains("semel_secrets"), "{error}"),
        other => panic!("{other:?}"),
    }
}
