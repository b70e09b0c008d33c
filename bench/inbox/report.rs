//! What a run came to, and how it compares with what is aimed at.

use std::fmt::Write as _;

use semel::source::Recognition;
use semel_bench::aim::{Aim, median};
use semel_bench::processor::PerEvent;
use semel_brokers::kafka::pipeline::Guarantee;
use serde::Serialize;

use crate::case::{Again, Case, Proof, Sending, Store, Tier};
use crate::meter::Measured;

/// Everything that was measured, as it is written to the file.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// The commit that was built.
    pub(crate) commit: String,
    /// Whether it was only to see that it works.
    pub(crate) quick: bool,
    pub(crate) machine: Vec<String>,
    pub(crate) cases: Vec<Rounds>,
    pub(crate) aims: Vec<Aim>,
}

/// One case, over all rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Rounds {
    #[serde(skip)]
    pub(crate) case: Case,
    pub(crate) name: String,
    /// The median of the rounds.
    pub(crate) messages_per_second: f64,
    pub(crate) rounds: Vec<Measured>,
}

impl Report {
    /// Takes the rounds of a case.
    pub(crate) fn measured(&mut self, case: Case, rounds: Vec<Measured>) {
        let messages_per_second = median(rounds.iter().map(|round| round.messages_per_second).collect());
        self.cases.push(Rounds { case, name: case.to_string(), messages_per_second, rounds });
    }

    /// Compares what was measured with what is aimed at.
    pub(crate) fn judge(&mut self) {
        use Proof::{Id, Nothing, Offset, Sequence};
        use Sending::{Awaited, ByHand, Deferred};
        let mut ratios = Vec::new();
        for store in [Store::Postgres, Store::Sqlite] {
            for workers in [1, 8] {
                let bare = Case::direct(store, Nothing, 1, workers, Awaited);
                for proof in [Id, Sequence, Offset] {
                    ratios.push((Case::direct(store, proof, 1, workers, Awaited), bare, Some(0.9)));
                }
                let by_hand = Case::direct(store, Nothing, 1, workers, ByHand);
                ratios.push((by_hand, bare, None));
                ratios.push((Case::direct(store, Id, 1, workers, Awaited), by_hand, None));
                let bare_at_once = Case::direct(store, Nothing, 1, workers, Deferred);
                ratios.push((Case::direct(store, Id, 1, workers, Deferred), bare_at_once, None));
                for proof in [Id, Sequence, Offset] {
                    ratios.push((Case::direct(store, proof, 100, workers, Awaited), bare, Some(3.0)));
                }
                ratios.push((Case::direct(store, Id, 100, workers, Deferred), bare, Some(3.0)));
                ratios.push((Case::direct(store, Nothing, 100, workers, Awaited), bare, None));
            }
            for (again, batch) in
                [(Again::None, 100), (Again::Mixed, 1), (Again::Mixed, 100), (Again::Bursts, 1), (Again::Bursts, 100)]
            {
                let runner = |tier| Case::runner(store, Recognition::Id, batch, again, tier);
                for tier in [Tier::Filter, Tier::Redis] {
                    ratios.push((runner(tier), runner(Tier::Off), None));
                }
            }
        }
        for batch in [100, 1_000] {
            let piped = |guarantee| Case::piped(guarantee, batch);
            ratios.push((piped(Guarantee::ExactlyOnce), piped(Guarantee::AtLeastOnce), None));
        }
        for (of, to, least) in ratios {
            self.aims.extend(self.ratio(of, to, least));
        }
    }

    fn ratio(&self, of: Case, to: Case, least: Option<f64>) -> Option<Aim> {
        let (mine, theirs) = (self.find(of)?, self.find(to)?);
        let pairs = mine.rounds.iter().zip(&theirs.rounds);
        let pairs = pairs.map(|(a, b)| (a.messages_per_second, b.messages_per_second));
        Some(Aim::ratio(format!("{of} / {to}"), pairs, least))
    }

    fn find(&self, case: Case) -> Option<&Rounds> {
        self.cases.iter().find(|rounds| rounds.case == case)
    }

    /// The tables.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.machine {
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(
            text,
            "\n{:<72}{:>11}  {:<24}{:>8}{:>8}{:>9}  processor µs/message: own, postgres, brokers",
            "case", "messages/s", "rounds", "/commit", "log B", "troubles"
        );
        for Rounds { name, messages_per_second, rounds, .. } in &self.cases {
            let each = rounds.iter().map(|round| format!("{:.0}", round.messages_per_second));
            let each = each.collect::<Vec<_>>().join(" ");
            let commit = median(rounds.iter().map(|round| round.messages_per_commit).collect());
            let journal: Option<Vec<f64>> = rounds.iter().map(|round| round.journal_bytes).collect();
            let journal = journal.map_or("-".to_owned(), |bytes| format!("{:.0}", median(bytes)));
            let troubles: u64 = rounds.iter().map(|round| round.troubles).sum();
            let used = |of: fn(&PerEvent) -> f64| median(rounds.iter().map(|round| of(&round.processor)).collect());
            let (own, postgres) = (used(|used| used.own_us), used(|used| used.postgres_us));
            let brokers = used(|used| used.brokers_us);
            let _ = writeln!(
                text,
                "{name:<72}{messages_per_second:>11.0}  {each:<24}{commit:>8.1}{journal:>8}{troubles:>9}\
                 {own:>10.1}{postgres:>8.1}{brokers:>8.1}"
            );
        }
        text.push('\n');
        text.push_str(&Aim::table(&self.aims));
        text
    }
}
