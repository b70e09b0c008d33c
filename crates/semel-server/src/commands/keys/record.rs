//! How a key looks to an operator, as text and as JSON.

use semel::operator::KeyRecord;
use serde_json::{Value, json};

use crate::commands::text::{facts, time};

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
    let mut told = vec![
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
        told.push(("holder", lease.holder.clone()));
        told.push(("epoch", lease.epoch.to_string()));
        told.push(("recovery point", lease.recovery_point.clone().unwrap_or_else(none)));
        told.push(("lease expires", time(lease.expires_at_ms)));
    }
    facts(&told)
}
