//! What the sink for standard output guarantees, on real pipes, sockets and files.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use semel::sink::{Error, Guarantee, Lane, Outgoing, Position, Sink};
use semel::{Event, EventId};
use semel_brokers::stdout::StdoutSink;
use semel_testkit::sinks::{Arrived, Harness};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

/// The suite that every sink passes, on a file. Only what arrives is asked: the operating system refuses no event, and
/// a file needs no password and does not come back.
struct OnFile(NamedTempFile);

impl Harness for OnFile {
    type Sink = StdoutSink;

    async fn shared() -> OnFile {
        OnFile(NamedTempFile::new().expect("a file"))
    }

    async fn own() -> OnFile {
        OnFile::shared().await
    }

    async fn connect(&self) -> StdoutSink {
        StdoutSink::on(self.0.reopen().expect("a file")).expect("a sink")
    }

    async fn connect_with_password(&self, _: &str) -> Result<(), String> {
        Err("a file has no password".to_owned())
    }

    fn topic(&self) -> String {
        "events".to_owned()
    }

    async fn refused(&self, _: &str) -> Vec<Event> {
        Vec::new()
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let lines = std::fs::read_to_string(self.0.path()).expect("lines");
        parsed(&lines).iter().map(arrived).collect()
    }

    fn kill(&mut self) {}

    async fn restart(&mut self) {}
}

fn arrived(line: &Value) -> Arrived {
    let text = |name: &str| line[name].as_str().unwrap_or_else(|| panic!("no {name} in {line}")).to_owned();
    let headers = line.get("semelheaders").map_or("[]", |headers| headers.as_str().expect("text"));
    let mut headers: Vec<(String, String)> = serde_json::from_str(headers).expect("pairs");
    headers.sort_by(|(left, _), (right, _)| left.cmp(right));
    Arrived {
        id: text("id"),
        source: text("source"),
        event_type: text("type"),
        time: text("time"),
        content_type: text("datacontenttype"),
        ordering_key: text("partitionkey"),
        lane: text("semellane").parse().expect("a lane"),
        sequence: text("semelsequence").parse().expect("a sequence"),
        incarnation: text("semelincarnation"),
        traceparent: line.get("traceparent").map(|_| text("traceparent")),
        tracestate: line.get("tracestate").map(|_| text("tracestate")),
        headers,
        payload: STANDARD.decode(text("data_base64")).expect("base64"),
    }
}

semel_testkit::sink_tests! { @modules OnFile,
    arrival {
        an_event_arrives_whole,
        the_smallest_event_arrives,
        order_per_key_is_kept_over_many_keys_and_batches,
        lanes_publish_side_by_side,
        an_event_published_again_keeps_its_identity,
        what_was_acknowledged_is_there_after_close,
    }
}

fn outgoing(key: &str, sequence: u64, content_type: &str, payload: &[u8]) -> Outgoing {
    Outgoing {
        id: EventId::from(uuid::Uuid::from_u128(u128::from(sequence) + 1)),
        source: "/payments".to_owned(),
        time_ms: 1_700_000_000_123,
        lane: Lane(7),
        sequence,
        incarnation: "7301-1".to_owned(),
        event: Event::bytes("charges", key, "charge.created", content_type, payload.to_vec()).expect("an event"),
    }
}

async fn publish(sink: &StdoutSink, batch: &[Outgoing]) -> Vec<Result<(), Error>> {
    sink.publish(Lane(7), batch, &Position(Vec::new())).await
}

