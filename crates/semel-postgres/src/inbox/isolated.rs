//! Messages that are accepted one by one, each behind a savepoint.

use semel::Error;
use semel::inbox::{Accepted, Consumer, Delivery};
use tokio_postgres::Row;
use tokio_postgres::types::FromSqlOwned;

use super::accept::{Inside, Question, join};
use crate::error::classify;
use crate::failure::Failure;
use crate::flight::{Flight, Prepared};
use crate::parameter::Parameter;
use crate::tx::Tx;

const SET: &str = "SAVEPOINT semel_message";
/// A message of which nothing was to be kept or taken back, such as a duplicate, has left its savepoint behind.
const SET_ANEW: &str = "RELEASE SAVEPOINT semel_message; SAVEPOINT semel_message";
const RELEASE: &str = "RELEASE SAVEPOINT semel_message";
const ROLL_BACK: &str = "ROLLBACK TO SAVEPOINT semel_message";

/// Where a message began: how much had been deferred, emitted and staged when its savepoint was set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Isolated {
    deferred: usize,
    events: usize,
    jobs: usize,
}

/// Sets a savepoint and accepts a message behind it, in one flight.
pub(super) async fn accept(tx: &mut Tx, consumer: &Consumer, delivery: &Delivery) -> Result<Accepted, Error> {
    let began = Isolated { deferred: tx.deferred.len(), events: tx.events.len(), jobs: tx.jobs.len() };
    let command = if tx.isolated.replace(began).is_some() { SET_ANEW } else { SET };
    let mut within = Within { tx, command: Some(command) };
    let accepted = join(&mut within, consumer, std::slice::from_ref(delivery)).await?;
    accepted.first().copied().ok_or_else(|| Error::Statement("a message was not answered for".into()))
}

/// Runs what the last message's effect deferred, and releases its savepoint: that fails if a statement of the effect
/// had failed, whatever the effect made of it.
pub(super) async fn keep(tx: &mut Tx) -> Result<(), Error> {
    if tx.isolated.is_none() {
        return Err(none_isolated());
    }
    if tx.has_given_up() {
        return Err(Error::Statement("a statement was given up before its answer came; take the message back".into()));
    }
    tx.expect_answer();
    let deferred = std::mem::take(&mut tx.deferred);
    let run = async {
        let connection = tx.connection()?;
        let mut prepared = Vec::with_capacity(deferred.len());
        for statement in &deferred {
            let params = statement.params.iter().map(|value| value.as_ref() as &dyn Parameter);
            prepared.push(Prepared::new(connection, tx.shared.options.statements, &statement.sql, params).await?);
        }
        let mut flight = Flight::default();
        for statement in &prepared {
            flight.statement(connection, statement);
        }
        flight.command(connection, RELEASE);
        flight.fly().await?;
        Ok::<(), Failure>(())
    };
    let run = run.await;
    tx.note(run).await?;
    tx.isolated = None;
    Ok(())
}

/// Rolls the last message back to its savepoint, and forgets what it deferred and emitted.
pub(super) async fn take_back(tx: &mut Tx) -> Result<(), Error> {
    let began = tx.isolated.ok_or_else(none_isolated)?;
    tx.deferred.truncate(began.deferred);
    tx.events.truncate(began.events);
    tx.jobs.truncate(began.jobs);
    tx.forgive();
    tx.expect_answer();
    let back = match tx.connection() {
        Ok(connection) => connection.batch_execute(ROLL_BACK).await.map_err(Failure::Driver),
        Err(error) => Err(Failure::Ours(error)),
    };
    tx.note(back).await
}

fn none_isolated() -> Error {
    Error::Statement("no message was accepted behind a savepoint".into())
}

/// A transaction of the store, and a command that travels with the first question.
pub(super) struct Within<'a> {
    tx: &'a mut Tx,
    command: Option<&'static str>,
}

impl<'a> Within<'a> {
    pub(super) fn new(tx: &'a mut Tx) -> Within<'a> {
        Within { tx, command: None }
    }

    async fn answer<T: FromSqlOwned>(&mut self, question: &Question<'_>) -> Result<T, Error> {
        self.tx.expect_answer();
        let rows = self.send(question).await;
        let rows = self.tx.note(rows).await?;
        let [row] = rows.as_slice() else {
            return Err(Error::Statement(format!("no row came back from {}", question.sql).into()));
        };
        row.try_get(0).map_err(classify)
    }

    async fn send(&mut self, question: &Question<'_>) -> Result<Vec<Row>, Failure> {
        let connection = self.tx.connection()?;
        let params = question.params();
        let statements = self.tx.shared.options.statements;
        let prepared = Prepared::new(connection, statements, question.sql, params.into_iter()).await?;
        let mut flight = Flight::default();
        if let Some(command) = self.command.take() {
            flight.command(connection, command);
        }
        flight.statement(connection, &prepared);
        Ok(flight.fly().await?)
    }
}

impl Inside for Within<'_> {
    async fn firsts(&mut self, question: &Question<'_>) -> Result<Vec<bool>, Error> {
        self.answer(question).await
    }

    async fn standings(&mut self, question: &Question<'_>) -> Result<Vec<String>, Error> {
        self.answer(question).await
    }
}
