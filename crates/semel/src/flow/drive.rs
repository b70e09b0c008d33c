//! Runs a flow under its lease, as far as it goes.
//!
//! A run begins with what is recorded and ends in one of five ways: the flow has its reply, it is parked for a while,
//! it is held for a person, another worker took over, or this process is gone. Nothing but the rows passes from one run
//! to the next. What holds after a crash:
//!
//! | crash | what is recorded | what the next run does |
//! |---|---|---|
//! | when the flow has begun | key, input and flow | runs the function from its start |
//! | in a commit, before its COMMIT | nothing of it | runs the step |
//! | behind it | effect and result of the step | returns the result |
//! | around a call | see [`super::call`] | |
//! | when the function has failed | the steps that are done | see [`super::compensate`] |
//! | before the last COMMIT | nothing of the last step | runs the function, which gets that far by its records |
//! | behind it | the last effect and the reply | nothing: the key gives the reply |
//!
//! The lease is renewed beside the function. A worker that slept past it finds another one's epoch in its own
//! transactions and commits nothing (I7). The lease of a run that ends is let go only when no renewal of it is under
//! way, so that a pause is as long as it should be.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::definition::{Definition, Running};
use super::error::{Changed, Error, Result};
use super::failure::Failure;
use super::flows::Shared;
use super::handle::Flow;
use super::journal::Journal;
use super::keep::{self, Label};
use super::progress::Ending;
use super::run::Run;
use super::since::Since;
use super::store::FlowStore;
use super::trying::Trying;
use crate::backoff::Backoff;
use crate::error::told;
use crate::{Error as StoreError, Lease, Reply, failpoint, observe};

/// The pause after the first run that fails, and the longest. It doubles with each failure in a row.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5 * 60));

/// The least pause where the code does not fit: somebody has to deploy something.
const CHANGED: Duration = Duration::from_secs(10);

/// How a run ended.
pub(super) enum Ended {
    /// The flow has this reply.
    Completed(Reply),
    /// It goes on after a pause.
    Parked {
        /// How long it pauses.
        pause: Duration,
        /// How the code does not fit, if that is why.
        changed: Option<Changed>,
    },
    /// A person has to find out what happened.
    Held,
    /// Another worker has it.
    Lost,
    /// Its end could not be stored. The lease runs out, and whoever takes it up goes by what is recorded.
    Abandoned,
}

/// Runs a flow whose lease this process has, as far as it goes.
pub(super) async fn drive<S: FlowStore>(
    shared: Arc<Shared<S>>,
    definition: Arc<Definition<S>>,
    journal: Journal,
) -> Ended {
    let read_at = Since::now();
    let (lease, failures, name) = (journal.lease.clone(), journal.failures, journal.flow.clone());
    let (flow, execution) = (name.as_str(), lease.execution);
    let mut alive = shared.semel.keep_alive(&lease);
    let (ending, got_on) = tokio::select! {
        ended = guarded(work(&shared, &definition, journal, read_at)) => ended,
        () = alive.lost() => (Ending::Lost, false),
    };
    let failures = if got_on { 0 } else { failures };
    let (pause, cause, changed) = match ending {
        Ending::Finished { reply, failed } => {
            observe::flow_ended(flow, if failed { "failed" } else { "completed" });
            return Ended::Completed(reply);
        }
        Ending::Lost => {
            tracing::warn!(flow, %execution, "another worker took over");
            return Ended::Lost;
        }
        Ending::Held { step, why } => {
            alive.stop().await;
            tracing::error!(flow, %execution, %step, %why, "held: somebody has to find out what became of the step");
            return hold(&shared, &lease, &step, &why).await;
        }
        Ending::Paused(pause) => (pause, None, None),
        Ending::Broken { cause, changed } => {
            let pause = pause_after(failures, changed.is_some());
            tracing::warn!(flow, %execution, %cause, ?pause, "the flow failed and is run again");
            (pause, Some(cause), changed)
        }
    };
    alive.stop().await;
    park(&shared, &lease, pause, cause.as_deref(), changed).await
}

