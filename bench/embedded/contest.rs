//! One contestant, on a fresh file each round.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use semel_bench::contest;
use semel_bench::drive::{Load, drive};
use semel_bench::processor::Used;
use semel_bench::report::Round;

use crate::case::Contestant;
use crate::file::File;
use crate::runner::Runner;

/// There is no server whose processor time would count.
const NO_SERVER: i32 = -1;

/// A contestant, over all rounds.
#[derive(Debug)]
pub(crate) struct Contest {
    contestant: Contestant,
    weighed: Vec<Weighed>,
}

/// What the operations of a round took together.
#[derive(Debug)]
struct Weighed {
    clients: u64,
    operations: u64,
    commits: u64,
    written: u64,
}

/// Where everything stands.
#[derive(Debug, Clone, Copy)]
struct Reading {
    commits: u64,
    written: u64,
    used: Used,
}

impl contest::Contest for Contest {
    fn name(&self) -> String {
        self.contestant.to_string()
    }

    /// Measures one round. Everything that was counted has to be in the file, once.
    async fn round(&mut self, load: Load) -> Result<Round> {
        let file = File::fresh().await?;
        let runner = Arc::new(Runner::open(self.contestant, &file).await?);
        let read = || async { Reading::take(&runner) };
        let asked = Arc::clone(&runner);
        let operate = move |number: u64| {
            let runner = Arc::clone(&asked);
            async move { runner.charge(number).await }
        };
        let driven = drive(load, read, operate).await?;
        drop(runner);
        self.check(&file, driven.total)?;
        let (before, after) = (driven.before, driven.after);
        self.weighed.push(Weighed {
            clients: load.clients,
            operations: driven.operations,
            commits: after.commits - before.commits,
            written: after.written - before.written,
        });
        Ok(Round {
            per_second: driven.per_second,
            latency: driven.latency,
            processor: after.used.since(before.used, driven.operations),
            log_bytes: None,
        })
    }
}

impl Contest {
    pub(crate) fn new(contestant: Contestant) -> Contest {
        Contest { contestant, weighed: Vec::new() }
    }

    fn check(&self, file: &File, operations: u64) -> Result<()> {
        let [lines, changes, keys, events] = file.counted()?;
        let kept = if self.contestant.is_protected() { operations } else { 0 };
        if (lines, changes, keys, events) != (operations, operations, kept, kept) {
            bail!(
                "{}: {operations} operations left {lines} lines, {changes} changes, {keys} keys and {events} events",
                self.contestant
            );
        }
        Ok(())
    }

    /// How many operations shared a commit, over all rounds with so many clients.
    pub(crate) fn per_commit(&self, clients: u64) -> f64 {
        self.sum(clients, |round| round.operations) / self.sum(clients, |round| round.commits)
    }

    /// How much was written for an operation, to the log and from there to the file.
    pub(crate) fn kib_written(&self, clients: u64) -> f64 {
        self.sum(clients, |round| round.written) / 1024.0 / self.sum(clients, |round| round.operations)
    }

    fn sum(&self, clients: u64, of: fn(&Weighed) -> u64) -> f64 {
        self.weighed.iter().filter(|round| round.clients == clients).map(of).sum::<u64>() as f64
    }
}

impl Reading {
    fn take(runner: &Runner) -> Result<Reading> {
        Ok(Reading { commits: runner.commits(), written: written()?, used: Used::now(NO_SERVER) })
    }
}

/// How many bytes this process has written so far: next to nothing goes elsewhere than to the file and its log.
fn written() -> Result<u64> {
    let counters = std::fs::read_to_string("/proc/self/io").context("what is written cannot be counted")?;
    let written = counters.lines().find_map(|line| line.strip_prefix("wchar: "));
    Ok(written.context("/proc/self/io does not tell what is written")?.parse()?)
}
