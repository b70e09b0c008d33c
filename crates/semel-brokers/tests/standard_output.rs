//! The sink on a process's own standard output. A test harness writes there too, so this program has none: it starts
//! itself once more, and that process publishes.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use semel::Sink;
use semel_brokers::connect;
use semel_testkit::sinks::{batch, publish};
use serde_json::Value;

const PUBLISH: &str = "publish to standard output";

fn main() {
    if std::env::args().any(|argument| argument == PUBLISH) {
        publish_to_standard_output();
    } else {
        the_lines_are_on_standard_output_and_nothing_else();
        eprintln!("test the_lines_are_on_standard_output_and_nothing_else ... ok");
    }
}

fn the_lines_are_on_standard_output_and_nothing_else() {
    let output = Command::new(std::env::current_exe().unwrap()).arg(PUBLISH).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let sequence = |line| serde_json::from_str::<Value>(line).unwrap()["semelsequence"].clone();
    assert_eq!(text.lines().map(sequence).collect::<Vec<_>>(), ["0", "1", "2"]);
}

#[tokio::main]
async fn publish_to_standard_output() {
    let sink = connect("stdout:", "test").await.unwrap();
    for result in publish(&sink, &batch("events", 0, 0..3, 1)).await {
        result.unwrap();
    }
    sink.close().await;
}
