//! Beginning a flow, and a step of one.

use rusqlite::Connection;
use semel::flow::{Journal, Kept, MAX_FLOW_CHARACTERS, Start};
use semel::store::Stored;
use semel::{Ask, Claim, Error, Execution, Lease, LeaseTerms};

use super::no_flow;
use super::row::{execute, query_opt};
use super::take::{check_worker, take_over};
use crate::key::Fence;
use crate::lease::insert;
use crate::probe::Standing;
use crate::store::{Answer, Sqlite};
use crate::turn::Held;
use crate::tx::Tx;

const BEGIN_FLOW: &str = include_str!("../sql/flow/begin_flow.sql");
const IS_FLOW: &str = include_str!("../sql/flow/is_flow.sql");

impl Sqlite {
    /// What is read first only says whether to go on; the decision is made on the writer, where nobody can change it.
    /// Key and flow are one commit.
    pub(super) async fn lease_flow(
        &self,
        ask: &Ask,
        terms: &LeaseTerms,
        start: &Start,
    ) -> Result<Claim<Journal, Stored>, Error> {
        check_worker(terms)?;
        check_name(&start.flow)?;
        let guard = match self.ask(ask).await? {
            Answer::Free { guard, .. } | Answer::Lapsed { guard } => guard,
            Answer::Done(stored) => return Ok(Claim::Replay(stored)),
            Answer::Mismatch => return Ok(Claim::Mismatch),
            Answer::InFlight { retry_after } => {
                self.check_is_flow(ask).await?;
                return Ok(Claim::InFlight { retry_after });
            }
            Answer::Unknown => {
                self.check_is_flow(ask).await?;
                return Ok(Claim::Unknown);
            }
        };
        self.transact(Some(Held::Key(guard)), |connection| {
            let now_ms = self.now_ms();
            Ok(match Standing::read(connection, ask, now_ms)? {
                Standing::Free { expired } => {
                    let lease = insert(connection, ask, terms, Some(&start.flow), expired, now_ms)?;
                    write(connection, ask, lease.execution, start, now_ms)?;
                    Claim::Fresh(fresh(lease, start))
                }
                Standing::Lapsed { execution, epoch, .. } => {
                    match take_over(connection, ask, terms, (execution, epoch), now_ms)? {
                        Some(journal) => Claim::Resume(journal),
                        None => Claim::Unknown,
                    }
                }
                Standing::Done(stored) => Claim::Replay(stored),
                Standing::Leased { remaining } => Claim::InFlight { retry_after: remaining },
                Standing::Mismatch => Claim::Mismatch,
                Standing::Unknown => Claim::Unknown,
            })
        })
        .await
    }

    /// The fence is checked now, to refuse early, and again on the writer at the first statement, where it holds.
    pub(super) async fn fence_step(&self, lease: &Lease, step: &str) -> Result<Tx, Error> {
        let checked = self.readers().read(|connection| Fence::of(lease).check(connection)).await;
        self.writer().check_settled()?;
        checked?;
        Ok(Tx::step(self.clone(), lease.clone(), step.to_owned()))
    }

    /// Refuses a key under which work was leased that is no flow. One that is in flight in a transaction has no row.
    async fn check_is_flow(&self, ask: &Ask) -> Result<(), Error> {
        let name = (ask.scope.tenant(), ask.scope.operation(), ask.key.as_str());
        let is_flow = |connection: &Connection| query_opt(connection, IS_FLOW, name, |row| row.get::<_, bool>(0));
        match self.readers().read(is_flow).await? {
            Some(false) => Err(no_flow()),
            Some(true) | None => Ok(()),
        }
    }
}

/// Writes the row of a flow that begins, beside its key's.
pub(super) fn write(
    connection: &Connection,
    ask: &Ask,
    run: Execution,
    start: &Start,
    now_ms: i64,
) -> Result<(), Error> {
    let Start { flow, input } = start;
    let name = (ask.scope.tenant(), ask.scope.operation(), ask.key.as_str());
    let Kept { bytes, sealed_by } = input;
    let row = (run.as_uuid().into_bytes(), name.0, name.1, name.2, flow, now_ms, sealed_by, &bytes[..]);
    execute(connection, BEGIN_FLOW, row).map(drop)
}

fn fresh(lease: Lease, start: &Start) -> Journal {
    Journal {
        lease,
        flow: start.flow.clone(),
        input: start.input.clone(),
        age: std::time::Duration::ZERO,
        lived: std::time::Duration::ZERO,
        failures: 0,
        unwinding: None,
        cancelled: false,
        restored: false,
        entries: Vec::new(),
    }
}

/// Refuses what cannot be the name of a flow (I12).
fn check_name(flow: &str) -> Result<(), Error> {
    if !(1..=MAX_FLOW_CHARACTERS).contains(&flow.len()) || !flow.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Error::Settings(format!(
            "the name of a flow must be 1 to {MAX_FLOW_CHARACTERS} visible ASCII characters, not {flow:?}"
        )));
    }
    Ok(())
}
