//! A call that has no end yet, and what is done about it.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::error::{Error, Result, cut};
use super::failed::Failed;
use super::failure::Failure;
use super::journal::{Entry, Kind, State};
use super::run::{Run, written};
use super::since::Since;
use super::store::{Attempt, FlowStore};
use crate::intent::{self, Fault, LookedUp, Next, Reason, Standing};
use crate::provider::{Call, Found, Provider};
use crate::{Error as StoreError, failpoint, observe};

/// Whether JSON is the result of a call.
type Fits = fn(&[u8]) -> serde_json::Result<()>;

/// A call that has no end yet.
///
/// Every decision is [`intent::next`]'s, and every fact it decides by is committed before it is acted on: an attempt is
/// counted before it leaves, and what it came to is recorded before the next.
pub(super) struct Pursuit<'r, S: FlowStore> {
    run: &'r Run<S>,
    step: &'r str,
    provider: &'r Provider,
    /// The key, as it is stored.
    key: String,
    standing: Standing,
    /// Whether attempts may have been made that the rows do not know of.
    restored: bool,
    /// Up to when the standing's ages have been counted.
    counted_at: Since,
    /// Whether there is a row.
    recorded: bool,
    /// Whether it is a compensation.
    undoes: bool,
    /// What the last look-up found, if it found a result.
    found: Option<Value>,
    /// The last error, for people to read.
    cause: Option<String>,
}

