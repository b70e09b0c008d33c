//! What a run came to: a table, a document for programs, and a picture.
#![allow(clippy::print_stdout)]

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use semel_testkit::cluster::target_dir;
use serde::Serialize;

use crate::aim::{Aim, median, spread};
use crate::drive::Latency;
use crate::machine;
use crate::plot::{self, Bar, Group};
use crate::processor::PerEvent;

/// Everything that was measured, as it is written to the file.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Which benchmark.
    pub bench: &'static str,
    /// The commit that was built.
    pub commit: String,
    /// Whether it was only to see that it works.
    pub quick: bool,
    /// What it ran on, a line each.
    pub machine: Vec<String>,
    /// The rates.
    pub cases: Vec<Case>,
    /// What belongs to it besides rates.
    pub tables: Vec<Table>,
    /// What is aimed at.
    pub aims: Vec<Aim>,
}

/// One case, over all rounds.
#[derive(Debug, Serialize)]
pub struct Case {
    /// Who did it.
    pub name: String,
    /// For how many clients at once.
    pub clients: u64,
    /// The median of the rounds.
    pub per_second: f64,
    /// All of them.
    pub rounds: Vec<Round>,
}

/// One round of a case.
#[derive(Debug, Clone, Serialize)]
pub struct Round {
    /// How many operations per second.
    pub per_second: f64,
    /// How long they took.
    #[serde(flatten)]
    pub latency: Latency,
    /// Processor time per operation.
    #[serde(flatten)]
    pub processor: PerEvent,
    /// Bytes of write-ahead log per operation, where the store tells.
    pub log_bytes: Option<f64>,
}

/// Figures in rows and columns.
#[derive(Debug, Serialize)]
pub struct Table {
    /// What the rows are.
    pub title: String,
    /// What the columns are.
    pub columns: Vec<String>,
    /// Each with its name.
    pub rows: Vec<(String, Vec<f64>)>,
}

impl Report {
    /// Nothing was measured yet.
    pub fn new(bench: &'static str, quick: bool) -> Report {
        let (commit, machine) = (machine::commit(), machine::described());
        Report { bench, commit, quick, machine, cases: Vec::new(), tables: Vec::new(), aims: Vec::new() }
    }

    /// Takes the rounds of a case.
    pub fn measured(&mut self, name: String, clients: u64, rounds: Vec<Round>) {
        let per_second = median(rounds.iter().map(|round| round.per_second).collect());
        self.cases.push(Case { name, clients, per_second, rounds });
    }

    /// Compares two cases with as many clients, if both were measured.
    pub fn ratio(&mut self, of: &str, to: &str, clients: u64, least: Option<f64>) {
        let find = |name: &str| self.cases.iter().find(|case| case.name == name && case.clients == clients);
        let (Some(mine), Some(theirs)) = (find(of), find(to)) else { return };
        let pairs = mine.rounds.iter().zip(&theirs.rounds).map(|(mine, theirs)| (mine.per_second, theirs.per_second));
        let aim = Aim::ratio(format!("{of} / {to}, {}", clients_of(clients)), pairs, least);
        self.aims.push(aim);
    }

    /// Writes the document and the picture, and prints the tables or the document.
    pub fn publish(&self, json: bool) -> Result<()> {
        let picture = write_file(self.bench, "svg", &self.picture())?;
        publish(self.bench, self, &format!("{}\n{}", self.text(), picture.display()), json)
    }

    fn picture(&self) -> String {
        let mut groups: Vec<Group> = Vec::new();
        for case in &self.cases {
            let title = clients_of(case.clients);
            let rates: Vec<f64> = case.rounds.iter().map(|round| round.per_second).collect();
            let (least, most) = spread(&rates).unwrap_or((case.per_second, case.per_second));
            let bar = Bar { label: case.name.clone(), median: case.per_second, least, most };
            match groups.iter_mut().find(|group| group.title == title) {
                Some(group) => group.bars.push(bar),
                None => groups.push(Group { title, bars: vec![bar] }),
            }
        }
        plot::bars(self.bench, "operations per second", &groups)
    }

    /// The tables.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.machine {
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(
            text,
            "\n{:<44}{:>8}{:>10}  {:<16}{:>8}{:>8}{:>8}  processor µs: own, postgres",
            "case", "clients", "median/s", "least to most", "p50 ms", "p99 ms", "log B"
        );
        for Case { name, clients, per_second, rounds } in &self.cases {
            let rates: Vec<f64> = rounds.iter().map(|round| round.per_second).collect();
            let between = spread(&rates).map_or(String::new(), |(least, most)| format!("{least:.0} to {most:.0}"));
            let middle = |of: fn(&Round) -> f64| median(rounds.iter().map(of).collect());
            let (p50, p99) = (middle(|round| round.latency.p50_ms), middle(|round| round.latency.p99_ms));
            let (own, server) = (middle(|round| round.processor.own_us), middle(|round| round.processor.postgres_us));
            let log: Option<Vec<f64>> = rounds.iter().map(|round| round.log_bytes).collect();
            let log = log.map_or("-".to_owned(), |bytes| format!("{:.0}", median(bytes)));
            let _ = writeln!(
                text,
                "{name:<44}{clients:>8}{per_second:>10.0}  {between:<16}{p50:>8.2}{p99:>8.2}{log:>8}\
                 {own:>10.1}{server:>10.1}"
            );
        }
        for table in &self.tables {
            text.push('\n');
            text.push_str(&table.text());
        }
        text.push('\n');
        text.push_str(&Aim::table(&self.aims));
        text
    }
}

/// Writes what a benchmark measured to its document, and prints that or the text.
pub fn publish(bench: &str, report: &impl Serialize, text: &str, json: bool) -> Result<()> {
    let document = serde_json::to_string_pretty(report)?;
    let file = write_file(bench, "json", &format!("{document}\n"))?;
    match json {
        true => println!("{document}"),
        false => println!("{text}\n{}", file.display()),
    }
    Ok(())
}

fn write_file(bench: &str, kind: &str, content: &str) -> Result<PathBuf> {
    let directory = target_dir().join("bench");
    std::fs::create_dir_all(&directory)?;
    let file = directory.join(format!("{bench}.{kind}"));
    std::fs::write(&file, content)?;
    Ok(file)
}

impl Table {
    fn text(&self) -> String {
        let mut text = format!("{:<44}", self.title);
        for column in &self.columns {
            let _ = write!(text, "{column:>14}");
        }
        text.push('\n');
        for (name, figures) in &self.rows {
            let _ = write!(text, "{name:<44}");
            for figure in figures {
                let _ = write!(text, "{figure:>14.2}");
            }
            text.push('\n');
        }
        text
    }
}

fn clients_of(clients: u64) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}
