//! How facts, tables and times look on a terminal.

use std::time::{Duration, UNIX_EPOCH};

use serde::de::IgnoredAny;

/// One line per fact, its name first.
pub(crate) fn facts<T: AsRef<str>>(facts: &[(&str, T)]) -> String {
    facts.iter().map(|(name, fact)| format!("{name:<15} {}\n", fact.as_ref())).collect()
}

/// Rows under a heading, each column as wide as its widest cell.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heading[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(&mut heading.iter().copied());
    for row in rows {
        text += &line(&mut row.iter().map(String::as_str));
    }
    text
}

/// Text of others for a terminal: one line, no control characters, at most `limit` characters.
pub(crate) fn line(text: &str, limit: usize) -> String {
    let shown: String = text.chars().take(limit).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(limit).is_some() { shown + "…" } else { shown }
}

/// A payload that is JSON in UTF-8, as text. The parser skips over strings without reading them as UTF-8, so that is
/// checked first.
pub(crate) fn json(payload: &[u8]) -> Option<&str> {
    std::str::from_utf8(payload).ok().filter(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Milliseconds since the Unix epoch as RFC 3339 in UTC.
pub(crate) fn time(ms: i64) -> String {
    let time = u64::try_from(ms).ok().and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
    // Past the year 9999 there is no such notation, and a far-off expiry must not stop an operator.
    let in_range = ms < 253_402_300_800_000;
    match time.filter(|_| in_range) {
        Some(time) => humantime::format_rfc3339_millis(time).to_string(),
        None => format!("{ms} ms"),
    }
}

/// How long ago something was, in whole seconds.
pub(crate) fn age(since_ms: i64, now_ms: i64) -> String {
    let seconds = now_ms.saturating_sub(since_ms).max(0).unsigned_abs() / 1000;
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_spaces() {
        let rows = [vec!["a".to_owned(), "long cell".to_owned()], vec!["longer".to_owned(), "b".to_owned()]];
        assert_eq!(table(&["ONE", "TWO"], &rows), "ONE     TWO\na       long cell\nlonger  b\n");
        assert_eq!(table(&["ONE", "TWO"], &[]), "ONE  TWO\n");
    }

    #[test]
    fn times_are_utc_and_far_ones_do_not_panic() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(time(i64::MAX), format!("{} ms", i64::MAX));
        assert_eq!(time(-1), "-1 ms");
        assert_eq!(age(1_000, 92_999), "1m 31s");
        assert_eq!(age(i64::MAX, i64::MIN), "0s");
    }

    #[test]
    fn what_others_wrote_stays_on_its_line() {
        assert_eq!(line("a\nb\u{1b}[2J", 80), "a b [2J");
        assert_eq!(line("äöü", 3), "äöü");
        assert_eq!(line("äöüx", 3), "äöü…");
    }
}
