//! Steps: the transaction of one, and what is recorded of each.

use semel::flow::{Attempt, Settled, letter_of};
use semel::intent::Fault;
use semel::{Error, Lease};

use super::{Fenced, call, cut};
use crate::lease::{self, Fence};
use crate::parameter::Parameter;
use crate::store::{Postgres, interval_ms};
use crate::tx::Tx;

pub(crate) const RECORD: &str = include_str!("../sql/flow_record.sql");
pub(crate) const RECORD_PLAIN: &str = include_str!("../sql/flow_record_plain.sql");
const SETTLE: &str = "SELECT semel.settle_step($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const COUNT: &str = include_str!("../sql/flow_count.sql");
const END: &str = "SELECT semel.end_attempt($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// The end of a step, as the functions take it.
pub(crate) struct Ended<'a> {
    fenced: Fenced<'a>,
    step: &'a str,
    kind: &'static str,
    state: &'static str,
    result: &'a [u8],
    sealed_by: Option<&'a str>,
    lease_ms: i64,
    retain_ms: i64,
}

impl<'a> Ended<'a> {
    pub(crate) fn new(lease: &'a Lease, settled: &'a Settled) -> Ended<'a> {
        Ended {
            fenced: Fenced::by(lease),
            step: &settled.step,
            kind: settled.kind.as_str(),
            state: settled.state.as_str(),
            result: &settled.result.bytes,
            sealed_by: settled.result.sealed_by.as_deref(),
            lease_ms: interval_ms(lease.lease_for),
            retain_ms: interval_ms(lease.retain),
        }
    }

    /// The parameters of [`RECORD`], which commits with the transaction that did the step.
    pub(crate) fn params(&self) -> Vec<&dyn Parameter> {
        let mut params = self.settling();
        params.extend([&self.lease_ms as &dyn Parameter, &self.retain_ms]);
        params
    }

    /// Those of [`RECORD_PLAIN`], which does the same.
    pub(crate) fn plain(&self) -> [&dyn Parameter; 6] {
        [&self.fenced.execution, &self.step, &self.kind, &self.state, &self.result, &self.sealed_by]
    }

    /// Those of [`SETTLE`], which commits by itself.
    fn settling(&self) -> Vec<&dyn Parameter> {
        self.fenced.with(&[&self.step, &self.kind, &self.state, &self.result, &self.sealed_by])
    }
}

/// BEGIN and the fence travel in one flight. What the step emits and stages is numbered by its name, also by its own
/// statements.
pub(super) async fn begin(store: &Postgres, lease: &Lease, step: &str) -> Result<Tx, Error> {
    lease::begin(store, Fence { lease: lease.clone(), step: Some(step.to_owned()), since: None }).await
}

pub(super) async fn settle(store: &Postgres, lease: &Lease, settled: &Settled) -> Result<(), Error> {
    let ended = Ended::new(lease, settled);
    call(store, SETTLE, &ended.settling()).await
}

/// The call leaves after this commit, so that whoever finds it without a result knows that it may have happened (I8).
pub(super) async fn count(store: &Postgres, lease: &Lease, attempt: &Attempt<'_>) -> Result<(), Error> {
    let fenced = Fenced::by(lease);
    let (number, opened_ms) = (number_of(attempt.number), interval_ms(attempt.opened));
    let params = fenced.with(&[&attempt.step, &attempt.provider, &attempt.key, &number, &opened_ms]);
    call(store, COUNT, &params).await
}

pub(super) async fn end(
    store: &Postgres,
    lease: &Lease,
    step: &str,
    number: u32,
    fault: Fault,
    cause: &str,
) -> Result<(), Error> {
    let fenced = Fenced::by(lease);
    let (number, letter, cause) = (number_of(number), letter_of(Some(fault)).to_string(), cut(cause));
    call(store, END, &fenced.with(&[&step, &number, &letter, &cause])).await
}

fn number_of(attempt: u32) -> i32 {
    i32::try_from(attempt).unwrap_or(i32::MAX)
}