fn parsed(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[tokio::test]
async fn an_acknowledged_event_is_a_line_in_the_file() {
    let file = NamedTempFile::new().expect("a file");
    let sink = StdoutSink::on(file.reopen().expect("a file")).expect("a sink");
    assert_eq!(sink.guarantee(), Guarantee::AtLeastOnce);
    let mut first = outgoing("a \"1\"", 42, "application/json", br#"{"amount": 1e400, "text": "a\nb"}"#);
    first.event = first.event.traced("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None);
    first.event = first.event.header("tenant", "x").expect("a header").header("tenant", "y").expect("a header");
    for result in publish(&sink, std::slice::from_ref(&first)).await {
        result.expect("acknowledged");
    }
    let text = std::fs::read_to_string(file.path()).expect("a line");
    assert!(text.ends_with("}\n") && text.contains(r#""data":{"amount": 1e400, "text": "a\nb"}"#), "{text}");
    // A number that no double can hold is kept as written, so only the attributes are compared as values.
    let attributes: Value = serde_json::from_str(&text.replace("1e400", "1")).expect("JSON");
    assert_eq!(
        attributes,
        json!({
            "specversion": "1.0", "id": first.id.to_string(), "source": "/payments", "type": "charge.created",
            "time": "2023-11-14T22:13:20.123Z", "partitionkey": "a \"1\"", "datacontenttype": "application/json",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "semeltopic": "charges",
            "semellane": "7", "semelsequence": "42", "semelincarnation": "7301-1",
            "semelheaders": r#"[["tenant","x"],["tenant","y"]]"#, "data": {"amount": 1, "text": "a\nb"},
        })
    );
}

#[tokio::test]
async fn every_payload_takes_one_line_and_comes_back_as_it_was() {
    let file = NamedTempFile::new().expect("a file");
    let sink = StdoutSink::on(file.reopen().expect("a file")).expect("a sink");
    let pretty = "{\r\n  \"a\": [\n    1\n  ]\n}\n";
    let batch = [
        outgoing("a", 0, "application/json; charset=utf-8", pretty.as_bytes()),
        outgoing("a", 1, "application/vnd.charge+JSON", b"\"text\""),
        outgoing("a", 2, "application/json", b"{ not json\n"),
        outgoing("a", 3, "application/json", b"\"\xff\""),
        outgoing("a", 4, "application/octet-stream", b"\x00\xff\n"),
        outgoing("a", 5, "text/plain", "plain\n".as_bytes()),
        outgoing("a", 6, "application/octet-stream", b""),
    ];
    for result in publish(&sink, &batch).await {
        result.expect("acknowledged");
    }
    let lines = parsed(&std::fs::read_to_string(file.path()).expect("lines"));
    assert_eq!(lines.len(), batch.len());
    assert_eq!((&lines[0]["data"], &lines[1]["data"]), (&json!({"a": [1]}), &json!("text")));
    for (line, outgoing) in lines.iter().zip(&batch).skip(2) {
        let bytes = STANDARD.decode(line["data_base64"].as_str().expect("base64")).expect("base64");
        assert_eq!((bytes, line.get("data")), (outgoing.event.payload.to_vec(), None));
    }
}

#[tokio::test]
async fn a_closed_pipe_is_unavailable_and_the_key_waits() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let sink = StdoutSink::on(writer).expect("a sink");
    drop(reader);
    let batch = [
        outgoing("a", 0, "text/plain", b"x"),
        outgoing("a", 1, "text/plain", b"x"),
        outgoing("b", 2, "text/plain", b"x"),
    ];
    let results = publish(&sink, &batch).await;
    match &results[0] {
        Err(Error::Unavailable(source)) => {
            let cause = source.downcast_ref::<std::io::Error>().expect("an I/O error");
            assert_eq!(cause.kind(), std::io::ErrorKind::BrokenPipe);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(results[1], Err(Error::Behind)));
    assert!(matches!(results[2], Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn a_full_disk_is_unavailable() {
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let sink = StdoutSink::on(full).expect("a sink");
    let results = publish(&sink, &[outgoing("a", 0, "text/plain", b"x")]).await;
    assert!(matches!(results[..], [Err(Error::Unavailable(_))]), "{results:?}");
}

#[tokio::test]
async fn a_slow_reader_holds_the_acknowledgement_until_it_has_read() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let sink = StdoutSink::on(writer).expect("a sink");
    let batch: Vec<_> = (0..8).map(|sequence| outgoing("a", sequence, "text/plain", &[b'x'; 100_000])).collect();
    // Far more than a pipe holds: nothing has been read, so not all of it can have been written.
    let mut publishing = std::pin::pin!(publish(&sink, &batch));
    assert!(futures_util::poll!(&mut publishing).is_pending());
    let reading = tokio::task::spawn_blocking(move || {
        BufReader::new(reader).lines().take(8).map(|line| line.expect("a line")).collect::<Vec<_>>().join("\n")
    });
    for result in publishing.await {
        result.expect("acknowledged");
    }
    let sequences: Vec<_> =
        parsed(&reading.await.expect("lines")).iter().map(|line| line["semelsequence"].clone()).collect();
    assert_eq!(sequences, ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

#[tokio::test]
async fn a_torn_line_costs_no_other_line() {
    // A socket that does not wait takes a part of a line and fails.
    let (mut reader, writer) = UnixStream::pair().expect("a socket");
    writer.set_nonblocking(true).expect("set");
    let sink = StdoutSink::on(writer.try_clone().expect("a socket")).expect("a sink");
    let batch: Vec<_> = (0..8).map(|sequence| outgoing("a", sequence, "text/plain", &[b'x'; 300_000])).collect();
    let results = publish(&sink, &batch).await;
    let acknowledged = results.iter().take_while(|result| result.is_ok()).count();
    assert!(acknowledged < batch.len(), "the socket took everything");
    assert!(matches!(results[acknowledged], Err(Error::Unavailable(_))));
    assert!(results[acknowledged + 1..].iter().all(|result| matches!(result, Err(Error::Behind))));

    // From now on it waits, as both are the same socket.
    writer.set_nonblocking(false).expect("set");
    drop(writer);
    let reading = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        text
    });
    for result in publish(&sink, &batch[acknowledged..]).await {
        result.expect("acknowledged");
    }
    drop(sink);
    let text = reading.await.expect("text");
    let whole: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let sequences: Vec<_> = whole.iter().map(|line| line["semelsequence"].clone()).collect();
    assert_eq!(sequences, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(text.lines().count(), whole.len() + 1, "one line was torn");
}
