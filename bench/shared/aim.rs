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
    /// The least and the most that it came to, where there were several rounds.
    pub spread: Option<(f64, f64)>,
    /// What it should come to.
    pub target: String,
    /// Whether it does.
    pub met: bool,
}

impl Aim {
    /// A ratio of rates, taken round by round before the median, so that a machine that was busy for a while was so for
    /// both. Without `least` it is there for comparison.
    pub fn ratio(what: String, rounds: impl Iterator<Item = (f64, f64)>, least: Option<f64>) -> Aim {
        let ratios: Vec<f64> = rounds.map(|(of, to)| of / to).collect();
        let spread = spread(&ratios);
        let measured = median(ratios);
        Aim {
            what,
            measured,
            spread,
            target: least.map_or("for comparison".to_owned(), |least| format!(">= {least}")),
            met: least.is_none_or(|least| measured >= least),
        }
    }

    /// Something that should not be more than `most`, taken round by round. Without `most` it is there for comparison.
    pub fn at_most(what: String, rounds: Vec<f64>, most: Option<f64>) -> Aim {
        let spread = spread(&rounds);
        let measured = median(rounds);
        Aim {
            what,
            measured,
            spread,
            target: most.map_or("for comparison".to_owned(), |most| format!("<= {most}")),
            met: most.is_none_or(|most| measured <= most),
        }
    }

    /// A table of aims.
    pub fn table(aims: &[Aim]) -> String {
        let width = aims.iter().map(|aim| aim.what.chars().count()).max().unwrap_or(0).max(40) + 1;
        let title = "ratios of the same run, and targets";
        let mut text = format!("{title:<width$}{:>9}  {:<15}{:<15}\n", "measured", "least to most", "target");
        for Aim { what, measured, spread, target, met } in aims {
            let spread = spread.map_or(String::new(), |(least, most)| format!("{least:.2} to {most:.2}"));
            let verdict = if *met { "" } else { "falls short" };
            let line = format!("{what:<width$}{measured:>9.2}  {spread:<15}{target:<15}{verdict}");
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

/// The least and the most of several values.
pub fn spread(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().reduce(f64::min)?;
    let most = values.iter().copied().reduce(f64::max)?;
    (values.len() > 1).then_some((least, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        // The machine was half as fast in the second round, for both.
        let aim = Aim::ratio("a / b".to_owned(), [(90.0, 100.0), (45.0, 50.0), (80.0, 100.0)].into_iter(), Some(0.9));
        assert_eq!((aim.measured, aim.spread, aim.met), (0.9, Some((0.8, 0.9)), true));
        let short = Aim::ratio("a / b".to_owned(), [(89.0, 100.0)].into_iter(), Some(0.9));
        assert_eq!((short.spread, short.met), (None, false));
        assert!(Aim::table(&[short]).contains("falls short"));
    }

    #[test]
    fn what_should_be_little_falls_short_above() {
        assert!(Aim::at_most("ms".to_owned(), vec![0.14, 0.15, 0.16], Some(0.15)).met);
        assert!(!Aim::at_most("ms".to_owned(), vec![0.16], Some(0.15)).met);
        assert!(Aim::at_most("ms".to_owned(), vec![9.0], None).met);
    }
}
