//! The page: its prose, with the tables in their places.

use std::fmt::Write as _;

use semel_bench::aim::{median, spread};

use crate::{Aim, Case, Round, Run, Table};

const PAGE: &str = include_str!("page.txt");

/// The whole page.
pub(crate) fn write(runs: &[(&str, &str, Run)]) -> String {
    let machine = runs.first().and_then(|(_, _, run)| run.machine.first()).map_or("", String::as_str);
    let targets: Vec<&Aim> =
        runs.iter().flat_map(|(_, _, run)| &run.aims).filter(|aim| aim.target != "for comparison").collect();
    let mut sections = String::new();
    for (name, title, run) in runs {
        let _ = write!(sections, "## {title}\n\n`cargo xtask bench {name}`. {}.\n\n", run.machine.join("; "));
        let parts = [rates(&cases(run)), run.tables.iter().map(figures).collect(), aims(&compared(run))];
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let _ = writeln!(sections, "{part}");
        }
    }
    PAGE.replace("{{machine}}", &format!("{machine}."))
        .replace("{{aims}}\n", &aims(&targets))
        .replace("{{sections}}\n", sections.trim_end())
        .trim_end()
        .to_owned()
        + "\n"
}

/// The cases that are of the common form.
fn cases(run: &Run) -> Vec<Case> {
    run.cases.iter().filter_map(|case| serde_json::from_value(case.clone()).ok()).collect()
}

fn compared(run: &Run) -> Vec<&Aim> {
    run.aims.iter().filter(|aim| aim.target == "for comparison").collect()
}

/// Operations per second, a column for each number of clients. The last columns are of the number in the middle.
fn rates(cases: &[Case]) -> String {
    let mut clients: Vec<u64> = cases.iter().map(|case| case.clients).collect();
    clients.sort_unstable();
    clients.dedup();
    let Some(middle) = clients.get(clients.len() / 2).copied() else { return String::new() };
    let mut names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(*name));
    let mut text = String::from("| operations per second |");
    for clients in &clients {
        let _ = write!(text, " {} |", if *clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") });
    }
    let _ = writeln!(text, " p50 ms at {middle} | log bytes each |\n|---|{}---|---|", "---|".repeat(clients.len()));
    for name in names {
        let find = |clients: u64| cases.iter().find(|case| case.name == name && case.clients == clients);
        let _ = write!(text, "| {name} |");
        for clients in &clients {
            let _ = write!(text, " {} |", find(*clients).map_or(String::new(), rate));
        }
        let of = |figure: fn(&Round) -> Option<f64>| {
            let rounds: Option<Vec<f64>> = find(middle)?.rounds.iter().map(figure).collect();
            rounds.map(median)
        };
        let p50 = of(|round| Some(round.p50_ms)).map_or(String::new(), |ms| format!("{ms:.2}"));
        let log = of(|round| round.log_bytes).map_or(String::new(), |bytes| format!("{bytes:.0}"));
        let _ = writeln!(text, " {p50} | {log} |");
    }
    text
}

fn rate(case: &Case) -> String {
    let rounds: Vec<f64> = case.rounds.iter().map(|round| round.per_second).collect();
    let between = spread(&rounds).map_or(String::new(), |(least, most)| format!(" ({least:.0} to {most:.0})"));
    format!("{:.0}{between}", case.per_second)
}

fn figures(table: &Table) -> String {
    let mut text = format!("| {} | {} |\n|---|{}\n", table.title, table.columns.join(" | "), {
        "---|".repeat(table.columns.len())
    });
    for (name, figures) in &table.rows {
        let figures: Vec<String> = figures.iter().map(|figure| format!("{figure:.2}")).collect();
        let _ = writeln!(text, "| {name} | {} |", figures.join(" | "));
    }
    text
}

fn aims(aims: &[&Aim]) -> String {
    if aims.is_empty() {
        return String::new();
    }
    let mut text = String::from("| | measured | least to most | target | |\n|---|---|---|---|---|\n");
    for Aim { what, measured, spread, target, met } in aims {
        let spread = spread.map_or(String::new(), |(least, most)| format!("{least:.2} to {most:.2}"));
        let target = if target == "for comparison" { "" } else { target };
        let verdict = if *met { "" } else { "falls short" };
        let _ = writeln!(text, "| {what} | {measured:.2} | {spread} | {target} | {verdict} |");
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn run() -> Run {
        serde_json::from_value(serde_json::json!({
            "quick": false, "machine": ["two cores", "a server"],
            "cases": [
                {"name": "bare", "clients": 8, "per_second": 100.4, "rounds": [
                    {"per_second": 100.4, "p50_ms": 1.0, "log_bytes": 300.0},
                    {"per_second": 90.0, "p50_ms": 1.25, "log_bytes": 310.0}]},
                {"name": "another form", "messages_per_second": 1.0}
            ],
            "tables": [{"title": "one", "columns": ["rows"], "rows": [["bare", [2.0]]]}],
            "aims": [
                {"what": "a / b", "measured": 0.5, "spread": [0.4, 0.6], "target": ">= 0.8", "met": false},
                {"what": "a / c", "measured": 1.5, "spread": null, "target": "for comparison", "met": true}
            ]
        }))
        .unwrap()
    }

    #[test]
    fn every_figure_stands_on_the_page_and_no_place_is_left_open() {
        let page = write(&[("keys", "Once", run())]);
        assert!(
            page.contains("\ntwo cores.\n") && page.contains("`cargo xtask bench keys`. two cores; a server."),
            "{page}"
        );
        assert!(page.contains("| a / b | 0.50 | 0.40 to 0.60 | >= 0.8 | falls short |"), "{page}");
        assert!(page.contains("| a / c | 1.50 |  |  |  |"), "{page}");
        assert!(page.contains("| bare | 100 (90 to 100) | 1.25 | 310 |"), "{page}");
        assert!(page.contains("| bare | 2.00 |"), "{page}");
        assert!(!page.contains("another form") && !page.contains("{{"), "{page}");
    }
}
