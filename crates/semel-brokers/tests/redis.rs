//! The suite that every sink passes, on Redis Streams, and what is Redis's own.
#![allow(clippy::unwrap_used, missing_docs)]

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use semel::Event;
use semel::sink::Error;
use semel_brokers::{AnySink, connect};
use semel_testkit::broker::{PASSWORD, server_url};
use semel_testkit::redis::{Redis, RedisRecipe};
use semel_testkit::sinks::{Arrived, Harness, batch, publish};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

struct OnRedis {
    url: String,
    topic: String,
    server: Option<Redis>,
}

impl OnRedis {
    fn on(url: String, server: Option<Redis>) -> OnRedis {
        OnRedis { url, topic: format!("test {}", uuid::Uuid::new_v4().simple()), server }
    }

    async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        // A whole stream is read at once, and that may take longer than the half second of the default.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
    }

    async fn order(&self, words: &[&str]) {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.exec_async(&mut self.connection().await).await.unwrap();
    }
}

impl Harness for OnRedis {
    type Sink = AnySink;

    async fn shared() -> OnRedis {
        OnRedis::on(server_url::<RedisRecipe>(), None)
    }

    async fn own() -> OnRedis {
        let server = Redis::temporary().unwrap();
        OnRedis::on(server.url(), Some(server))
    }

    async fn connect(&self) -> AnySink {
        connect(&self.url, "test").await.unwrap()
    }

    async fn connect_with_password(&self, password: &str) -> Result<(), String> {
        let url = self.url.replace(PASSWORD, password);
        connect(&url, "test").await.map(drop).map_err(|error| format!("{error} {error:?}"))
    }

    fn topic(&self) -> String {
        self.topic.clone()
    }

    async fn refused(&self, key: &str) -> Vec<Event> {
        let taken = format!("{} is no stream", self.topic);
        self.order(&["SET", &taken, "something else"]).await;
        vec![Event::bytes(taken, key, "t", "c", "x").unwrap()]
    }

    async fn arrived(&self) -> Vec<Arrived> {
        type Entry = (String, Vec<(String, Vec<u8>)>);
        let mut range = redis::cmd("XRANGE");
        range.arg(&self.topic).arg("-").arg("+");
        let entries: Vec<Entry> = range.query_async(&mut self.connection().await).await.unwrap();
        entries.into_iter().map(|(_, fields)| arrived(&fields)).collect()
    }

    fn kill(&mut self) {
        self.server.as_mut().unwrap().kill().unwrap();
    }

    async fn restart(&mut self) {
        self.server.as_mut().unwrap().restart().unwrap();
    }
}

fn arrived(fields: &[(String, Vec<u8>)]) -> Arrived {
    let find = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone());
    let text = |name: &str| String::from_utf8(find(name).unwrap_or_else(|| panic!("no field {name}"))).unwrap();
    assert_eq!(text("specversion"), "1.0");
    let mut headers: Vec<(String, String)> = fields
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("header:")?, String::from_utf8(value.clone()).unwrap())))
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    headers.sort();
    Arrived {
        id: text("id"),
        source: text("source"),
        event_type: text("type"),
        time: text("time"),
        content_type: text("content_type"),
        ordering_key: text("key"),
        lane: text("lane").parse().unwrap(),
        sequence: text("sequence").parse().unwrap(),
        incarnation: text("incarnation"),
        traceparent: find("traceparent").map(|_| text("traceparent")),
        tracestate: find("tracestate").map(|_| text("tracestate")),
        headers,
        payload: find("payload").unwrap(),
    }
}

semel_testkit::sink_tests!(OnRedis);

#[tokio::test]
async fn a_stream_is_trimmed_to_about_its_maxlen() {
    let harness = OnRedis::shared().await;
    let sink = connect(&format!("{}?maxlen=100", harness.url), "test").await.unwrap();
    let results = publish(&sink, &batch(&harness.topic, 0, 0..2000, 100)).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let kept = harness.arrived().await.len();
    assert!((100..400).contains(&kept), "{kept}");
}

#[tokio::test]
async fn a_server_out_of_memory_or_read_only_is_unavailable_and_no_events_fault() {
    let harness = OnRedis::own().await;
    let sink = harness.connect().await;
    let sent = batch(&harness.topic, 0, 0..10, 2);
    let faults: [(&[&str], &[&str], &str); 2] = [
        (&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"], "OOM"),
        (&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"], "READONLY"),
    ];
    for (fault, remedy, code) in faults {
        harness.order(fault).await;
        let results = publish(&sink, &sent).await;
        for result in results {
            match result {
                Err(Error::Behind) => {}
                Err(Error::Unavailable(source)) => {
                    let text = source.to_string();
                    assert!(text.contains(code) || text.contains("not sent"), "{text}");
                }
                other => panic!("{code}: {other:?}"),
            }
        }
        harness.order(remedy).await;
    }
    let results = publish(&sink, &sent).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

#[tokio::test]
async fn an_event_that_too_few_replicas_have_is_not_acknowledged() {
    let harness = OnRedis::shared().await;
    let sink = connect(&format!("{}?wait_replicas=1&timeout_ms=500", harness.url), "test").await.unwrap();
    let results = publish(&sink, &batch(&harness.topic, 0, 0..1, 1)).await;
    let Err(Error::Unavailable(source)) = &results[0] else { panic!("{results:?}") };
    assert!(source.to_string().contains("wait_replicas"), "{source}");
}

/// A primary that was demoted goes on answering over the connection there is, while its address leads to the new one.
#[tokio::test]
async fn after_a_demoted_primary_has_answered_events_go_to_where_the_address_leads_now() {
    let (old, new) = (OnRedis::own().await, OnRedis::own().await);
    let port = |harness: &OnRedis| harness.url.rsplit_once(':').unwrap().1.split_once('/').unwrap().0.to_owned();
    let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = old.url.replace(&port(&old), &front.local_addr().unwrap().port().to_string());
    let upstream = watch::Sender::new(port(&old));
    let leads_to = upstream.subscribe();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = front.accept().await {
            let address = format!("127.0.0.1:{}", *leads_to.borrow());
            tokio::spawn(async move {
                let mut server = TcpStream::connect(address).await.unwrap();
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    let sink = connect(&url, "test").await.unwrap();
    let sent = batch(&new.topic, 0, 0..10, 10);
    assert!(publish(&sink, &sent[..1]).await[0].is_ok());
    old.order(&["REPLICAOF", "127.0.0.1", &port(&new)]).await;
    upstream.send_replace(port(&new));
    let demoted = publish(&sink, &sent).await;
    assert!(demoted.iter().all(|result| matches!(result, Err(Error::Unavailable(_)))), "{demoted:?}");
    let promoted = publish(&sink, &sent).await;
    assert!(promoted.iter().all(Result::is_ok), "{promoted:?}");
    assert_eq!(new.arrived().await.len(), 10);
}
