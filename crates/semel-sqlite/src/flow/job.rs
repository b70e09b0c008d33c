//! Jobs: flows that start with the commit that stages them.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::Connection;
use semel::flow::{Job, Kept, MAX_JOBS, Start};
use semel::{Ask, Error, Execution, LeaseTerms, OnExpiry};

use super::begin;
use crate::lease::insert;

/// Who holds the lease of a job that nobody has begun.
pub(super) const STAGED: &str = "staged";

/// How long a job's key is kept at least. Whoever takes it over keeps it for as long as the flow is to be.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// What a transaction has staged and will write at its completion.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    jobs: Vec<Job>,
    /// How many there were. Past the limit nothing is kept of them: the completion fails anyway (I12).
    count: usize,
}

impl Staged {
    pub(crate) fn push(&mut self, job: Job) {
        self.count += 1;
        if self.count <= MAX_JOBS {
            self.jobs.push(job);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Writes them as the jobs of a run, inside a turn: they go with it, whatever becomes of it. Their leases end as
    /// they begin, so whoever looks after the commit takes them over. [`Error::Raced`] if the run has committed its
    /// jobs already.
    pub(crate) fn write(&self, connection: &Connection, execution: Execution, now_ms: i64) -> Result<(), Error> {
        if self.count > MAX_JOBS {
            return Err(Error::TooManyEvents { what: format!("{} jobs", self.count), limit: MAX_JOBS });
        }
        let terms = LeaseTerms {
            lease_for: Duration::ZERO,
            holder: STAGED.to_owned(),
            on_expiry: OnExpiry::Resume,
            retain: KEPT_FOR,
        };
        for (ordinal, job) in (0_u32..).zip(&self.jobs) {
            let ask = Ask::new(&job.scope, &Job::key(execution, ordinal), &job.fingerprint);
            let input = Kept { bytes: Bytes::copy_from_slice(&job.input), sealed_by: None };
            let start = Start { flow: job.flow.clone(), input };
            let lease = insert(connection, &ask, &terms, Some(&job.flow), None, now_ms)?;
            begin::write(connection, &ask, lease.execution, &start, now_ms)?;
        }
        Ok(())
    }
}