impl<'r, S: FlowStore> Pursuit<'r, S> {
    /// Goes by what is recorded of the call, which is nothing or an intent without an end.
    pub(super) fn begin(
        run: &'r Run<S>,
        step: &'r str,
        provider: &'r Provider,
        entry: Option<&Entry>,
        undoes: bool,
    ) -> Pursuit<'r, S> {
        let intent = entry.and_then(|entry| entry.intent.as_ref());
        let restored = entry.map_or(run.restored, |entry| entry.restored);
        let mut standing = match intent.filter(|intent| !intent.attempts.is_empty()) {
            Some(intent) => {
                let mut standing = Standing::recorded(&intent.attempts, intent.age, intent.since_attempt);
                pass(&mut standing, run.read_at());
                if restored { standing.restored() } else { standing }
            }
            None if restored => Standing { age: run.age(), ..Standing::first() }.restored(),
            // There was no attempt; or a person found out that none of them did anything.
            None => Standing::first(),
        };
        standing.unwinding = run.unwinding.is_some() && !undoes;
        let lease = &run.lease;
        let key = intent.map(|intent| intent.key.clone());
        Pursuit {
            run,
            step,
            provider,
            key: key.unwrap_or_else(|| intent::key(lease.scope(), run.name(), lease.key(), step)),
            standing,
            restored,
            counted_at: Since::now(),
            recorded: entry.is_some(),
            undoes,
            found: None,
            cause: intent.and_then(|intent| intent.cause.clone()),
        }
    }

    /// Pursues the call to its end: the JSON of its result, once that is recorded. `fits` says whether a result that
    /// was looked up is one.
    pub(super) async fn pursue<T, F, Fut>(mut self, fits: Fits, work: F) -> Result<Bytes>
    where
        T: Serialize,
        F: Fn(Call) -> Fut,
        Fut: Future<Output = Result<T, Failed>>,
    {
        loop {
            self.pass();
            match intent::next(self.provider, &self.standing) {
                Next::Send => {
                    let recognised = self.is_recognised();
                    let call = self.count().await?;
                    // The commit took longer than the rest of the window: it is counted and not sent.
                    if self.standing.doubt && recognised && !self.is_recognised() {
                        continue;
                    }
                    failpoint::reach(failpoint::FLOW_INTENDED).await;
                    let attempt = work(call);
                    let came_to = timeout(self.provider.timeout, attempt).await;
                    let came_to = self.read(came_to)?;
                    failpoint::reach(failpoint::FLOW_CALLED).await;
                    match came_to {
                        Ok(json) => return self.done(json).await,
                        Err(failed) => self.end(&failed).await?,
                    }
                }
                // In a restored database an attempt may have been made that the rows do not know of. What is done about
                // that needs a row, and the person who may have to look at it needs the key.
                _ if !self.recorded => drop(self.count().await?),
                Next::Pause(pause) => self.pause(pause).await?,
                Next::LookUp => self.look_up().await,
                Next::Done => return self.take_found(fits).await,
                Next::Fail(reason) => return Err(self.fail(reason).await),
                Next::Hold(doubt) => return Err(self.hold(&doubt.to_string())),
            }
        }
    }

    /// Whether the provider would recognise the key now.
    fn is_recognised(&self) -> bool {
        self.provider.keys.recognise(self.standing.age, self.provider.timeout)
    }

    /// Lets the time pass that has passed.
    fn pass(&mut self) {
        let now = Since::now();
        pass(&mut self.standing, self.counted_at);
        self.counted_at = now;
    }

    /// Counts an attempt, with the call's key, in a commit. After a crash the call may have been made from here on.
    async fn count(&mut self) -> Result<Call> {
        let number = self.standing.attempts.saturating_add(1);
        // Where no attempt is recorded in a restored database, the provider's window may have opened with the flow.
        let opened = if self.restored && self.standing.attempts == 0 { self.standing.age } else { Duration::ZERO };
        let (step, provider, key) = (self.step, self.provider.name.as_str(), self.key.as_str());
        let attempt = Attempt { step, provider, key, number, opened };
        let (store, lease) = (self.run.store(), &self.run.lease);
        let (mut trying, mut asked_before) = (self.run.trying(), false);
        while let Err(error) = store.count_attempt(lease, &attempt).await {
            if asked_before && matches!(error, StoreError::Cancelled) {
                // It may be counted, if it was the answer that got lost, and it has not left: nobody has to doubt it.
                let _ = store.end_attempt(lease, step, number, Fault::Retryable, "it was not sent").await;
            }
            asked_before = true;
            trying.again(error).await.map_err(|error| self.run.stop(error.into()))?;
        }
        if !self.recorded {
            self.recorded = true;
            self.run.progress().note(self.step, Kind::Call, State::Pending);
        }
        self.pass();
        self.standing.count();
        self.found = None;
        Ok(Call::new(self.provider, self.step, &self.key, number))
    }

    /// What an attempt came to. A timeout is unknown, not failed.
    fn read<T: Serialize>(&self, came_to: Result<Result<T, Failed>, Elapsed>) -> Result<Result<Vec<u8>, Failed>> {
        match came_to {
            Ok(Ok(value)) => written(self.step, &value).map(Ok).map_err(|error| self.run.stop(error)),
            Ok(Err(failed)) => Ok(Err(failed)),
            Err(_) => Ok(Err(Failed::unknown(format!("no answer came within {:?}", self.provider.timeout)))),
        }
    }

    /// Records what an attempt came to.
    async fn end(&mut self, failed: &Failed) -> Result<()> {
        let (lease, number) = (&self.run.lease, self.standing.attempts);
        let mut trying = self.run.trying();
        let store = self.run.store();
        while let Err(error) = store.end_attempt(lease, self.step, number, failed.fault(), failed.text()).await {
            trying.again(error).await.map_err(|error| self.run.stop(error.into()))?;
        }
        self.standing.end(failed.fault());
        self.cause = Some(failed.text().to_owned());
        observe::flow_step(self.run.name(), self.step, "retried");
        Ok(())
    }

    /// Waits here for a short time; for a longer one the flow is left to whoever takes it up afterwards.
    async fn pause(&mut self, pause: Duration) -> Result<()> {
        // What these look-ups said is in no row, and whoever comes after a long pause would begin to count anew.
        let forgotten = match self.standing.looked_up {
            Some(LookedUp::Broken) => true,
            Some(LookedUp::UnderWay) => self.standing.unwinding,
            Some(_) => self.restored,
            None => false,
        };
        if pause > self.run.shared.settings.patience && !forgotten {
            return Err(self.run.pause(pause));
        }
        tokio::time::sleep(pause).await;
        self.standing.rested = true;
        Ok(())
    }

    async fn look_up(&mut self) {
        // Asked too early, the last attempt may still be on its way: what counts is when the look-up began.
        let after = self.standing.since_attempt;
        let call = Call::new(self.provider, self.step, &self.key, self.standing.attempts);
        let found = self.provider.ask(call).await;
        self.standing.look(LookedUp::of(&found, after));
        match found {
            Ok(Found::Done(value)) => self.found = Some(value),
            Ok(Found::Failed(reason)) => self.cause = Some(reason),
            Ok(Found::Absent | Found::UnderWay) => {}
            Err(error) => self.cause = Some(format!("the look-up failed: {}", crate::error::told(&error))),
        }
    }

    /// The result that a look-up found, if it is one.
    async fn take_found(self, fits: Fits) -> Result<Bytes> {
        let found = written(self.step, &self.found).map_err(|error| self.run.stop(error))?;
        match fits(&found) {
            Ok(()) => self.done(found).await,
            Err(error) => Err(self.hold(&format!("it happened; what the look-up found is no result of it: {error}"))),
        }
    }

    /// Records the result.
    async fn done(self, json: Vec<u8>) -> Result<Bytes> {
        let json = Bytes::from(json);
        let settled = self.run.settled(self.step, Kind::Call, State::Done, json.to_vec());
        self.run.settle(&settled.map_err(|error| self.run.stop(error))?).await?;
        failpoint::reach(failpoint::FLOW_SETTLED).await;
        Ok(json)
    }

    /// Records that it did not happen and will not. A compensation is not given up by itself: somebody has to see that
    /// what was done is still there.
    async fn fail(self, reason: Reason) -> Error {
        if self.undoes {
            return self.hold(&reason.to_string());
        }
        let mut failure = Failure::new(code_of(reason), self.told(&reason.to_string())).of_step(self.step);
        let settled = match self.run.failed(self.step, Kind::Call, &mut failure) {
            Ok(settled) => settled,
            Err(error) => return self.run.stop(error),
        };
        if let Err(error) = self.run.settle(&settled).await {
            return error;
        }
        failpoint::reach(failpoint::FLOW_SETTLED).await;
        // What a flow is undone for stays the reason, whatever came of its last call.
        Error::Failed(self.run.unwinding.clone().unwrap_or(failure))
    }

    fn hold(&self, why: &str) -> Error {
        self.run.hold(self.step, cut(self.told(why)))
    }

    /// A text with the last error behind it.
    fn told(&self, text: &str) -> String {
        match &self.cause {
            Some(cause) => format!("{text}: {cause}"),
            None => text.to_owned(),
        }
    }
}

/// Lets the time pass since then. The provider's window goes on while this machine is suspended. What was sent may be
/// under way for longer, if that was suspended, too.
fn pass(standing: &mut Standing, since: Since) {
    let ran = since.ran();
    standing.pass(ran);
    standing.age = standing.age.saturating_add(since.passed().saturating_sub(ran));
}

/// What a failure is called that programs read.
fn code_of(reason: Reason) -> &'static str {
    match reason {
        Reason::Terminal => "terminal",
        Reason::Refused => "refused",
        Reason::FoundFailed => "found-failed",
        Reason::GaveUp(_) => "gave-up",
        Reason::NotNeeded => "not-needed",
        Reason::NothingToUndo => "nothing-to-undo",
    }
}
