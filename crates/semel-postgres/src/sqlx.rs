//! Joining a transaction that sqlx owns.
//!
//! ```no_run
//! # async fn example(pool: sqlx::PgPool, semel: semel::Semel<semel_postgres::Postgres>)
//! # -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use semel::{Fingerprint, Key, Outcome, Reply, Scope};
//!
//! let (scope, key) = (Scope::new("tenant-7", "charges.create")?, Key::new("5f0c7a1e")?);
//! let mut tx = pool.begin().await?;
//! let outcome = semel
//!     .once_tx(&mut *tx, &scope, &key, &Fingerprint::of_bytes(b"42 EUR"), async |tx: &mut sqlx::PgConnection| {
//!         sqlx::query("INSERT INTO charges (amount) VALUES ($1)").bind(42_i64).execute(&mut *tx).await?;
//!         Ok::<Reply, Box<dyn std::error::Error + Send + Sync>>(Reply::json(201, &"captured")?)
//!     })
//!     .await;
//! match outcome {
//!     Ok(Outcome::Fresh(reply)) => {
//!         tx.commit().await?; // reply and charge become visible here, together
//!         println!("{}", reply.status());
//!     }
//!     Ok(outcome) => println!("{}", outcome.reply().status()), // nothing to commit
//!     Err(error) => println!("{error}"),                       // dropping `tx` rolls back
//! }
//! # Ok(())
//! # }
//! ```

use bytes::Bytes;
use semel::inbox::{Accepted, Consumer, Delivery, JoinInbox};
use semel::store::{Completion, Join, Stored};
use semel::{Ask, Claim, Error, Event, Execution};
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use crate::Postgres;
use crate::error::{ahead, too_many_events};
use crate::inbox::accept::{self, Inside, Question, Value};
use crate::join::{JOIN_CLAIM, JOIN_COMPLETE, RETRY_AFTER};
use crate::outbox::emit::{EMIT, Emission};

impl Join<Postgres> for PgConnection {
    async fn claim(&mut self, ask: &Ask) -> Result<Claim<Execution, Stored>, Error> {
        let row = sqlx::query(JOIN_CLAIM)
            .bind(ask.scope.tenant())
            .bind(ask.scope.operation())
            .bind(ask.key.as_str())
            .bind(ask.fingerprint.as_bytes().as_slice())
            .fetch_one(&mut *self)
            .await
            .map_err(classify)?;
        let outcome: String = row.try_get("outcome").map_err(classify)?;
        Ok(match outcome.as_str() {
            "fresh" => Claim::Fresh(execution(&row)?),
            "replay" => Claim::Replay(Stored {
                execution: execution(&row)?,
                status: u16::try_from(row.try_get::<i16, _>("status").map_err(classify)?).unwrap_or(0),
                headers: Bytes::from(row.try_get::<Vec<u8>, _>("headers").map_err(classify)?),
                body: Bytes::from(row.try_get::<Vec<u8>, _>("body").map_err(classify)?),
                sealed_by: row.try_get("sealed_by").map_err(classify)?,
            }),
            "in_flight" => Claim::InFlight { retry_after: RETRY_AFTER },
            "mismatch" => Claim::Mismatch,
            _ => Claim::Unknown,
        })
    }

    async fn savepoint(&mut self) -> Result<(), Error> {
        sqlx::query("SAVEPOINT semel_effect").execute(&mut *self).await.map(drop).map_err(classify)
    }

    async fn rollback_to_savepoint(&mut self) -> Result<(), Error> {
        sqlx::query("ROLLBACK TO SAVEPOINT semel_effect").execute(&mut *self).await.map(drop).map_err(classify)
    }

    async fn emit(&mut self, events: &[Event]) -> Result<(), Error> {
        if events.is_empty() {
            return Ok(());
        }
        let emission = Emission::new(None, events)?;
        sqlx::query(EMIT)
            .bind(None::<Uuid>)
            .bind(emission.topics.0)
            .bind(emission.ordering_keys.0)
            .bind(emission.event_types.0)
            .bind(emission.content_types.0)
            .bind(emission.payloads.0)
            .bind(emission.headers.0)
            .bind(emission.traceparents.0)
            .bind(emission.tracestates.0)
            .fetch_one(&mut *self)
            .await
            .map(drop)
            .map_err(classify)
    }