/// Records that the flow is undone, and why. The reason is the first that is recorded, whoever comes after.
async fn unwind<S: FlowStore>(shared: &Shared<S>, lease: &Lease, failure: &mut Failure) -> Result<()> {
    let json = failure.bounded_json().map_err(Error::retry)?;
    let kept = keep::keep(&shared.semel, &lease.ask, Label::Unwinding(lease.execution), json)?;
    let mut trying = Trying::new(shared.semel.settings().settle_for);
    while let Err(error) = shared.semel.store().unwind_flow(lease, &kept).await {
        trying.again(error).await?;
    }
    failpoint::reach(failpoint::FLOW_UNWINDING).await;
    Ok(())
}

/// Why the flow is undone, if it is: by an earlier run, because an operator asked for it, or because its life is over.
async fn undone_for<S: FlowStore>(
    shared: &Shared<S>,
    definition: &Definition<S>,
    journal: &Journal,
) -> Result<Option<Failure>> {
    let lease = &journal.lease;
    if let Some(kept) = &journal.unwinding {
        let json = keep::open(&shared.semel, &lease.ask, Label::Unwinding(lease.execution), kept)?;
        let failure = serde_json::from_slice(&json).map_err(|error| {
            // It is no step, but it is read, and mended, like the result of one.
            Changed::Unreadable { step: "~unwinding".to_owned(), why: error.to_string() }
        })?;
        return Ok(Some(failure));
    }
    let mut failure = match (journal.cancelled, journal.lived >= definition.terms.life()) {
        (true, _) => Failure::cancelled(),
        (false, true) => Failure::expired(),
        (false, false) => return Ok(None),
    };
    unwind(shared, lease, &mut failure).await?;
    Ok(Some(failure))
}

/// Runs the function, and undoes what it did if it fails for good. With the ending it is told whether anything was
/// recorded on the way.
async fn work<S: FlowStore>(
    shared: &Arc<Shared<S>>,
    definition: &Arc<Definition<S>>,
    journal: Journal,
    read_at: Since,
) -> (Ending, bool) {
    let unwinding = match undone_for(shared, definition, &journal).await {
        Ok(unwinding) => unwinding,
        Err(error) => {
            if matches!(error, Error::Store(StoreError::Fenced)) {
                observe::fenced_write();
            }
            return (Ending::of(&error), false);
        }
    };
    let input = match keep::open(&shared.semel, &journal.lease.ask, Label::Input, &journal.input) {
        Ok(input) => input,
        Err(error) => return (Ending::of(&error.into()), false),
    };
    let opened = Opened(Arc::new(Run::new(shared, definition, journal, unwinding, read_at)));
    let ending = run(&opened.0, definition, &input).await;
    let got_on = opened.0.progress().got_on();
    (ending, got_on)
}

/// Runs the function to its end, in whatever way.
async fn run<S: FlowStore>(run: &Arc<Run<S>>, definition: &Definition<S>, input: &[u8]) -> Ending {
    let returned = match definition.start(Flow { run: Arc::clone(run) }, input) {
        Ok(running) => caught(running).await,
        Err(error) => {
            let (flow, why) = (run.name().to_owned(), error.to_string());
            Err(Changed::UnreadableInput { flow, why }.into())
        }
    };
    run.progress().close();
    // How the run ended was settled by a step; what the function made of that does not matter.
    let settled = run.progress().ending().cloned();
    if let Some(ending) = settled {
        return ending;
    }
    let concluded = match (returned, &run.unwinding) {
        (Ok(_), Some(failure)) => undo(run, failure.clone()).await,
        (Ok(reply), None) => run.finish(&reply).await,
        (Err(Error::Failed(failure)), unwinding) => undo(run, unwinding.clone().unwrap_or(failure)).await,
        (Err(error), _) => Err(error),
    };
    let settled = run.progress().ending().cloned();
    match (settled, concluded) {
        (Some(ending), _) => ending,
        // No step settled it, so it is not this flow's fence that refused.
        (None, Err(Error::Store(error))) => Ending::Broken { cause: told(&error.into()), changed: None },
        (None, Err(error)) => Ending::of(&error),
        (None, Ok(())) => Ending::of(&Error::Stopped),
    }
}

/// Undoes the flow and ends it with the failure's reply. Nothing is undone before everything recorded was asked for:
/// nobody would know how to undo the rest.
async fn undo<S: FlowStore>(run: &Run<S>, mut failure: Failure) -> Result<()> {
    run.none_vanished()?;
    if run.unwinding.is_none() {
        unwind(&run.shared, &run.lease, &mut failure).await.map_err(|error| run.stop(error))?;
    }
    tracing::warn!(flow = run.name(), execution = %run.lease.execution, %failure, "the flow failed and is undone");
    run.undo_all().await?;
    run.fail(&failure).await
}

