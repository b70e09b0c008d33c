//! Taking flows over whose leases have ended.

use rusqlite::{Connection, Row};
use semel::flow::Journal;
use semel::{Ask, Error, Execution, Fingerprint, Key, LeaseTerms, OnExpiry, Scope};

use super::job::STAGED;
use super::journal::Head;
use super::row::{execute, query_all, query_opt};
use super::{cut, held_until};
use crate::lease::{self, check_terms};
use crate::probe::{execution, unreadable};
use crate::store::Sqlite;

const ANY_DUE: &str = include_str!("../sql/flow/any_due.sql");
const DUE_FLOWS: &str = include_str!("../sql/flow/due_flows.sql");
const RESUME_FLOW: &str = include_str!("../sql/flow/resume_flow.sql");
const BEGIN_JOB: &str = include_str!("../sql/flow/begin_job.sql");
const NOTE_CAUSE: &str = include_str!("../sql/flow/note_cause.sql");
const NOTE_LOSS: &str = include_str!("../sql/flow/note_loss.sql");

/// How many flows one turn takes over, and how much of what they recorded it reads, give or take the last one (I12).
/// Others wait for the writer that long.
const MAX_TAKEN: u32 = 1000;
const MAX_TAKEN_BYTES: usize = 8 * 1024 * 1024;

impl Sqlite {
    /// Looks beside the writer first, so that whoever looks again and again holds nobody up. What is taken is taken in
    /// one turn, with what its workers need to go on; after an error nothing is.
    pub(super) async fn take_due_flows(
        &self,
        flow: &str,
        terms: &LeaseTerms,
        limit: u32,
    ) -> Result<Vec<Journal>, Error> {
        check_worker(terms)?;
        if limit == 0 || !self.any_due(flow).await? {
            return Ok(Vec::new());
        }
        self.transact(Some(self.lease_held()), |connection| {
            let now_ms = self.now_ms();
            let due = query_all(connection, DUE_FLOWS, (flow, now_ms, limit.min(MAX_TAKEN)), due)?;
            let (mut taken, mut bytes) = (Vec::new(), 0);
            for (ask, run, epoch) in due {
                let Some(journal) = take_over(connection, &ask, terms, (run, epoch), now_ms)? else { continue };
                bytes += bytes_of(&journal);
                taken.push(journal);
                if bytes >= MAX_TAKEN_BYTES {
                    break;
                }
            }
            Ok(taken)
        })
        .await
    }

    async fn any_due(&self, flow: &str) -> Result<bool, Error> {
        let now_ms = self.now_ms();
        let probe =
            |connection: &Connection| query_opt(connection, ANY_DUE, (flow, now_ms), |row| row.get::<_, bool>(0));
        Ok(self.readers().read(probe).await?.unwrap_or(false))
    }
}

/// Gives a flow whose lease has ended to a new worker, and fences the one before (I7). Nothing if it was abandoned and
/// its policy is to be held: then it is. A worker that left it in the middle counts as a failure: the flow may be what
/// it died of.
pub(super) fn take_over(
    connection: &Connection,
    ask: &Ask,
    terms: &LeaseTerms,
    (run, epoch): (Execution, i64),
    now_ms: i64,
) -> Result<Option<Journal>, Error> {
    let mut head = Head::read(connection, run, now_ms)?;
    if terms.on_expiry == OnExpiry::Hold && head.is_abandoned() {
        let cause = format!("abandoned by its worker ({}); the policy of this flow is to hold", head.holder);
        lease::hold(connection, ask, epoch, held_until(now_ms))?;
        execute(connection, NOTE_CAUSE, (run.as_uuid().as_bytes(), cut(&cause)))?;
        return Ok(None);
    }
    if head.is_abandoned() {
        head.failures = head.failures.saturating_add(1);
        let cause = format!("its worker ({}) was lost", head.holder);
        execute(connection, NOTE_LOSS, (run.as_uuid().as_bytes(), head.failures, cut(&cause)))?;
    }
    let lease = lease::take_over(connection, ask, terms, (run, epoch, None), now_ms)?;
    execute(connection, RESUME_FLOW, (run.as_uuid().as_bytes(),))?;
    if head.is_new_job() {
        execute(connection, BEGIN_JOB, (run.as_uuid().as_bytes(), now_ms))?;
        head.begin();
    }
    head.journal(connection, lease, now_ms).map(Some)
}

/// Refuses terms that cannot work, and the name by which jobs are known that nobody has begun.
pub(super) fn check_worker(terms: &LeaseTerms) -> Result<(), Error> {
    check_terms(terms)?;
    if terms.holder == STAGED {
        return Err(Error::Settings(format!("the holder of a lease must not be {STAGED:?}: jobs are staged as that")));
    }
    Ok(())
}

fn due(row: &Row<'_>) -> rusqlite::Result<(Ask, Execution, i64)> {
    let (tenant, operation, key): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let scope = Scope::new(tenant, operation).map_err(|error| unreadable(0, error))?;
    let key = Key::new(key).map_err(|error| unreadable(2, error))?;
    Ok((Ask::new(&scope, &key, &Fingerprint::from_bytes(row.get(4)?)), execution(row, 3)?, row.get(5)?))
}

fn bytes_of(journal: &Journal) -> usize {
    let results = journal.entries.iter().filter_map(|entry| entry.result.as_ref());
    journal.input.bytes.len() + results.map(|result| result.bytes.len()).sum::<usize>()
}
