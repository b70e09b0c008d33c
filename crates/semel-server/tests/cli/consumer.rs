//! A consumer in a process of its own, and messages for it.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use semel_sqlite::rusqlite::Connection;
use semel_testkit::process::Service;
use serde_json::{Value, json};

use crate::harness::{Ended, Home, SEMEL, semel};

/// How long a consumer may take for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// `semel consume`, with a source that listens.
pub(crate) struct Consumer {
    pub(crate) service: Service,
}

/// A message as it is posted.
pub(crate) struct Post<'a> {
    pub(crate) id: &'a str,
    pub(crate) key: &'a str,
    pub(crate) event_type: &'a str,
    pub(crate) payload: Value,
}

impl Consumer {
    /// One that gives up on a message after two attempts.
    pub(crate) async fn start(home: &Home, name: &str) -> Consumer {
        Consumer::start_with(home, name, "http://127.0.0.1:0/events", &[]).await
    }

    pub(crate) async fn start_with(home: &Home, name: &str, source: &str, arguments: &[&str]) -> Consumer {
        let url = home.url();
        let command =
            ["consume", "--consumer", name, "--metrics-listen", "127.0.0.1:0", "--database-url", url.as_str()];
        let environment = [
            ("SEMEL_SOURCE", source),
            ("SEMEL_INBOX_ATTEMPTS", "2"),
            ("SEMEL_INBOX_BACKOFF_MIN", "1ms"),
            ("SEMEL_INBOX_BACKOFF_MAX", "10ms"),
        ];
        Consumer { service: Service::spawn(SEMEL, &[&command, arguments].concat(), &environment).await }
    }

    /// Where its source listens.
    pub(crate) fn address(&self) -> String {
        let output = self.service.output();
        let (_, rest) = output.split_once("semel consume receives at http://").expect("it says where it receives");
        rest.lines().next().unwrap().to_owned()
    }

    /// Posts a message and returns the answer, which comes after the commit; `None` if it is not there just now.
    pub(crate) async fn post(&self, post: &Post<'_>) -> Option<StatusCode> {
        let request = reqwest::Client::new()
            .post(format!("http://{}/events", self.address()))
            .header("webhook-id", post.id)
            .header("ce-type", post.event_type)
            .header("ce-partitionkey", post.key)
            .json(&post.payload);
        request.send().await.ok().map(|answer| answer.status())
    }

    /// Posts a charge and asserts that it was taken: applied, seen before, or set aside.
    pub(crate) async fn charge(&self, id: &str) {
        assert_eq!(self.post(&charge(id)).await, Some(StatusCode::NO_CONTENT));
    }

    /// How many messages have had this outcome.
    pub(crate) async fn count(&self, outcome: &str) -> u64 {
        let metrics = reqwest::get(self.service.url("/metrics")).await.unwrap().text().await.unwrap();
        let series = metrics.lines().filter(|line| line.starts_with("semel_messages_total{"));
        let found = series.filter_map(|line| line.split_once(&format!("outcome=\"{outcome}\"}} ")));
        found.map(|(_, count)| count.parse::<u64>().unwrap()).sum()
    }

    /// Waits until its metrics have this line.
    pub(crate) async fn metric(&self, series: &str) {
        metric(&self.service, series).await;
    }
}

/// Waits until a process's metrics have this line.
pub(crate) async fn metric(service: &Service, series: &str) {
    let gives_up = Instant::now() + PATIENCE;
    loop {
        let metrics = reqwest::get(service.url("/metrics")).await.unwrap().text().await.unwrap();
        if metrics.lines().any(|line| line == series) {
            return;
        }
        assert!(Instant::now() < gives_up, "{series} is missing from\n{metrics}");
    }
}

/// What the event of a charge looks like.
pub(crate) fn charge(id: &str) -> Post<'_> {
    let payload = json!({
        "tenant": "a", "id": id, "account": "alice", "amount": 5, "currency": "EUR", "status": "captured",
    });
    Post { id, key: id, event_type: "charge.created", payload }
}

pub(crate) fn inbox(home: &Home, arguments: &[&str]) -> Ended {
    semel(&[&["inbox"], arguments, &["--database-url", &home.url()]].concat())
}

pub(crate) fn shown(home: &Home, arguments: &[&str]) -> Value {
    serde_json::from_str(&inbox(home, &[arguments, &["--json"]].concat()).succeeded()).unwrap()
}

/// Runs SQL on the test's own database.
pub(crate) async fn execute(home: &Home, sql: &str) {
    match home {
        Home::Sqlite(file) => Connection::open(file.path()).unwrap().execute_batch(sql).unwrap(),
        Home::Postgres(database) => database.connect().await.batch_execute(sql).await.unwrap(),
    }
}

/// The numbers in the rows of a query.
pub(crate) async fn numbers(home: &Home, sql: &str) -> Vec<i64> {
    match home {
        Home::Sqlite(file) => {
            let connection = Connection::open(file.path()).unwrap();
            let mut rows = connection.prepare(sql).unwrap();
            rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        }
        Home::Postgres(database) => {
            let rows = database.connect().await.query(sql, &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        }
    }
}
