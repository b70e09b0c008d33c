//! Several statements in one flight.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use deadpool_postgres::Object;
use semel::failpoint;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};

use crate::connect::Statements;
use crate::parameter::Parameter;

type Pending<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

/// Messages that leave together and are answered in order: one round trip for all of them.
///
/// The driver sends a message when its future is first polled, so polling them once in order puts them on the wire in
/// order. A message that fails at once, for example because a value does not fit its type, may never have been sent;
/// then nothing after it is sent either, so that no COMMIT follows a statement which the server has not seen. It may
/// also have been answered in that very moment, where the thread was held up: then the server refused it because of one
/// before it, whose answer says why.
#[derive(Default)]
pub(crate) struct Flight<'a> {
    pending: Vec<Pending<'a>>,
}

/// How a flight ended.
pub(crate) enum Flown {
    /// Everything was sent, and these are the answers.
    Answered(Vec<Result<Vec<Row>, Error>>),
    /// The flight broke off before its last message was sent; this is the first failure.
    Grounded(Error),
}

impl<'a> Flight<'a> {
    /// Adds a command without parameters or rows: BEGIN, ROLLBACK, COMMIT.
    pub(crate) fn command(&mut self, connection: &'a Object, sql: &'a str) {
        self.pending.push(Box::pin(async move {
            connection.batch_execute(sql).await?;
            Ok(Vec::new())
        }));
    }

    /// Adds a statement that has been prepared.
    pub(crate) fn statement(&mut self, connection: &'a Object, prepared: &'a Prepared<'a>) {
        self.pending.push(Box::pin(prepared.query(connection)));
    }

    /// Sends everything, then waits for every answer. Returns the rows of the last statement, or the first failure.
    pub(crate) async fn fly(self) -> Result<Vec<Row>, Error> {
        Ok(self.answers().await?.pop().unwrap_or_default())
    }

    /// Sends everything, then waits for every answer. Returns the rows of each, or the first failure.
    pub(crate) async fn answers(self) -> Result<Vec<Vec<Row>>, Error> {
        match self.fly_past(None).await {
            Flown::Grounded(error) => Err(error),
            Flown::Answered(answers) => answers.into_iter().collect(),
        }
    }

    /// Sends everything, then waits for every answer. `sent` names the failpoint that lies in between.
    pub(crate) async fn fly_past(mut self, sent: Option<&'static str>) -> Flown {
        let mut answers: Vec<Option<Result<Vec<Row>, Error>>> = self.pending.iter().map(|_| None).collect();
        let last = self.pending.len().saturating_sub(1);
        let grounded = poll_fn(|context: &mut Context<'_>| {
            for (position, (pending, answer)) in self.pending.iter_mut().zip(&mut answers).enumerate() {
                match pending.as_mut().poll(context) {
                    // The last message may have been sent and the connection lost in this very moment, so its failure
                    // is an answer like any other.
                    Poll::Ready(Err(error)) if position < last => return Poll::Ready(Some((position, error))),
                    Poll::Ready(result) => *answer = Some(result),
                    Poll::Pending => {}
                }
            }
            Poll::Ready(None)
        });
        if let Some((position, error)) = grounded.await {
            for (pending, answer) in self.pending.iter_mut().zip(answers).take(position) {
                let answer = match answer {
                    Some(answer) => answer,
                    None => pending.as_mut().await,
                };
                if let Err(first) = answer {
                    return Flown::Grounded(first);
                }
            }
            return Flown::Grounded(error);
        }
        if let Some(point) = sent {
            failpoint::reach(point).await;
        }
        poll_fn(|context: &mut Context<'_>| {
            for (pending, answer) in self.pending.iter_mut().zip(&mut answers) {
                if answer.is_none()
                    && let Poll::Ready(result) = pending.as_mut().poll(context)
                {
                    *answer = Some(result);
                }
            }
            if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        Flown::Answered(answers.into_iter().flatten().collect())
    }
}

/// A statement with its parameters, ready to be sent without a further round trip.
pub(crate) struct Prepared<'a> {
    statement: Option<tokio_postgres::Statement>,
    sql: &'a str,
    params: Vec<(&'a (dyn ToSql + Sync), Type)>,
}

impl<'a> Prepared<'a> {
    /// Prepares a named statement once per connection, or leaves it unnamed for a pooler.
    pub(crate) async fn new(
        connection: &Object,
        statements: Statements,
        sql: &'a str,
        params: impl Iterator<Item = &'a (dyn Parameter + 'a)>,
    ) -> Result<Prepared<'a>, Error> {
        let params: Vec<(&(dyn ToSql + Sync), Type)> =
            params.map(|value| (value.as_to_sql(), value.sql_type())).collect();
        let statement = match statements {
            Statements::Unnamed => None,
            Statements::Named => {
                let types: Vec<Type> = params.iter().map(|(_, sql_type)| sql_type.clone()).collect();
                Some(connection.prepare_typed_cached(sql, &types).await?)
            }
        };
        Ok(Prepared { statement, sql, params })
    }

    pub(crate) async fn query(&self, connection: &Object) -> Result<Vec<Row>, Error> {
        match &self.statement {
            Some(statement) => connection.query(statement, &self.values()).await,
            None => connection.query_typed(self.sql, &self.params).await,
        }
    }

    pub(crate) async fn execute(&self, connection: &Object) -> Result<u64, Error> {
        match &self.statement {
            Some(statement) => connection.execute(statement, &self.values()).await,
            None => connection.execute_typed(self.sql, &self.params).await,
        }
    }

    fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.params.iter().map(|(value, _)| *value).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// An error of the driver that can be told from others.
    fn error(setting: &str) -> Error {
        setting.parse::<tokio_postgres::Config>().unwrap_err()
    }

    fn flight<'a>(pending: Vec<Pending<'a>>) -> Flight<'a> {
        Flight { pending }
    }

    /// An answer that is not there when the message is sent.
    fn later<'a>(answer: Result<Vec<Row>, Error>) -> Pending<'a> {
        Box::pin(async {
            tokio::task::yield_now().await;
            answer
        })
    }

    #[tokio::test]
    async fn the_first_failure_is_told_also_when_a_later_answer_is_there_before_it() {
        let (first, second) = (error("port=first"), error("nothing=second"));
        let told = format!("{first:?}");
        assert_ne!(told, format!("{second:?}"));
        let never_sent: Pending<'_> = Box::pin(async { panic!("COMMIT was sent behind a failure") });
        let at_once: Pending<'_> = Box::pin(async { Err(second) });
        let flown = flight(vec![later(Ok(Vec::new())), later(Err(first)), at_once, never_sent]).fly_past(None).await;
        assert!(matches!(flown, Flown::Grounded(error) if format!("{error:?}") == told));
    }

    #[tokio::test]
    async fn nothing_is_sent_behind_a_message_that_fails_at_once() {
        let at_once: Pending<'_> = Box::pin(async { Err(error("port=alone")) });
        let never_sent: Pending<'_> = Box::pin(async { panic!("COMMIT was sent behind a failure") });
        let flown = flight(vec![later(Ok(Vec::new())), at_once, never_sent]).fly_past(None).await;
        let told = format!("{:?}", error("port=alone"));
        assert!(matches!(flown, Flown::Grounded(error) if format!("{error:?}") == told));
    }
}
