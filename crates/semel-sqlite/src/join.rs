//! Joining a transaction that the caller owns, on rusqlite.

use rusqlite::Transaction;
use semel::inbox::{Accepted, Consumer, Delivery, JoinInbox};
use semel::store::{Completion, Join, Stored};
use semel::{Ask, Claim, Clock, Error, Event, Execution, SystemClock};

use crate::error::classify;
use crate::inbox::accept::accept;
use crate::key;
use crate::outbox::emit;
use crate::probe::Standing;
use crate::store::Sqlite;
use crate::writer::run;

/// The claim reads in the caller's transaction and the UNIQUE constraint judges at the completion, so of two that race
/// one cannot commit (I2). Begin with `TransactionBehavior::Immediate`: a deferred transaction whose snapshot has
/// become old fails at its first write with [`Error::Conflict`].
///
/// The connection is the caller's: its `synchronous` and `foreign_keys` are left as they are.
impl Join<Sqlite> for Transaction<'_> {
    async fn claim(&mut self, ask: &Ask) -> Result<Claim<Execution, Stored>, Error> {
        Ok(match Standing::read(self, ask, SystemClock.now_ms())? {
            Standing::Free { .. } => {
                let execution = Execution::mint();
                emit::note_joined_run(self, execution)?;
                Claim::Fresh(execution)
            }
            Standing::Done(stored) => Claim::Replay(stored),
            Standing::Leased { remaining } => Claim::InFlight { retry_after: remaining },
            Standing::Mismatch => Claim::Mismatch,
            Standing::Lapsed { .. } | Standing::Unknown => Claim::Unknown,
        })
    }

    async fn savepoint(&mut self) -> Result<(), Error> {
        run(self, "SAVEPOINT semel_effect").map_err(classify)
    }

    async fn rollback_to_savepoint(&mut self) -> Result<(), Error> {
        run(self, "ROLLBACK TO semel_effect").map_err(classify)?;
        // Nothing more comes of this run.
        emit::forget_joined_run(self)
    }

    /// In a keyed run the events are that run's, however many calls bring them. Otherwise each call makes a run of its
    /// own. A connection that commits without waiting for the disk is refused (I4).
    async fn emit(&mut self, events: &[Event]) -> Result<(), Error> {
        emit::write_joined(self, events, SystemClock.now_ms())
    }

    /// The expired row that may be replaced is looked up again: all reads of one transaction see one snapshot, so it
    /// can only be the one that the claim saw.
    async fn complete(&mut self, ask: &Ask, completion: &Completion) -> Result<(), Error> {
        let now_ms = SystemClock.now_ms();
        let Standing::Free { expired } = Standing::read(self, ask, now_ms)? else { return Err(Error::Raced) };
        emit::forget_joined_run(self)?;
        key::complete(self, ask, expired, completion, now_ms)
    }
}

/// The first statement takes the file's write lock, so whoever accepts the same message waits, or fails, until this
/// transaction has ended, and nothing is decided by an old snapshot: a deferred transaction whose snapshot has become
/// old fails with [`Error::Conflict`].
///
/// A connection that commits without waiting for the disk is refused: its effect could vanish after its message was
/// acknowledged, and then nobody would bring the message again (I6).
impl JoinInbox<Sqlite> for Transaction<'_> {
    async fn accept(&mut self, consumer: &Consumer, deliveries: &[Delivery]) -> Result<Vec<Accepted>, Error> {
        let synchronous: i64 = self.pragma_query_value(None, "synchronous", |row| row.get(0)).map_err(classify)?;
        if synchronous < 2 {
            return Err(Error::Settings(
                "this connection commits without waiting for the disk, so an effect could vanish after its message was \
                 acknowledged; set PRAGMA synchronous = FULL before the transaction begins"
                    .to_owned(),
            ));
        }
        run(self, "SAVEPOINT semel_accept").map_err(classify)?;
        let accepted = accept(self, consumer, deliveries, SystemClock.now_ms());
        if accepted.is_err() && !self.is_autocommit() {
            // What is there by halves must not be committed, not even by a caller who goes on.
            run(self, "ROLLBACK TO semel_accept").map_err(classify)?;
        }
        let accepted = accepted?;
        run(self, "RELEASE semel_accept").map_err(classify)?;
        Ok(accepted)
    }
}
