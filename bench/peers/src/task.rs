//! What the benchmark wants of a peer, and what the peer says to it.
//!
//! The one argument of a peer is a [`Task`] as JSON. Everything that it says is a line of JSON on its standard output:
//! `{"said":"reading"}` when the measurement begins and when it ends, upon which it waits for a line on its standard
//! input, so that the benchmark can look at the server in between; and `{"said":"ended",…}` when its clients are done.

use std::future::Future;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::drive::{Latency, Load, drive};
use crate::order::Order;

/// What is wanted.
#[derive(Debug, Clone, Deserialize)]
pub struct Task {
    /// Where the tables are.
    pub url: String,
    /// How many ask at once.
    pub clients: u64,
    /// How many connections the library may have.
    pub connections: u32,
    /// The number of the first flow.
    pub first: u64,
    /// What comes before the measurement, in milliseconds.
    pub warm_up_ms: u64,
    /// How long the measurement lasts, in milliseconds.
    pub measured_ms: u64,
}

#[derive(Debug, Serialize)]
#[serde(tag = "said", rename_all = "snake_case")]
enum Said {
    Reading,
    Ended { operations: u64, total: u64, per_second: f64, latency: Latency },
}

impl Task {
    /// Reads it from the one argument of this process.
    pub fn read() -> Result<Task> {
        let argument = std::env::args().nth(1).context("there is no task: `cargo xtask bench flows` starts this")?;
        serde_json::from_str(&argument).context("the task cannot be read")
    }

    /// Has clients run flows, and says what it came to.
    pub async fn drive<F>(&self, operate: impl Fn(Order) -> F + Clone + Send + 'static) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send,
    {
        let load = Load {
            clients: self.clients,
            warm_up: Duration::from_millis(self.warm_up_ms),
            measured: Duration::from_millis(self.measured_ms),
        };
        let first = self.first;
        let driven = drive(load, reading, move |number| operate(Order::numbered(first + number))).await?;
        say(&Said::Ended {
            operations: driven.operations,
            total: driven.total,
            per_second: driven.per_second,
            latency: driven.latency,
        })
    }
}

/// Waits while the benchmark looks at the server.
async fn reading() -> Result<()> {
    say(&Said::Reading)?;
    let heard = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    ensure!(heard > 0, "the benchmark has gone");
    Ok(())
}

fn say(said: &Said) -> Result<()> {
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, said)?;
    output.write_all(b"\n")?;
    Ok(output.flush()?)
}
