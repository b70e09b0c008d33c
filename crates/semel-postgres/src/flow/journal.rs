//! Reading what is recorded of a flow.

use semel::flow::Journal;
use semel::{Error, Lease};
use tokio_postgres::Row;

use super::row::{self, get, kept, millis, unanswered, unreadable};
use super::{Fenced, no_flow, query_committed};
use crate::store::Postgres;

const READ: &str = include_str!("../sql/flow_read.sql");

/// It waits for the key's row, so that a commit of this lease which is on its way has taken effect, or never will.
pub(super) async fn read(store: &Postgres, lease: &Lease) -> Result<Journal, Error> {
    let fenced = Fenced::by(lease);
    let rows = query_committed(store, READ, &fenced.with(&[])).await?;
    journals(&rows, |_| Ok(lease.clone()))?.pop().ok_or_else(no_flow)
}

/// The journals that rows of `semel.flow_journal` tell: a row for the flow, then one for each of its steps. `lease`
/// reads from the former by what right this worker goes on.
pub(super) fn journals(rows: &[Row], lease: impl Fn(&Row) -> Result<Lease, Error>) -> Result<Vec<Journal>, Error> {
    let mut journals: Vec<Journal> = Vec::new();
    for row in rows {
        match get(row, "step")? {
            None => journals.push(journal(row, lease(row)?)?),
            Some(step) => {
                let journal = journals.last_mut().ok_or_else(unanswered)?;
                journal.entries.push(row::entry(row, step)?);
            }
        }
    }
    Ok(journals)
}

/// A flow without its steps.
fn journal(row: &Row, lease: Lease) -> Result<Journal, Error> {
    Ok(Journal {
        lease,
        flow: get(row, "flow")?,
        input: kept(row, "kept", "kept_sealed_by")?.ok_or_else(|| unreadable("input"))?,
        age: millis(row, "age_ms")?,
        lived: millis(row, "lived_ms")?,
        failures: get::<i32>(row, "failures")?.unsigned_abs(),
        unwinding: kept(row, "unwinding", "unwinding_sealed_by")?,
        cancelled: get(row, "cancelled")?,
        restored: get(row, "restored")?,
        entries: Vec::new(),
    })
}