    async fn complete(&mut self, ask: &Ask, completion: &Completion) -> Result<(), Error> {
        let stored = &completion.stored;
        sqlx::query(JOIN_COMPLETE)
            .bind(ask.scope.tenant())
            .bind(ask.scope.operation())
            .bind(ask.key.as_str())
            .bind(ask.fingerprint.as_bytes().as_slice())
            .bind(stored.execution.as_uuid())
            .bind(i32::from(stored.status))
            .bind(stored.headers.as_ref())
            .bind(stored.body.as_ref())
            .bind(crate::store::interval_ms(completion.retain))
            .bind(completion.failed)
            .bind(stored.sealed_by.as_deref())
            .fetch_one(&mut *self)
            .await
            .map(drop)
            .map_err(classify)
    }
}

impl JoinInbox<Postgres> for PgConnection {
    async fn accept(&mut self, consumer: &Consumer, deliveries: &[Delivery]) -> Result<Vec<Accepted>, Error> {
        accept::join(self, consumer, deliveries).await
    }
}

impl Inside for PgConnection {
    async fn firsts(&mut self, question: &Question<'_>) -> Result<Vec<bool>, Error> {
        ask(self, question).await?.try_get(0).map_err(classify)
    }

    async fn standings(&mut self, question: &Question<'_>) -> Result<Vec<String>, Error> {
        ask(self, question).await?.try_get(0).map_err(classify)
    }
}

async fn ask(connection: &mut PgConnection, question: &Question<'_>) -> Result<sqlx::postgres::PgRow, Error> {
    let mut query = sqlx::query(question.sql);
    for value in &question.values {
        query = match value {
            Value::Text(value) => query.bind(*value),
            Value::Smallint(value) => query.bind(*value),
            Value::Integer(value) => query.bind(*value),
            Value::Bigint(value) => query.bind(*value),
            Value::Texts(values) => query.bind(&values.0),
            Value::Smallints(values) => query.bind(&values.0),
            Value::Integers(values) => query.bind(&values.0),
            Value::Bigints(values) => query.bind(values),
            Value::Booleans(values) => query.bind(&values.0),
        };
    }
    query.fetch_one(connection).await.map_err(classify)
}

fn execution(row: &sqlx::postgres::PgRow) -> Result<Execution, Error> {
    row.try_get::<Uuid, _>("execution").map(Execution::from).map_err(classify)
}

/// Sorts an error of sqlx by what to do next, as [`crate::error::classify`] does for the other driver.
fn classify(error: sqlx::Error) -> Error {
    let Some(reported) = error.as_database_error() else {
        return match error {
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => {
                Error::Unavailable(error.into())
            }
            other => Error::Statement(other.into()),
        };
    };
    match reported.code().as_deref() {
        Some("SM003") => Error::NotFirst(reported.message().to_owned()),
        Some("SM004") => Error::Raced,
        Some("SM008") => too_many_events(reported.message(), detail(reported)),
        Some("SM011") => ahead(detail(reported)),
        Some("SM012") => Error::Fenced,
        Some("23505") if reported.constraint() == Some("keys_pkey") => Error::Raced,
        Some("40001" | "40P01") => Error::Conflict(error.into()),
        Some("57014" | "25P03" | "25P04") => Error::Deadline,
        Some("3F000" | "42883" | "42P01") if reported.message().contains("semel") => {
            Error::Schema(format!("{}: run `semel migrate`", reported.message()))
        }
        Some("57P01" | "57P02" | "57P03" | "53300" | "25006") => Error::Unavailable(error.into()),
        _ => Error::Statement(error.into()),
    }
}

fn detail(reported: &dyn sqlx::error::DatabaseError) -> Option<&str> {
    reported.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().and_then(|error| error.detail())
}
