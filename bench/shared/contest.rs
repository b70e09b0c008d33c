//! Contestants who take turns, so that whatever the machine does meanwhile happens to all of them.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

use crate::drive::Load;
use crate::report::{Report, Round};

/// What to measure, and how much of it: the options that all of these benchmarks have.
#[derive(Debug, Clone, Args)]
pub struct Plan {
    /// Short measurements, one round: to see that it works.
    #[arg(long)]
    pub quick: bool,
    /// Prints one JSON document instead of tables. It is written to target/bench in any case.
    #[arg(long)]
    pub json: bool,
    /// For how many milliseconds each contestant is measured in each round.
    #[arg(long)]
    milliseconds: Option<u64>,
    /// How often each is measured where the targets hold; the median counts. Elsewhere it is half as often.
    #[arg(long)]
    rounds: Option<u32>,
    /// Measures with so many clients only; may be given more than once.
    #[arg(long)]
    clients: Vec<u64>,
    /// Measures only those whose name holds this text; may be given more than once.
    #[arg(long)]
    only: Vec<String>,
}

/// One who does the work.
pub trait Contest: Send {
    /// Who it is.
    fn name(&self) -> String;

    /// Does it under a load. Everything that was counted has to be there afterwards.
    fn round(&mut self, load: Load) -> impl Future<Output = Result<Round>> + Send;
}

impl Plan {
    /// How long one measurement lasts.
    pub fn measured(&self) -> Duration {
        Duration::from_millis(self.milliseconds.unwrap_or(if self.quick { 400 } else { 750 }).max(100))
    }

    /// Those that are wanted.
    pub fn wanted<T: ToString + Clone>(&self, all: &[T]) -> Result<Vec<T>> {
        let is_wanted = |name: &str| self.only.is_empty() || self.only.iter().any(|text| name.contains(text.as_str()));
        let wanted: Vec<T> = all.iter().filter(|one| is_wanted(&one.to_string())).cloned().collect();
        if wanted.is_empty() {
            let names: Vec<String> = all.iter().map(ToString::to_string).collect();
            bail!("nobody is named so: {}", names.join("; "));
        }
        Ok(wanted)
    }

    /// Those numbers of clients that are wanted.
    pub fn clients(&self, all: &[u64]) -> Vec<u64> {
        all.iter().copied().filter(|clients| self.clients.is_empty() || self.clients.contains(clients)).collect()
    }

    fn rounds(&self, most: bool) -> u32 {
        let rounds = self.rounds.unwrap_or(if self.quick { 1 } else { 7 }).max(1);
        if most { rounds } else { rounds.div_ceil(2) }
    }

    /// Has all of them take turns with so many clients, forth in one round and back in the next, so that nobody is
    /// always the one after the slowest. `between` runs before each round.
    pub async fn measure<C: Contest>(
        &self,
        report: &mut Report,
        contests: &mut [C],
        (clients, is_target): (u64, bool),
        between: impl AsyncFn() -> Result<()>,
    ) -> Result<()> {
        let measured = self.measured();
        let load = Load { clients, warm_up: measured * 2 / 3, measured };
        let rounds = self.rounds(is_target);
        let mut results = vec![Vec::new(); contests.len()];
        for round in 1..=rounds {
            between().await?;
            for turn in 0..contests.len() {
                let place = if round % 2 == 0 { contests.len() - 1 - turn } else { turn };
                let result = contests[place].round(load).await?;
                let (name, rate) = (contests[place].name(), result.per_second);
                eprintln!("{clients} clients, round {round} of {rounds}: {name}: {rate:.0}/s");
                results[place].push(result);
            }
        }
        for (contest, rounds) in contests.iter().zip(results) {
            report.measured(contest.name(), clients, rounds);
        }
        Ok(())
    }
}
