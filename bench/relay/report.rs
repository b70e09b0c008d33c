//! What a run came to: rates, latencies, and how they compare with what is aimed at.

use std::fmt::Write as _;

use semel_bench::aim::{Aim, median};
use semel_bench::processor::PerEvent;
use serde::Serialize;

use crate::case::{Case, Publisher, SinkKind};
use crate::drain::Drained;
use crate::steady::{Endured, Steady};

/// Everything that was measured, as it is written to the file.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// The commit that was built.
    pub(crate) commit: String,
    /// Whether it was only to see that it works.
    pub(crate) quick: bool,
    pub(crate) machine: Vec<String>,
    pub(crate) drains: Vec<Drain>,
    pub(crate) steady: Vec<Steady>,
    pub(crate) endured: Vec<Endured>,
    pub(crate) aims: Vec<Aim>,
}

/// One case, over all rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Drain {
    #[serde(skip)]
    pub(crate) case: Case,
    pub(crate) name: String,
    /// The median of the rounds.
    pub(crate) events_per_second: f64,
    pub(crate) rounds: Vec<Drained>,
}

impl Report {
    /// Takes the rounds of a case.
    pub(crate) fn drained(&mut self, case: Case, rounds: Vec<Drained>) {
        let events_per_second = median(rounds.iter().map(|round| round.events_per_second).collect());
        self.drains.push(Drain { case, name: case.to_string(), events_per_second, rounds });
    }

    /// The median rate of a case, if it was measured.
    pub(crate) fn rate(&self, case: Case) -> Option<f64> {
        self.find(case).map(|drain| drain.events_per_second)
    }

    /// Compares what was measured with what is aimed at. Ratios are taken round by round, so that a machine that was
    /// busy for a while was so for both.
    pub(crate) fn judge(&mut self, commits: &[SinkKind]) {
        use Publisher::{Bare, BareOnePerKey, Polling, Semel};
        use SinkKind::{Kafka, Nats, NatsSynced, Null};
        let semel = |sink| Case::new(Semel, sink);
        let mut ratios = vec![
            (semel(Nats), Case::new(Bare, Nats), Some(0.5)),
            (semel(Nats), Case::new(BareOnePerKey, Nats), Some(0.5)),
            (semel(NatsSynced), Case::new(Bare, NatsSynced), Some(0.5)),
            (semel(NatsSynced), Case::new(BareOnePerKey, NatsSynced), Some(0.5)),
            (semel(Kafka), Case::new(Bare, Kafka), Some(0.5)),
        ];
        ratios.extend(commits.iter().map(|sink| (semel(*sink), Case::new(Bare, *sink), Some(0.5))));
        for sink in [Null, Nats, NatsSynced, Kafka] {
            ratios.push((semel(sink), Case::new(Polling(1), sink), Some(3.0)));
            ratios.push((semel(sink), Case::new(Polling(4), sink), Some(3.0)));
        }
        ratios.push((semel(Null).held(), semel(Null), Some(0.95)));
        ratios.push((Case::new(Polling(1), Null).held(), Case::new(Polling(1), Null), None));
        for (of, to, least) in ratios {
            self.aims.extend(self.ratio(of, to, least));
        }
        let late = self.steady.iter().filter(|steady| steady.case.starts_with("semel")).map(|steady| {
            Aim::at_most(format!("p99 in ms, {} at half load", steady.case), vec![steady.latency.p99_ms], Some(50.0))
        });
        let late: Vec<Aim> = late.collect();
        self.aims.extend(late);
        let (free, held) = (semel(Null), semel(Null).held());
        let (mine, theirs): (Vec<_>, Vec<_>) = self.endured.iter().partition(|endured| endured.case == held);
        let both = |of: fn(&Endured) -> f64| {
            let sum = |cases: &[&Endured]| cases.iter().copied().map(of).sum::<f64>();
            std::iter::once((sum(&mine), sum(&theirs)))
        };
        if let Some(Endured { seconds, .. }) = mine.first().filter(|_| !theirs.is_empty()) {
            let what = format!("{held} / {free}, writers and relay flat out for {seconds} s");
            let flat_out = Aim::ratio(what, both(|endured| endured.at_last), Some(0.95));
            let what = format!("{held} / {free}, backlogs after that");
            let then = Aim::ratio(what, both(|endured| endured.drained_then), Some(0.95));
            self.aims.extend([flat_out, then]);
        }
    }

