//! A peer at work: a process that is told what to do, and says what it came to. bench/peers/src/task.rs is its side.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use semel_bench::drive::{Driven, Latency, Load};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::reading::{Reading, Watch};

/// How much longer than its measurement a peer may take: it connects, and the first time it makes its tables.
const BESIDE: Duration = Duration::from_secs(120);

/// What is wanted of a peer.
#[derive(Debug, Serialize)]
pub(crate) struct Task {
    url: String,
    clients: u64,
    connections: usize,
    first: u64,
    warm_up_ms: u128,
    measured_ms: u128,
    transactions: bool,
}

/// What it says.
#[derive(Debug, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
enum Said {
    /// The measurement begins, or has ended.
    Reading,
    Ended(Ended),
}

#[derive(Debug, Deserialize)]
struct Ended {
    operations: u64,
    total: u64,
    per_second: f64,
    latency: Times,
}

#[derive(Debug, Deserialize)]
struct Times {
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Task {
    /// So many clients on these tables, the first flow with this number.
    pub(crate) fn new(url: String, load: Load, connections: usize, first: u64) -> Task {
        Task {
            url,
            clients: load.clients,
            connections,
            first,
            warm_up_ms: load.warm_up.as_millis(),
            measured_ms: load.measured.as_millis(),
            transactions: false,
        }
    }

    /// Whether steps are to be transactions, where a peer has both.
    pub(crate) fn transactions(mut self, transactions: bool) -> Task {
        self.transactions = transactions;
        self
    }

    /// Starts the peer and waits until it has ended.
    pub(crate) async fn run(&self, program: Command, load: Load, watch: &Watch) -> Result<Driven<Reading>> {
        let most = load.warm_up + load.measured + BESIDE;
        match tokio::time::timeout(most, self.run_through(program, watch)).await {
            Ok(driven) => driven,
            Err(_) => bail!("a peer was not done after {} s", most.as_secs()),
        }
    }

    async fn run_through(&self, mut program: Command, watch: &Watch) -> Result<Driven<Reading>> {
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DBOS")) {
            program.env_remove(name);
        }
        program.arg(serde_json::to_string(self)?).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = program.spawn().context("a peer does not start")?;
        let mut input = process.stdin.take().context("a peer does not listen")?;
        let mut output = BufReader::new(process.stdout.take().context("a peer says nothing")?).lines();
        let mut readings = Vec::new();
        let ended = loop {
            let line = output.next_line().await?.context("a peer ended too early; what it said is above")?;
            let said: Said = serde_json::from_str(&line).with_context(|| format!("a peer said {line}"))?;
            match said {
                Said::Reading => {
                    readings.push(watch.read().await?);
                    input.write_all(b"\n").await?;
                }
                Said::Ended(ended) => break ended,
            }
        };
        ensure!(process.wait().await?.success(), "a peer failed; what it said is above");
        let [before, after] = readings[..] else { bail!("a peer was measured {} times", readings.len()) };
        let Times { p50_ms, p99_ms, max_ms } = ended.latency;
        Ok(Driven {
            operations: ended.operations,
            total: ended.total,
            per_second: ended.per_second,
            latency: Latency { p50_ms, p99_ms, max_ms },
            before,
            after,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDED: &str = concat!(
        r#"{"said":"ended","operations":3,"total":5,"per_second":1.5,"#,
        r#""latency":{"p50_ms":1.0,"p99_ms":2.0,"max_ms":3}}"#
    );

    fn load() -> Load {
        Load { clients: 2, warm_up: Duration::from_millis(5), measured: Duration::from_millis(20) }
    }

    async fn run(script: &str) -> Result<Driven<Reading>> {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "peer"]);
        Task::new(String::new(), load(), 6, 0).run(shell, load(), &Watch::without_server()).await
    }

    #[tokio::test]
    async fn a_peer_waits_for_both_readings_and_says_what_it_came_to() {
        let twice = r#"for turn in 1 2; do echo '{"said":"reading"}'; read -r answer; done"#;
        let driven = run(&format!("{twice}; echo '{ENDED}'")).await.unwrap();
        assert_eq!((driven.operations, driven.total, driven.latency.p99_ms), (3, 5, 2.0));
    }

    #[tokio::test]
    async fn a_peer_that_ends_too_early_or_fails_or_babbles_is_not_measured() {
        assert!(run(r#"echo '{"said":"reading"}'; read -r answer"#).await.is_err());
        assert!(run("echo nothing; read -r answer").await.is_err());
        let error = run(&format!("echo '{ENDED}'; exit 3")).await.unwrap_err();
        assert!(error.to_string().contains("failed"), "{error}");
        let error = run(&format!("echo '{ENDED}'")).await.unwrap_err();
        assert!(error.to_string().contains("measured 0 times"), "{error}");
    }
}
