//! `docs/reference/sinks.md` lists every parameter that a sink's URL may have, and no other.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;

use semel_brokers::{Error, connect};

/// Headings, and a URL of that sink with a parameter that does not exist. Nothing is connected to before it is found.
const SINKS: [(&str, &str); 5] = [
    ("Apache Kafka", "kafka://127.0.0.1:1/?none=1"),
    ("NATS JetStream", "nats://127.0.0.1:1/?none=1"),
    ("RabbitMQ", "amqp://127.0.0.1:1/?none=1"),
    ("Redis Streams", "redis://127.0.0.1:1/?none=1"),
    ("Webhooks", "https://example.com/?semel_none=1"),
];

#[tokio::test]
async fn the_parameters_of_every_sink_are_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/sinks.md");
    let text = std::fs::read_to_string(path).unwrap();
    for (heading, url) in SINKS {
        let error = match connect(url, "test").await.unwrap_err() {
            Error::NotBuilt { .. } => continue,
            error => error.to_string(),
        };
        let known = error.split_once("they have: ").unwrap_or_else(|| panic!("{error}")).1;
        let known: BTreeSet<&str> = known.split(", ").collect();
        assert_eq!(documented(&text, heading), known, "{heading}");
    }
}

/// The names in the first column of a section's table of parameters.
fn documented<'a>(text: &'a str, heading: &str) -> BTreeSet<&'a str> {
    let section = text.split("\n## ").find(|section| section.lines().next() == Some(heading)).unwrap();
    let table = section.lines().skip_while(|line| !line.starts_with("| parameter |"));
    let rows = table.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('`').nth(1).unwrap()).collect()
}
