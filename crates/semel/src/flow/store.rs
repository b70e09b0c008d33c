//! What a store implements so that flows can run on it.

use std::future::Future;
use std::time::Duration;

use super::journal::{Journal, Kept, Settled, Start};
use super::operator::{Change, FlowFilter, FlowRecord, FlowShown, Pressure, Resolution, Seen};
use crate::intent::Fault;
use crate::operator::Audit;
use crate::store::{Store, Stored};
use crate::{Ask, Claim, Error, Execution, Lease, LeaseTerms};

/// Where flows live: on leased keys, with a row for the flow and one for each of its steps.
///
/// Everything that a worker writes is refused with [`Error::Fenced`] once another one took over (I7): the epoch is
/// checked under a row lock that is held to the commit. Each method but [`FlowStore::begin_step`] is one commit: after
/// `Ok` it is durable, after an error nothing of it is there, save for [`Error::Ambiguous`]. Asking again for what was
/// done already changes nothing, so that a lost answer is simply asked for again.
///
/// Once [`FlowStore::cancel_flow`] has returned, nothing new of the flow begins: no attempt is counted, no step of a
/// transaction is recorded, and the flow does not end, all refused with [`Error::Cancelled`], until
/// [`FlowStore::unwind_flow`] has recorded that it is undone. What became of a call is recorded all the same.
pub trait FlowStore: Store {
    /// Leases a key for a flow.
    ///
    /// [`Claim::Fresh`]: key and flow are committed together, so that a flow which was begun is finished even if its
    /// client never comes back. [`Claim::Resume`]: an abandoned flow was taken over; it goes on with the function and
    /// the input that are stored, whatever `start` says. A lease that ends in the future because the flow pauses is
    /// [`Claim::InFlight`]. [`Error::Settings`] if the key belongs to leased work that is no flow.
    fn begin_flow(
        &self,
        ask: &Ask,
        terms: &LeaseTerms,
        start: &Start,
    ) -> impl Future<Output = Result<Claim<Journal, Stored>, Error>> + Send;

    /// Takes over up to `limit` flows of the name `flow` whose leases have ended: abandoned ones, those whose pause is
    /// over, and staged jobs. The longest waiting come first, nothing that somebody has locked is waited for, and every
    /// flow is given to one caller only. With [`crate::OnExpiry::Hold`] abandoned flows become *unknown* instead; jobs
    /// that nobody has begun, flows that paused, and flows that an operator let go on are resumed all the same.
    ///
    /// A worker that was lost counts as a failure: the flow may be what it died of.
    fn take_flows(
        &self,
        flow: &str,
        terms: &LeaseTerms,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<Journal>, Error>> + Send;

    /// Opens a fenced transaction for a step. What it emits and stages is numbered by the step's name. End it with
    /// [`Tx::record`](crate::Tx::record), which commits the record of the step along, or with
    /// [`Tx::complete`](crate::Tx::complete), which ends the flow.
    fn begin_step(&self, lease: &Lease, step: &str) -> impl Future<Output = Result<Self::Tx, Error>> + Send;

    /// What is recorded, once nothing of this lease is under way any more: a commit whose acknowledgement was lost has
    /// taken effect by then, or never will.
    fn read_flow(&self, lease: &Lease) -> impl Future<Output = Result<Journal, Error>> + Send;

    /// Records the end of a call or a pause.
    fn settle_step(&self, lease: &Lease, settled: &Settled) -> impl Future<Output = Result<(), Error>> + Send;

    /// Counts attempt `number`, counted from one, of a call (I8). With the first, the intent is recorded: provider and
    /// derived key. The call leaves after this commit.
    fn count_attempt(&self, lease: &Lease, attempt: &Attempt<'_>) -> impl Future<Output = Result<(), Error>> + Send;

    /// Records what attempt `number` came to.
    fn end_attempt(
        &self,
        lease: &Lease,
        step: &str,
        number: u32,
        fault: Fault,
        cause: &str,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Ends the lease, so that the flow is taken over in `pause`, not before. With a cause it counts as a failure in a
    /// row; without one the count starts again, as it does with every step that is recorded for the first time.
    fn park_flow(
        &self,
        lease: &Lease,
        pause: Duration,
        cause: Option<&str>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Holds the flow for a person: the step is *unknown* and so is the key. It is kept until somebody resolves it.
    /// A step without a row is held, too; the undoing of a commit gets none, and [`FlowStore::retry_flow`] tries it
    /// again.
    fn hold_flow(&self, lease: &Lease, step: &str, why: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Records that the flow is undone from now on, and why. Once recorded it stays.
    fn unwind_flow(&self, lease: &Lease, failure: &Kept) -> impl Future<Output = Result<(), Error>> + Send;

    /// Returns when there may be something to take over that was not there before: a job staged in this process. It may
    /// never return; look again at intervals, too.
    fn flow_staged(&self) -> impl Future<Output = ()> + Send;

    /// How many flows wait, and for what.
    fn flow_pressure(&self) -> impl Future<Output = Result<Pressure, Error>> + Send;

    /// Lists flows for an operator, newest first.
    fn list_flows(&self, filter: &FlowFilter) -> impl Future<Output = Result<Vec<FlowRecord>, Error>> + Send;

    /// Looks one flow up for an operator, with its steps.
    fn show_flow(&self, flow: Execution) -> impl Future<Output = Result<Option<FlowShown>, Error>> + Send;

    /// Lets a flow go on now: one that pauses, that failed and waits, or that is held because of its policy. A flow
    /// that is held because of a step is refused: the step has to be resolved. Its life starts again.
    fn retry_flow(
        &self,
        flow: impl Into<Seen> + Send,
        audit: &Audit,
        dry_run: bool,
    ) -> impl Future<Output = Result<Change, Error>> + Send;

    /// Says what became of the step that a flow is held for, and lets the flow go on.
    fn resolve_flow(
        &self,
        flow: impl Into<Seen> + Send,
        step: &str,
        resolution: &Resolution,
        audit: &Audit,
        dry_run: bool,
    ) -> impl Future<Output = Result<Change, Error>> + Send;

    /// Asks for a flow to be undone. It waits for a step that is being committed; after that nothing new begins, and
    /// its worker, or the next one, undoes what is done.
    fn cancel_flow(
        &self,
        flow: impl Into<Seen> + Send,
        audit: &Audit,
        dry_run: bool,
    ) -> impl Future<Output = Result<Change, Error>> + Send;
}

/// An attempt that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The step.
    pub step: &'a str,
    /// The name of the provider's profile.
    pub provider: &'a str,
    /// The derived key.
    pub key: &'a str,
    /// Which attempt it is, counted from one.
    pub number: u32,
    /// How long ago the provider's window is taken to have opened, if this is the first attempt: zero, or the flow's
    /// age in a restored database.
    pub opened: Duration,
}
