//! The inbox: messages that arrive more than once and apply once.
//!
//! A message is accepted in the turn in which its effect runs, so proof and effect are one commit (I6), and whoever
//! brings the same message waits for that turn to end. The turn's group may still fail to commit, though, and take
//! proofs along that others have read in the meantime: a duplicate is therefore told only when what made it one is
//! durable.

pub(crate) mod accept;
pub(crate) mod isolated;

mod declare;
mod letter;
mod offset;
mod operator;
mod reap;
mod row;
mod seen;

use std::time::Duration;

use semel::Error;
use semel::inbox::{Accepted, Consumer, Delivery, Inbox};
use semel::letter::{ConsumerRecord, Declaration, Letter, LetterFilter, LetterId, LetterRecord};
use semel::operator::Audit;

use crate::error::lock;
use crate::queue::News;
use crate::store::Sqlite;
use crate::tx::Tx;

impl Inbox for Sqlite {
    async fn accept(&self, consumer: &Consumer, deliveries: &[Delivery]) -> Result<(Tx, Vec<Accepted>), Error> {
        self.accept_settled(consumer, deliveries).await
    }

    async fn seen(&self, consumer: &Consumer, deliveries: &[Delivery]) -> Result<Vec<bool>, Error> {
        self.read_seen(consumer, deliveries).await
    }

    /// It takes its turn at the first message.
    async fn begin_consuming(&self) -> Result<Tx, Error> {
        self.begin().await
    }

    /// The answer holds once the transaction has committed. Until then, what made a message a duplicate may be rolled
    /// back with its group, and then this transaction is, too.
    async fn accept_isolated(&self, tx: &mut Tx, consumer: &Consumer, delivery: &Delivery) -> Result<Accepted, Error> {
        tx.accept_message(consumer, delivery).await
    }

    async fn keep(&self, tx: &mut Tx) -> Result<(), Error> {
        tx.keep_message().await
    }

    async fn take_back(&self, tx: &mut Tx) -> Result<(), Error> {
        tx.take_message_back().await
    }

    async fn commit_consumed(&self, tx: Tx) -> Result<(), Error> {
        tx.commit().await
    }

    async fn next_offset(
        &self,
        consumer: &Consumer,
        source: &str,
        topic: &str,
        partition: i32,
    ) -> Result<Option<i64>, Error> {
        self.read_next_offset(consumer, source, topic, partition).await
    }

    async fn declare(&self, name: &str, declaration: &Declaration) -> Result<Consumer, Error> {
        self.declare_consumer(name, declaration).await
    }

    async fn generation(&self, name: &str) -> Result<Option<u32>, Error> {
        self.read_generation(name).await
    }

    async fn dead_letter(&self, consumer: &Consumer, delivery: &Delivery, letter: &Letter) -> Result<bool, Error> {
        self.set_aside(consumer, delivery, letter).await
    }

    async fn redriven(&self, consumer: &str, limit: u32) -> Result<Vec<LetterRecord>, Error> {
        self.read_redriven(consumer, limit).await
    }

    async fn take_letter(&self, id: LetterId) -> Result<Option<Tx>, Error> {
        self.take_redriven(id).await
    }

    async fn bury(&self, id: LetterId, cause: &str) -> Result<(), Error> {
        self.bury_redriven(id, cause).await
    }

    async fn consumers(&self, name: Option<&str>) -> Result<Vec<ConsumerRecord>, Error> {
        self.read_consumers(name).await
    }

    async fn letters(&self, filter: &LetterFilter, limit: u32) -> Result<Vec<LetterRecord>, Error> {
        self.list_letters(filter, limit).await
    }

    async fn redrive_letters(&self, filter: &LetterFilter, audit: &Audit, dry_run: bool) -> Result<u64, Error> {
        self.redrive_dead(filter, audit, dry_run).await
    }

    async fn replay_consumer(&self, name: &str, audit: &Audit, dry_run: bool) -> Result<Option<u32>, Error> {
        self.begin_generation(name, audit, dry_run).await
    }

    async fn reap_inbox(&self, consumer: &str, keep: Duration, limit: u32) -> Result<u64, Error> {
        self.forget_old_ids(consumer, keep, limit).await
    }
}

impl Sqlite {
    /// Accepts messages in a turn, and says of none that it is a duplicate before the COMMIT that made it one: a
    /// duplicate is acknowledged to its broker, so if that COMMIT failed, nobody would bring the message again.
    ///
    /// What is seen in a turn is committed, or was done by others in the same group. If a duplicate may be theirs, what
    /// was accepted is taken back, the group's COMMIT is waited for, and all are accepted anew. A duplicate that was
    /// waited for stays one, so each round settles at least one message.
    async fn accept_settled(&self, consumer: &Consumer, deliveries: &[Delivery]) -> Result<(Tx, Vec<Accepted>), Error> {
        if deliveries.is_empty() {
            return Ok((Tx::business(self.clone()), Vec::new()));
        }
        let mut settled = vec![false; deliveries.len()];
        loop {
            let mut tx = Tx::business(self.clone());
            let work = tx.run_checked(|connection| {
                let accepted = accept::accept(connection, consumer, deliveries, self.now_ms())?;
                Ok((accepted, self.shares_group()))
            });
            let (accepted, others) = work.await?;
            if !others {
                return Ok((tx, accepted));
            }
            let duplicates = (0..accepted.len()).filter(|place| accepted[*place] == Accepted::Duplicate);
            let in_doubt: Vec<usize> = duplicates.filter(|place| !settled[*place]).collect();
            let asked: Vec<&Delivery> = in_doubt.iter().map(|place| &deliveries[*place]).collect();
            if asked.is_empty() || self.are_committed(consumer, &asked).await? {
                return Ok((tx, accepted));
            }
            tx.await_group().await?;
            if accepted.iter().all(|accepted| *accepted == Accepted::Duplicate) {
                return Ok((Tx::business(self.clone()), accepted));
            }
            in_doubt.into_iter().for_each(|place| settled[place] = true);
        }
    }

    /// Whether others are in the group of the turn that is held, and may yet be rolled back with it. It is asked while
    /// the turn runs statements: the turn may be taken back at any time after, and then the group goes on.
    fn shares_group(&self) -> bool {
        !lock(&self.writer().shared.queue).pending.is_empty()
    }
}

impl Tx {
    /// Takes everything back and waits for the COMMIT of what others did in the same group. After an error nothing
    /// that was seen there counts.
    async fn await_group(mut self) -> Result<(), Error> {
        let Some(turn) = self.turn.take() else { return Err(Error::Deadline) };
        turn.undo()?;
        match turn.finish(None, News::default())?.done().await {
            // It was not this transaction's to commit: nothing of it is in doubt.
            Err(Error::Ambiguous(cause)) => Err(Error::Unavailable(cause)),
            other => other,
        }
    }
}