/// A run whose compensations are let go when it ends, in whatever way: they may hold its handle, which holds them.
struct Opened<S: FlowStore>(Arc<Run<S>>);

impl<S: FlowStore> Drop for Opened<S> {
    fn drop(&mut self) {
        drop(self.0.take_undos());
    }
}

/// Runs the function. A panic ends this run of it, and may pass.
async fn caught(mut running: Running) -> Result<Reply> {
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context))) {
        Ok(polled) => polled,
        Err(panic) => Poll::Ready(Err(Error::retry(format!("the flow panicked: {}", said(&*panic))))),
    })
    .await
}

/// A panic anywhere in a run, in a compensation or in a look-up, ends it, and may pass.
async fn guarded(work: impl Future<Output = (Ending, bool)>) -> (Ending, bool) {
    let mut work = std::pin::pin!(work);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(polled) => polled,
        Err(panic) => {
            let ending = Ending::of(&Error::retry(format!("the flow panicked: {}", said(&*panic))));
            Poll::Ready((ending, false))
        }
    })
    .await
}

/// What somebody said who panicked.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it did not say why")
}

/// How long a flow waits after a failure that follows `failures` others.
fn pause_after(failures: u32, changed: bool) -> Duration {
    let pause = Backoff::after(failures.saturating_add(1), PAUSES.0, PAUSES.1);
    if changed { pause.max(CHANGED) } else { pause }
}

async fn park<S: FlowStore>(
    shared: &Shared<S>,
    lease: &Lease,
    pause: Duration,
    cause: Option<&str>,
    changed: Option<Changed>,
) -> Ended {
    let mut trying = Trying::new(shared.semel.settings().settle_for);
    while let Err(error) = shared.semel.store().park_flow(lease, pause, cause).await {
        if let Err(error) = trying.again(error).await {
            return left(&error);
        }
    }
    Ended::Parked { pause, changed }
}

async fn hold<S: FlowStore>(shared: &Shared<S>, lease: &Lease, step: &str, why: &str) -> Ended {
    let mut trying = Trying::new(shared.semel.settings().settle_for);
    while let Err(error) = shared.semel.store().hold_flow(lease, step, why).await {
        if let Err(error) = trying.again(error).await {
            return left(&error);
        }
    }
    Ended::Held
}

/// How a run ended whose end was not stored.
fn left(error: &StoreError) -> Ended {
    if matches!(error, StoreError::Fenced) {
        observe::fenced_write();
        return Ended::Lost;
    }
    tracing::warn!(%error, "the end of a flow's run could not be stored; its lease runs out");
    Ended::Abandoned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_fails_waits_longer_each_time_and_five_minutes_at_most() {
        for (failures, full_ms) in [(0, 200), (1, 400), (4, 3200), (20, 300_000), (u32::MAX, 300_000)] {
            let (pause, full) = (pause_after(failures, false), Duration::from_millis(full_ms));
            assert!(pause >= full / 2 && pause <= full, "{pause:?} after {failures} failures");
        }
    }

    #[test]
    fn a_flow_that_waits_for_a_deploy_waits_ten_seconds_at_least() {
        assert_eq!(pause_after(0, true), CHANGED);
        assert!(pause_after(20, true) >= Duration::from_secs(150));
    }

    async fn panics() -> Result<Reply> {
        panic!("the stock is {}", "away")
    }

    async fn panics_without_a_word() -> Result<Reply> {
        std::panic::panic_any(7)
    }

    async fn replies() -> Result<Reply> {
        Ok(Reply::new(201, "")?)
    }

    #[tokio::test]
    async fn a_panic_ends_the_run_and_may_pass() {
        let told = caught(Box::pin(panics())).await.unwrap_err();
        assert!(matches!(&told, Error::Retry(cause) if cause.to_string() == "the flow panicked: the stock is away"));
        let told = caught(Box::pin(panics_without_a_word())).await.unwrap_err();
        assert!(matches!(told, Error::Retry(_)));
        assert_eq!(caught(Box::pin(replies())).await.unwrap().status(), 201);
    }
}
