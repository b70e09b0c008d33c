//! What is aimed at, and whether it was reached.

use std::fmt::Write as _;

use serde::Serialize;

/// Something to reach, and whether it was.
#[derive(Debug, Serialize)]
pub struct Aim {
    /// What was measured.
    pub what: String,
    /// What it came to.
    pub measured: f64,
    /// What it should come to.
    pub target: String,
    /// Whether it does.
    pub met: bool,
}

impl Aim {
    /// A ratio of rates, taken round by round before the median, so that a machine that was busy for a while was so for
    /// both. Without `least` it is there for comparison.
    pub fn ratio(what: String, rounds: impl Iterator<Item = (f64, f64)>, least: Option<f64>) -> Aim {
        let measured = median(rounds.map(|(of, to)| of / to).collect());
        Aim {
            what,
            measured,
            target: least.map_or("for comparison".to_owned(), |least| format!(">= {least}")),
            met: least.is_none_or(|least| measured >= least),
        }
    }

    /// A table of aims.
    pub fn table(aims: &[Aim]) -> String {
        let width = aims.iter().map(|aim| aim.what.chars().count()).max().unwrap_or(0).max(40) + 1;
        let title = "ratios of the same run, and targets";
        let mut text = format!("{title:<width$}{:>9}  {:<15}\n", "measured", "target");
        for Aim { what, measured, target, met } in aims {
            let verdict = if *met { "" } else { "falls short" };
            let line = format!("{what:<width$}{measured:>9.2}  {target:<15}{verdict}");
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

/// The value in the middle; the upper of two.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
