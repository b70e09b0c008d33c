//! How a key looks to an operator, as text and as JSON.

use std::time::{Duration, UNIX_EPOCH};

use semel::operator::KeyRecord;
use serde_json::{Value, json};

/// A key as a JSON object. Times are RFC 3339 in UTC.
pub(crate) fn to_json(record: &KeyRecord) -> Value {
    json!({
        "tenant": record.scope.tenant(),
        "operation": record.scope.operation(),
        "key": record.key.as_str(),
        "execution": record.execution.as_uuid().to_string(),
        "state": record.state.as_str(),
        "status": record.status,
        "reply_bytes": record.reply_bytes,
        "sealed_by": record.sealed_by,
        "fingerprint": record.fingerprint,
        "created_at": time(record.created_at_ms),
        "expires_at": time(record.expires_at_ms),
        "expired": record.expired,
        "lease": record.lease.as_ref().map(|lease| json!({
            "holder": lease.holder,
            "epoch": lease.epoch,
            "recovery_point": lease.recovery_point,
            "expires_at": time(lease.expires_at_ms),
            "remaining_ms": u64::try_from(lease.remaining.as_millis()).unwrap_or(u64::MAX),
        })),
    })
}

/// A key as one line per fact.
pub(crate) fn to_text(record: &KeyRecord) -> String {
    let none = || "-".to_owned();
    let expires = time(record.expires_at_ms) + if record.expired { " (expired)" } else { "" };
    let mut facts = vec![
        ("tenant", record.scope.tenant().to_owned()),
        ("operation", record.scope.operation().to_owned()),
        ("key", record.key.to_string()),
        ("execution", record.execution.as_uuid().to_string()),
        ("state", record.state.as_str().to_owned()),
        ("status", record.status.map_or_else(none, |status| status.to_string())),
        ("reply bytes", record.reply_bytes.to_string()),
        ("sealed by", record.sealed_by.clone().unwrap_or_else(none)),
        ("fingerprint", record.fingerprint.clone()),
        ("created", time(record.created_at_ms)),
        ("expires", expires),
    ];
    if let Some(lease) = &record.lease {
        facts.push(("holder", lease.holder.clone()));
        facts.push(("epoch", lease.epoch.to_string()));
        facts.push(("recovery point", lease.recovery_point.clone().unwrap_or_else(none)));
        facts.push(("lease expires", time(lease.expires_at_ms)));
    }
    facts.into_iter().map(|(name, fact)| format!("{name:<15} {fact}\n")).collect()
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
    }
}
