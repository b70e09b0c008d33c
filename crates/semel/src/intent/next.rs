//! What to do with an intent that has no result.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{Fault, LookedUp, Standing};
use crate::provider::{Absent, Keys, Provider};

/// What to do next with an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// [Count](Standing::count) an attempt, commit that with the key, and send it, now.
    Send,
    /// Wait, for at least this long, set [`Standing::rested`], and ask again: time has passed and the answer may be
    /// another one.
    Pause(Duration),
    /// Ask the provider whether it happened, and tell the standing what it [said](Standing::look).
    LookUp,
    /// It happened: what the look-up found is the result.
    Done,
    /// It did not happen and will not.
    Fail(Reason),
    /// It may have happened, nothing can be asked any more, and it is not sent again: a person has to find out.
    Hold(Doubt),
}

/// Why an intent ends without having happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The provider answered that it will not happen.
    #[error("the provider answered that it will not happen")]
    Terminal,
    /// The provider turned the request away, and no earlier attempt can have had an effect.
    #[error("the provider turned the request away")]
    Refused,
    /// The look-up found that it was tried and failed.
    #[error("the look-up found that it failed at the provider")]
    FoundFailed,
    /// No attempt had an effect and there are enough of them.
    #[error("given up after {0} attempts, none of which had an effect")]
    GaveUp(u32),
    /// The flow is being undone, and nothing of this was sent, or nothing that had an effect.
    #[error("the flow is being undone, and there is nothing of this to undo")]
    NotNeeded,
    /// The flow is being undone, and the look-up found nothing to undo.
    #[error("the flow is being undone, and the look-up found nothing of this to undo")]
    NothingToUndo,
}

/// Why nobody but a person can tell whether it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Doubt {
    /// Sending again may do it again.
    #[error("it may have happened; the provider keeps no keys, so sending it again may do it again")]
    NoKeys,
    /// The provider may have forgotten the key.
    #[error("it may have happened; the provider may have forgotten the key, so sending it again may do it again")]
    WindowOver,
    /// The provider answers the key with the same error again.
    #[error("it may have happened; the provider answers this key with the same error for as long as it keeps it")]
    SameAnswer,
    /// Enough attempts were made.
    #[error("it may have happened; no attempt of {0} brought a certain answer")]
    Attempts(u32),
    /// The provider knows nothing of it, and the profile does not take that for a proof.
    #[error("it may have happened; the look-up finds nothing of it, which the profile does not take for a proof")]
    NothingFound,
    /// The look-up does not work.
    #[error("it may have happened; {0} look-ups failed in a row")]
    LookUpFails(u32),
}

/// Decides what to do with an intent that has no result, from the provider's profile and what is known of the intent,
/// and from nothing else.
///
/// | standing | condition | next |
/// |---|---|---|
/// | not sent | | send |
/// | retryable, never in doubt | attempts left | pause, send; also without keys, because nothing happened |
/// | 〃 | none left | fail |
/// | refused, never in doubt | | fail |
/// | terminal | | fail |
/// | in doubt | the key is [recognised](Keys::recognise), no error is repeated, attempts left | pause, send |
/// | 〃 | otherwise, there is a look-up | look up |
/// | 〃 | otherwise | hold |
/// | looked up: done, failed | | done, fail |
/// | looked up: under way | | pause, look up |
/// | looked up: absent | asked before timeout and settling time were over | pause, look up |
/// | 〃 | settled, and the profile takes that for a proof, no error is repeated, attempts left | send |
/// | 〃 | settled, otherwise | hold |
/// | look-up broken | fewer in a row than attempts | pause, look up |
/// | 〃 | otherwise | hold |
/// | unwinding, never in doubt | | fail: nothing to undo |
/// | unwinding, in doubt | there is a look-up | look up first; absent, settled and a proof: fail, nothing to undo |
/// | 〃 | under way as often as there are attempts | as if the look-up were broken |
///
/// *In doubt* is an intent that may have happened by any of its attempts: the last one came to nothing certain, or an
/// earlier one did. It stays in doubt when a later attempt is told to come back or turned away, since that says nothing
/// of the earlier one. So an intent never [fails](Next::Fail) that may have happened, and is never sent where the
/// provider may do it a second time (I8). Looking up what is under way has no end here; the life of the flow ends it,
/// and then it is undone.
///
/// The result depends on nothing but the arguments: after a crash the same rows lead to the same decision.
pub fn next(provider: &Provider, standing: &Standing) -> Next {
    match (standing.looked_up, standing.last) {
        (Some(LookedUp::Done), _) => Next::Done,
        (Some(LookedUp::Failed), _) => Next::Fail(Reason::FoundFailed),
        (_, Some(Fault::Terminal)) => Next::Fail(Reason::Terminal),
        _ if standing.in_doubt() => in_doubt(provider, standing),
        _ => without_effect(provider, standing),
    }
}

