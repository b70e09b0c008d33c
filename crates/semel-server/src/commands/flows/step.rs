//! How a step of a flow looks to an operator, as text and as JSON.

use std::time::Duration;

use semel::flow::{Entry, State, StepShown};
use semel::intent::Fault;
use serde_json::{Value, json};

use super::record::{CAUSE_SHOWN, NAME_SHOWN};
use crate::commands::text::{facts, line, time};

/// A step as a JSON object. What belongs to a call is null for other steps, and an attempt is null whose outcome nobody
/// lived to record.
pub(super) fn to_json(shown: &StepShown) -> Value {
    let (entry, intent) = (&shown.entry, shown.entry.intent.as_ref());
    let attempted = intent.filter(|intent| !intent.attempts.is_empty());
    let attempts = intent.map(|intent| intent.attempts.iter().map(|came_to| came_to.map(name)).collect::<Vec<_>>());
    json!({
        "step": entry.step,
        "kind": entry.kind.as_str(),
        "state": entry.state.as_str(),
        "provider": intent.map(|intent| intent.provider.as_str()),
        "derived_key": intent.map(|intent| intent.key.as_str()),
        "attempts": attempts,
        "sent_seconds_ago": attempted.map(|intent| intent.age.as_secs()),
        "attempted_seconds_ago": attempted.map(|intent| intent.since_attempt.as_secs()),
        "cause": intent.and_then(|intent| intent.cause.as_deref()),
        "recorded_at": time(shown.recorded_at_ms),
        "settled_at": shown.settled_at_ms.map(time),
        "result_bytes": shown.result_bytes,
        "sealed_by": entry.result.as_ref().and_then(|result| result.sealed_by.as_deref()),
    })
}

/// A step as one line per fact.
pub(super) fn to_text(shown: &StepShown) -> String {
    let entry = &shown.entry;
    let mut told = vec![
        ("step", line(&entry.step, NAME_SHOWN)),
        ("kind", entry.kind.as_str().to_owned()),
        ("state", entry.state.as_str().to_owned()),
    ];
    if let Some(intent) = &entry.intent {
        told.push(("provider", line(&intent.provider, NAME_SHOWN)));
        told.push(("derived key", line(&intent.key, NAME_SHOWN)));
        told.push(("attempts", attempts(entry, &intent.attempts)));
        if !intent.attempts.is_empty() {
            told.push(("first attempt", ago(intent.age)));
            told.push(("last attempt", ago(intent.since_attempt)));
        }
    }
    told.push(("recorded", time(shown.recorded_at_ms)));
    if let Some(settled_at_ms) = shown.settled_at_ms {
        told.push(("settled", time(settled_at_ms)));
        told.push(("result bytes", shown.result_bytes.to_string()));
    }
    let sealed_by = entry.result.as_ref().and_then(|result| result.sealed_by.as_deref());
    told.extend(sealed_by.map(|id| ("sealed by", line(id, NAME_SHOWN))));
    let cause = entry.intent.as_ref().and_then(|intent| intent.cause.as_deref());
    told.extend(cause.map(|cause| ("cause", line(cause, CAUSE_SHOWN))));
    facts(&told)
}

/// What each attempt came to, in words. Nothing is noted of an attempt that brought the result: the result is.
fn attempts(entry: &Entry, attempts: &[Option<Fault>]) -> String {
    let last = attempts.len().saturating_sub(1);
    let words = attempts.iter().enumerate().map(|(number, came_to)| match came_to {
        Some(fault) => word(*fault),
        None if number == last && entry.state == State::Done => "done",
        None => "not recorded",
    });
    let words = words.collect::<Vec<_>>().join(", ");
    match attempts.len() {
        0 => "none".to_owned(),
        1 => format!("1 attempt: {words}"),
        count => format!("{count} attempts: {words}"),
    }
}

fn ago(age: Duration) -> String {
    humantime::format_duration(Duration::from_secs(age.as_secs())).to_string() + " ago"
}

fn word(fault: Fault) -> &'static str {
    match fault {
        Fault::UnknownForGood => "unknown for good",
        fault => name(fault),
    }
}

fn name(fault: Fault) -> &'static str {
    match fault {
        Fault::Retryable => "retryable",
        Fault::Refused => "refused",
        Fault::Terminal => "terminal",
        Fault::Unknown => "unknown",
        Fault::UnknownForGood => "unknown_for_good",
    }
}

#[cfg(test)]
mod tests {
    use semel::flow::{Intent, Kind};

    use super::*;

    fn call(state: State, attempts: &[Option<Fault>]) -> StepShown {
        let intent = Intent {
            provider: "card-processor".to_owned(),
            key: "53195d6c".to_owned(),
            attempts: attempts.to_vec(),
            age: Duration::from_secs(90),
            since_attempt: Duration::from_secs(30),
            cause: Some("no answer\nwithin 30s".to_owned()),
        };
        let entry = Entry {
            step: "charge".to_owned(),
            kind: Kind::Call,
            state,
            result: None,
            intent: Some(intent),
            restored: false,
        };
        StepShown { entry, result_bytes: 0, recorded_at_ms: 0, settled_at_ms: None }
    }

    #[test]
    fn attempts_are_told_in_words() {
        let (unknown, retryable) = (Some(Fault::Unknown), Some(Fault::Retryable));
        let told: [(State, &[Option<Fault>], &str); 7] = [
            (State::Pending, &[], "none"),
            (State::Pending, &[None], "1 attempt: not recorded"),
            (State::Unknown, &[unknown, retryable, unknown], "3 attempts: unknown, retryable, unknown"),
            (State::Unknown, &[None, Some(Fault::UnknownForGood)], "2 attempts: not recorded, unknown for good"),
            (State::Done, &[None, None], "2 attempts: not recorded, done"),
            (State::Done, &[None, unknown], "2 attempts: not recorded, unknown"),
            (State::Failed, &[Some(Fault::Refused)], "1 attempt: refused"),
        ];
        for (state, attempts, words) in told {
            let text = to_text(&call(state, attempts));
            assert!(text.contains(&format!("attempts        {words}\n")), "{text}");
        }
    }

    #[test]
    fn the_text_of_others_stays_on_its_line() {
        let text = to_text(&call(State::Unknown, &[Some(Fault::Unknown)]));
        assert!(text.contains("cause           no answer within 30s\n"), "{text}");
        assert!(text.contains("first attempt   1m 30s ago\nlast attempt    30s ago\n"), "{text}");
    }

    #[test]
    fn an_attempt_that_nobody_recorded_is_null() {
        let json = to_json(&call(State::Pending, &[Some(Fault::UnknownForGood), None]));
        assert_eq!(json["attempts"], json!(["unknown_for_good", null]));
        assert_eq!((&json["sent_seconds_ago"], &json["attempted_seconds_ago"]), (&90.into(), &30.into()));
        let none = to_json(&call(State::Pending, &[]));
        assert_eq!((&none["attempts"], &none["sent_seconds_ago"]), (&json!([]), &Value::Null));
        assert_eq!((&json["provider"], &json["derived_key"]), (&"card-processor".into(), &"53195d6c".into()));
        let mut commit = call(State::Done, &[]);
        commit.entry.intent = None;
        assert_eq!(to_json(&commit)["attempts"], Value::Null);
    }
}
