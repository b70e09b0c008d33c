//! What an operator can do with a flow, in a sentence or two.

use semel::Execution;
use semel::flow::{FlowShown, FlowState, StepShown};

use super::record::{CAUSE_SHOWN, NAME_SHOWN};
use crate::commands::text::{line, time};

/// What starts the name of a step that undoes another.
pub(super) const UNDO: &str = "~undo.";

/// What to do next with a flow, by its state.
pub(super) fn next(shown: &FlowShown) -> String {
    let flow = &shown.record;
    let then = flow.lease_expires_at_ms.map_or_else(|| "its lease ends".to_owned(), time);
    let (execution, epoch) = (flow.execution, flow.epoch);
    match flow.state {
        FlowState::Running => {
            let holder = flow.holder.as_deref().map_or_else(|| "a worker".to_owned(), |name| line(name, NAME_SHOWN));
            format!(
                "running: {holder} works on it; if that stops, the flow is due at {then}. There is nothing to do.\n"
            )
        }
        FlowState::Paused => format!(
            "paused: a completer goes on with it at {then}. To have that now:\n  \
             semel flows retry {execution} --reason '…' --epoch {epoch}\n"
        ),
        FlowState::Due => {
            let name = line(&flow.flow, NAME_SHOWN);
            format!(
                "due since {then}: a completer of a service that has the flow {name} registered takes it. If none \
                 does, no such service runs, or all of them are busy.\n"
            )
        }
        FlowState::Held => held(shown),
        FlowState::Completed => {
            "completed: there is nothing to do. A retry of the client gets the stored reply.\n".to_owned()
        }
        FlowState::Failed => {
            "failed: it was undone; there is nothing to do. A retry of the client gets the stored reply.\n".to_owned()
        }
    }
}

/// A flow is held for steps that somebody has to settle, or as a whole, because of its policy.
fn held(shown: &FlowShown) -> String {
    let (execution, epoch) = (shown.record.execution, shown.record.epoch);
    let open = shown.steps.iter().filter(|step| step.is_open());
    let open: String = open.map(|step| settle(execution, epoch, step)).collect();
    if !open.is_empty() {
        return open;
    }
    let cause = shown.record.cause.as_deref().map_or_else(|| "no cause is noted".to_owned(), |c| line(c, CAUSE_SHOWN));
    format!(
        "held: {cause}. Steps that are done are not run again; find out whether its worker left anything else behind. \
         To let it go on:\n  semel flows retry {execution} --reason '…' --epoch {epoch}\n"
    )
}

/// How a step is settled by hand. What is found out is about the flow as it is now, so the commands name its epoch.
fn settle(execution: Execution, epoch: i64, shown: &StepShown) -> String {
    let step = line(&shown.entry.step, NAME_SHOWN);
    let find_out = match &shown.entry.intent {
        Some(intent) => {
            let (provider, key) = (line(&intent.provider, NAME_SHOWN), line(&intent.key, NAME_SHOWN));
            format!("held: find out at {provider} whether {key} was executed (step {step})")
        }
        None => format!("held: find out whether the step {step} took place"),
    };
    let resolve = format!("semel flows resolve {execution} {}", quoted(&step));
    let told = format!(
        "{find_out}, then one of\n  \
         it was, with this result:  {resolve} --happened '{{…}}' --reason '…' --epoch {epoch}\n  \
         it was not, do it now:     {resolve} --did-not-happen --reason '…' --epoch {epoch}\n"
    );
    // What was done would stay, and the flow would end as if it were undone.
    if step.starts_with(UNDO) {
        return told;
    }
    told + &format!("  it was not, and must not:  {resolve} --failed 'why' --reason '…' --epoch {epoch}\n")
}

/// A word for a shell. The name of a step that undoes another begins with a tilde, which shells take for a home.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use semel::flow::{Entry, FlowRecord, Intent, Kind, State};
    use semel::intent::Fault;
    use semel::{Key, Scope};
    use uuid::Uuid;

    use super::*;

    fn flow(state: FlowState, steps: Vec<StepShown>) -> FlowShown {
        let record = FlowRecord {
            execution: Uuid::nil().into(),
            flow: "order".to_owned(),
            scope: Scope::new("a", "POST /orders").unwrap(),
            key: Key::new("k-1").unwrap(),
            state,
            unwinding: false,
            holder: Some("shop-1".to_owned()),
            epoch: 1,
            failures: 0,
            cause: Some("abandoned by its worker".to_owned()),
            last_step: None,
            begun_at_ms: 0,
            lease_expires_at_ms: Some(0),
            status: None,
        };
        FlowShown { record, input_bytes: 2, steps, changes: Vec::new() }
    }

    fn call(step: &str, state: State) -> StepShown {
        let intent = Intent {
            provider: "card-processor".to_owned(),
            key: "53195d6c".to_owned(),
            attempts: vec![Some(Fault::Unknown)],
            age: Duration::ZERO,
            since_attempt: Duration::ZERO,
            cause: None,
        };
        let entry = Entry {
            step: step.to_owned(),
            kind: Kind::Call,
            state,
            result: None,
            intent: Some(intent),
            restored: false,
        };
        StepShown { entry, result_bytes: 0, recorded_at_ms: 0, settled_at_ms: None }
    }

    #[test]
    fn a_held_call_names_the_provider_the_key_and_the_three_ways_out() {
        let told = next(&flow(FlowState::Held, vec![call("reserve", State::Done), call("charge", State::Unknown)]));
        assert!(told.starts_with("held: find out at card-processor whether 53195d6c was executed"), "{told}");
        let resolve = format!("semel flows resolve {} charge ", Uuid::nil());
        for way in ["--happened '{…}'", "--did-not-happen", "--failed 'why'"] {
            assert!(
                told.contains(&format!("{resolve}{way} --reason '…' --epoch 1\n")),
                "{way} is missing from\n{told}"
            );
        }
        assert!(!told.contains("reserve") && !told.contains("flows retry"), "{told}");
    }

    #[test]
    fn what_is_to_be_undone_cannot_be_left_out() {
        let told = next(&flow(FlowState::Held, vec![call("~undo.charge", State::Unknown)]));
        assert!(told.contains("'~undo.charge' --happened") && !told.contains("--failed"), "{told}");
    }

    #[test]
    fn a_flow_that_is_held_by_its_policy_is_let_go_on() {
        let told = next(&flow(FlowState::Held, vec![call("charge", State::Done)]));
        assert!(told.starts_with("held: abandoned by its worker."), "{told}");
        assert!(told.contains(&format!("semel flows retry {}", Uuid::nil())), "{told}");
    }

    #[test]
    fn every_state_says_what_to_do() {
        for (state, told) in [
            (FlowState::Running, "running: shop-1 works on it"),
            (FlowState::Paused, "paused: a completer goes on with it at 1970-01-01T00:00:00.000Z"),
            (FlowState::Due, "due since 1970-01-01T00:00:00.000Z"),
            (FlowState::Completed, "completed: there is nothing to do"),
            (FlowState::Failed, "failed: it was undone"),
        ] {
            let next = next(&flow(state, Vec::new()));
            assert!(next.starts_with(told) && next.ends_with('\n'), "{next}");
        }
    }

    #[test]
    fn a_step_is_one_word_for_a_shell() {
        assert_eq!(quoted("charge"), "charge");
        assert_eq!(quoted("~undo.charge"), "'~undo.charge'");
        assert_eq!(quoted("it's$HOME"), r"'it'\''s$HOME'");
    }
}
