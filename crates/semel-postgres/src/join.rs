//! Joining a transaction that the caller owns, on tokio-postgres.

use std::time::Duration;

use semel::inbox::{Accepted, Consumer, Delivery, JoinInbox};
use semel::store::{Completion, Join, Stored};
use semel::{Ask, Claim, Error, Event, Execution};
use tokio_postgres::Transaction;
use tokio_postgres::types::{FromSqlOwned, Type};
use uuid::Uuid;

use crate::claim::{Granted, read_claim};
use crate::error::classify;
use crate::inbox::accept::{self, Inside, Question};
use crate::outbox::emit::{EMIT, Emission};
use crate::store::{Postgres, interval_ms};

pub(crate) const JOIN_CLAIM: &str = include_str!("sql/join_claim.sql");

/// The completion of a joined transaction finds the row it may replace by itself: under the claim's lock an expired row
/// can only be the one that the claim saw.
pub(crate) const JOIN_COMPLETE: &str = include_str!("sql/join_complete.sql");

/// What a joined claim in flight tells the client.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Join<Postgres> for Transaction<'_> {
    async fn claim(&mut self, ask: &Ask) -> Result<Claim<Execution, Stored>, Error> {
        let (tenant, operation, key) = (ask.scope.tenant(), ask.scope.operation(), ask.key.as_str());
        let fingerprint = ask.fingerprint.as_bytes().as_slice();
        let row = self
            .query_typed_one(
                JOIN_CLAIM,
                &[(&tenant, Type::TEXT), (&operation, Type::TEXT), (&key, Type::TEXT), (&fingerprint, Type::BYTEA)],
            )
            .await
            .map_err(classify)?;
        Ok(match read_claim(&row, RETRY_AFTER)? {
            Claim::Fresh(Granted { execution, .. }) => Claim::Fresh(execution),
            Claim::Replay(stored) => Claim::Replay(stored),
            Claim::InFlight { retry_after } => Claim::InFlight { retry_after },
            Claim::Mismatch => Claim::Mismatch,
            Claim::Resume(_) | Claim::Unknown => Claim::Unknown,
        })
    }

    async fn savepoint(&mut self) -> Result<(), Error> {
        self.batch_execute("SAVEPOINT semel_effect").await.map_err(classify)
    }

    async fn rollback_to_savepoint(&mut self) -> Result<(), Error> {
        self.batch_execute("ROLLBACK TO SAVEPOINT semel_effect").await.map_err(classify)
    }

    async fn emit(&mut self, events: &[Event]) -> Result<(), Error> {
        if events.is_empty() {
            return Ok(());
        }
        let emission = Emission::new(None, events)?;
        let params = emission.params();
        let params: Vec<_> = params.iter().map(|value| (value.as_to_sql(), value.sql_type())).collect();
        self.query_typed_one(EMIT, &params).await.map(drop).map_err(classify)
    }

    async fn complete(&mut self, ask: &Ask, completion: &Completion) -> Result<(), Error> {
        let (tenant, operation, key) = (ask.scope.tenant(), ask.scope.operation(), ask.key.as_str());
        let fingerprint = ask.fingerprint.as_bytes().as_slice();
        let stored = &completion.stored;
        let row = self
            .query_typed_one(
                JOIN_COMPLETE,
                &[
                    (&tenant, Type::TEXT),
                    (&operation, Type::TEXT),
                    (&key, Type::TEXT),
                    (&fingerprint, Type::BYTEA),
                    (&stored.execution.as_uuid(), Type::UUID),
                    (&i32::from(stored.status), Type::INT4),
                    (&stored.headers.as_ref(), Type::BYTEA),
                    (&stored.body.as_ref(), Type::BYTEA),
                    (&interval_ms(completion.retain), Type::INT8),
                    (&completion.failed, Type::BOOL),
                    (&stored.sealed_by.as_deref(), Type::TEXT),
                ],
            )
            .await
            .map_err(classify)?;
        let _: Uuid = row.try_get(0).map_err(classify)?;
        Ok(())
    }
}

impl JoinInbox<Postgres> for Transaction<'_> {
    async fn accept(&mut self, consumer: &Consumer, deliveries: &[Delivery]) -> Result<Vec<Accepted>, Error> {
        accept::join(self, consumer, deliveries).await
    }
}

impl Inside for Transaction<'_> {
    async fn firsts(&mut self, question: &Question<'_>) -> Result<Vec<bool>, Error> {
        answer(self, question).await
    }

    async fn standings(&mut self, question: &Question<'_>) -> Result<Vec<String>, Error> {
        answer(self, question).await
    }
}

async fn answer<T: FromSqlOwned>(transaction: &Transaction<'_>, question: &Question<'_>) -> Result<T, Error> {
    let params = question.params();
    let params: Vec<_> = params.iter().map(|value| (value.as_to_sql(), value.sql_type())).collect();
    let row = transaction.query_typed_one(question.sql, &params).await.map_err(classify)?;
    row.try_get(0).map_err(classify)
}
