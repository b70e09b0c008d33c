//! Joining a transaction that the caller owns.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use rusqlite::Transaction;
use semel::store::{Completion, Stored};
use semel::{Ask, Claim, Clock, Error, Execution, Join, SystemClock};

use crate::error::classify;
use crate::key;
use crate::probe::Standing;
use crate::writer::run;

/// A transaction of the caller's own connection, for [`semel::Semel::once_tx`].
///
/// The caller begins and ends it, best with `TransactionBehavior::Immediate`: a deferred one whose snapshot has become
/// old fails at its first write with [`Error::Conflict`]. After the caller's commit, effect and reply are visible
/// together; after its rollback neither is (I1). The claim reads in this transaction and the UNIQUE constraint judges at
/// the completion, so two that race cannot both commit (I2).
///
/// It dereferences to the transaction, so statements run as usual.
pub struct Joined<'t, 'c> {
    transaction: &'t Transaction<'c>,
    clock: Arc<dyn Clock>,
    expired: Option<Execution>,
}

impl<'t, 'c> Joined<'t, 'c> {
    /// Joins a transaction. Its connection must have `foreign_keys` and `synchronous` as the caller wants them: Semel
    /// changes nothing about a connection that is not its own.
    pub fn new(transaction: &'t Transaction<'c>) -> Joined<'t, 'c> {
        Joined::with_clock(transaction, Arc::new(SystemClock))
    }

    /// Joins a transaction, with another clock.
    pub fn with_clock(transaction: &'t Transaction<'c>, clock: Arc<dyn Clock>) -> Joined<'t, 'c> {
        Joined { transaction, clock, expired: None }
    }
}

impl<'c> Deref for Joined<'_, 'c> {
    type Target = Transaction<'c>;

    fn deref(&self) -> &Transaction<'c> {
        self.transaction
    }
}

impl fmt::Debug for Joined<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").field("expired", &self.expired).finish_non_exhaustive()
    }
}

impl Join for Joined<'_, '_> {
    async fn claim(&mut self, ask: &Ask) -> Result<Claim<Execution, Stored>, Error> {
        Ok(match Standing::read(self.transaction, ask, self.clock.now_ms())? {
            Standing::Free { expired } => {
                self.expired = expired;
                Claim::Fresh(Execution::mint())
            }
            Standing::Done(stored) => Claim::Replay(stored),
            Standing::Leased { remaining } => Claim::InFlight { retry_after: remaining },
            Standing::Mismatch => Claim::Mismatch,
            Standing::Lapsed { .. } | Standing::Unknown => Claim::Unknown,
        })
    }

    async fn savepoint(&mut self) -> Result<(), Error> {
        run(self.transaction, "SAVEPOINT semel_effect").map_err(classify)
    }

    async fn rollback_to_savepoint(&mut self) -> Result<(), Error> {
        run(self.transaction, "ROLLBACK TO semel_effect").map_err(classify)
    }

    async fn complete(&mut self, ask: &Ask, completion: &Completion) -> Result<(), Error> {
        key::complete(self.transaction, ask, self.expired, completion, self.clock.now_ms())?;
        run(self.transaction, "RELEASE semel_effect").map_err(classify)
    }
}