    fn ratio(&self, of: Case, to: Case, least: Option<f64>) -> Option<Aim> {
        let (mine, theirs) = (self.find(of)?, self.find(to)?);
        let pairs = mine.rounds.iter().zip(&theirs.rounds);
        let pairs = pairs.map(|(a, b)| (a.events_per_second, b.events_per_second));
        Some(Aim::ratio(format!("{of} / {to}"), pairs, least))
    }

    fn find(&self, case: Case) -> Option<&Drain> {
        self.drains.iter().find(|drain| drain.case == case)
    }

    /// The tables.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.machine {
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(
            text,
            "\n{:<42}{:>9}  {:<21}{:>9}{:>10}{:>8}  processor µs/event: relay, postgres, brokers",
            "drain", "events/s", "rounds", "drained", "overtaken", "dead"
        );
        for Drain { name, events_per_second, rounds, .. } in &self.drains {
            let each = rounds.iter().map(|round| format!("{:.0}", round.events_per_second));
            let each = each.collect::<Vec<_>>().join(" ");
            let drained = rounds.iter().map(|round| round.events).min().unwrap_or(0);
            let overtaken = rounds.iter().map(|round| round.overtaken).max().unwrap_or(0);
            let dead = rounds.iter().filter_map(|round| round.dead_rows).max();
            let dead = dead.map_or("-".to_owned(), |dead| dead.to_string());
            let used = |of: fn(&PerEvent) -> f64| median(rounds.iter().map(|round| of(&round.processor)).collect());
            let (relay, postgres) = (used(|used| used.own_us), used(|used| used.postgres_us));
            let brokers = used(|used| used.brokers_us);
            let _ = writeln!(
                text,
                "{name:<42}{events_per_second:>9.0}  {each:<21}{drained:>9}{overtaken:>10}{dead:>8}\
                 {relay:>10.1}{postgres:>8.1}{brokers:>8.1}"
            );
        }
        if !self.steady.is_empty() {
            let _ = writeln!(
                text,
                "\n{:<40}{:>10}{:>10}{:>10}{:>9}{:>9}{:>9}",
                "commit to acknowledgement at half load",
                "flat out",
                "offered",
                "committed",
                "p50 ms",
                "p99 ms",
                "max ms"
            );
        }
        for Steady { case, both_flat_out, offered, committed, latency } in &self.steady {
            let (p50, p99, max) = (latency.p50_ms, latency.p99_ms, latency.max_ms);
            let _ = writeln!(
                text,
                "{case:<40}{both_flat_out:>10.0}{offered:>10.0}{committed:>10.0}{p50:>9.1}{p99:>9.1}{max:>9.1}"
            );
        }
        if !self.endured.is_empty() {
            let _ = writeln!(
                text,
                "\n{:<40}{:>8}{:>12}{:>12}{:>14}{:>6}  processor µs/event: writers and relay, postgres",
                "writers and relay flat out", "seconds", "first third", "last third", "drained then", "dead"
            );
        }
        for Endured { name, seconds, at_first, at_last, drained_then, dead_rows, processor, .. } in &self.endured {
            let PerEvent { own_us, postgres_us, .. } = processor;
            let _ = writeln!(
                text,
                "{name:<40}{seconds:>8}{at_first:>12.0}{at_last:>12.0}{drained_then:>14.0}{dead_rows:>6}\
                 {own_us:>10.1}{postgres_us:>8.1}"
            );
        }
        text.push('\n');
        text.push_str(&Aim::table(&self.aims));
        text
    }
}