/// No attempt did anything, or there was none.
fn without_effect(provider: &Provider, standing: &Standing) -> Next {
    match standing.last {
        Some(Fault::Refused) => Next::Fail(Reason::Refused),
        _ if standing.unwinding => Next::Fail(Reason::NotNeeded),
        None => Next::Send,
        Some(_) if standing.attempts >= provider.retry.attempts => Next::Fail(Reason::GaveUp(standing.attempts)),
        Some(_) => after(provider.retry.pause(standing.attempts), standing, Next::Send),
    }
}

fn in_doubt(provider: &Provider, standing: &Standing) -> Next {
    let pause = provider.retry.pause(standing.look_ups);
    match standing.looked_up {
        Some(LookedUp::UnderWay) if !standing.unwinding || standing.look_ups < provider.retry.attempts => {
            return after(pause, standing, Next::LookUp);
        }
        Some(LookedUp::Absent { after }) => return nothing_found(provider, standing, after),
        Some(LookedUp::Broken) if standing.look_ups < provider.retry.attempts => {
            return after(pause, standing, Next::LookUp);
        }
        None if standing.unwinding && provider.looks_up() => return Next::LookUp,
        _ => {}
    }
    match may_repeat(provider, standing) {
        Ok(()) => after(provider.retry.pause(standing.attempts), standing, Next::Send),
        Err(_) if standing.looked_up.is_some() => Next::Hold(Doubt::LookUpFails(standing.look_ups)),
        Err(_) if provider.looks_up() => Next::LookUp,
        Err(doubt) => Next::Hold(doubt),
    }
}

/// Whether the provider would recognise what is sent again, and it is worth sending.
fn may_repeat(provider: &Provider, standing: &Standing) -> Result<(), Doubt> {
    let pause = if standing.rested { Duration::ZERO } else { provider.retry.pause(standing.attempts) };
    let sent_at = standing.age.saturating_add(pause);
    match provider.keys {
        Keys::None => Err(Doubt::NoKeys),
        _ if standing.last == Some(Fault::UnknownForGood) => Err(Doubt::SameAnswer),
        keys if !keys.recognise(sent_at, provider.timeout) => Err(Doubt::WindowOver),
        _ if standing.attempts >= provider.retry.attempts => Err(Doubt::Attempts(standing.attempts)),
        _ => Ok(()),
    }
}

/// *No* counts once the last attempt must have arrived and what it did must be visible.
fn nothing_found(provider: &Provider, standing: &Standing, asked_after: Duration) -> Next {
    let settled = provider.timeout.saturating_add(provider.settles_after);
    if asked_after < settled {
        return after(settled.saturating_sub(standing.since_attempt), standing, Next::LookUp);
    }
    let worth_it = standing.last != Some(Fault::UnknownForGood) && standing.attempts < provider.retry.attempts;
    match (provider.absent, standing.unwinding) {
        (Absent::Resend, true) => Next::Fail(Reason::NothingToUndo),
        (Absent::Resend, false) if worth_it => Next::Send,
        _ => Next::Hold(Doubt::NothingFound),
    }
}

fn after(pause: Duration, standing: &Standing, then: Next) -> Next {
    if standing.rested || pause.is_zero() { then } else { Next::Pause(pause) }
}
