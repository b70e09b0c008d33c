//! Messages of one transaction that can be taken back one by one.

use rusqlite::Connection;
use semel::flow::{Job, MAX_JOBS};
use semel::inbox::{Accepted, Consumer, Delivery};
use semel::outbox::MAX_EVENTS;
use semel::{Error, Event, Tx as _};

use super::accept::accept;
use crate::deferred::Deferred;
use crate::error::classify;
use crate::tx::{Tx, check_deferred, misuse};
use crate::writer::run;

/// A message that was accepted behind a savepoint and has neither been kept nor taken back: what its effect has
/// deferred, emitted and staged. It is apart from that of other messages, so that it can go with the savepoint.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) deferred: Vec<Deferred>,
    pub(crate) events: Vec<Event>,
    pub(crate) jobs: Vec<Job>,
    /// Its acceptance or its end failed half-way, so it can only be taken back.
    broken: bool,
}

impl Message {
    /// Past the limit one more is kept, which makes the completion fail (I12).
    pub(crate) fn emit(&mut self, event: Event) {
        if self.events.len() <= MAX_EVENTS {
            self.events.push(event);
        }
    }

    /// Likewise.
    pub(crate) fn stage(&mut self, job: Job) {
        if self.jobs.len() <= MAX_JOBS {
            self.jobs.push(job);
        }
    }

    /// Refuses to keep what is there by halves.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.broken { Err(misuse("the last message was refused; take it back first")) } else { Ok(()) }
    }
}

impl Tx {
    /// Sets a savepoint and accepts a message behind it. The message before it, if it is still open, is kept: one that
    /// is a duplicate or stale has nothing to say at its end.
    pub(crate) async fn accept_message(&mut self, consumer: &Consumer, delivery: &Delivery) -> Result<Accepted, Error> {
        self.keep_message().await?;
        self.run_checked(|connection| run(connection, "SAVEPOINT semel_message").map_err(classify)).await?;
        self.message = Some(Message::default());
        let now_ms = self.now_ms();
        let accepted = self
            .run_message(|connection, _| accept(connection, consumer, std::slice::from_ref(delivery), now_ms))
            .await?;
        Ok(accepted.first().copied().unwrap_or(Accepted::Duplicate))
    }

    /// Runs what the effect of the message has deferred, and lets go of its savepoint. Its events and jobs are written
    /// at the commit. After an error the message is still open, and has to be taken back.
    pub(crate) async fn keep_message(&mut self) -> Result<(), Error> {
        let Some(message) = &self.message else { return Ok(()) };
        message.check()?;
        self.run_message(|connection, deferred| {
            check_deferred(deferred)?;
            deferred.iter().try_for_each(|statement| statement.run(connection))?;
            run(connection, "RELEASE semel_message").map_err(classify)
        })
        .await?;
        let kept = self.message.take().unwrap_or_default();
        kept.events.into_iter().for_each(|event| self.emit(event));
        kept.jobs.into_iter().for_each(|job| self.stage(job));
        Ok(())
    }

    /// Rolls back to before the message was accepted. The messages before it stay.
    pub(crate) async fn take_message_back(&mut self) -> Result<(), Error> {
        if self.message.is_none() {
            return Err(misuse("there is no message to take back: it was kept, or none was accepted"));
        }
        self.run_checked(|connection| {
            run(connection, "ROLLBACK TO semel_message")
                .and_then(|()| run(connection, "RELEASE semel_message"))
                .map_err(classify)
        })
        .await?;
        self.message = None;
        Ok(())
    }

    /// Runs what belongs to the message that is open, given what its effect has deferred. It is broken unless all of it
    /// succeeds.
    async fn run_message<T>(
        &mut self,
        work: impl FnOnce(&Connection, &[Deferred]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut message = self.message.take().unwrap_or_default();
        let deferred = std::mem::take(&mut message.deferred);
        self.message = Some(Message { broken: true, ..message });
        let value = self.run_checked(|connection| work(connection, &deferred)).await?;
        if let Some(message) = &mut self.message {
            message.broken = false;
        }
        Ok(value)
    }
}
