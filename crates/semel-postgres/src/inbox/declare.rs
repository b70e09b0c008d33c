//! What a consumer says of itself at each start.

use semel::letter::Declaration;
use semel::{Consumer, Error};

use super::reap::LONGEST;
use crate::error::classify;
use crate::store::{Postgres, interval_ms};

const DECLARE: &str = include_str!("../sql/inbox_declare.sql");

const GENERATION: &str = "SELECT generation::integer FROM semel.consumers WHERE name = $1::text";

/// What `semel.declare_consumer` raises if the generation recognises messages by something else.
const OTHERWISE: &str = "SM013";

pub(super) async fn declare(store: &Postgres, name: &str, declaration: &Declaration) -> Result<Consumer, Error> {
    let consumer = Consumer::new(name).map_err(|invalid| Error::Settings(invalid.to_string()))?;
    let by = declaration.recognition.as_str();
    let retention_ms = interval_ms(declaration.retention.min(LONGEST));
    let row = store.call(DECLARE, &[&name, &by, &retention_ms]).await.map_err(advised)?;
    let generation: i32 = row.try_get(0).map_err(classify)?;
    Ok(consumer.in_generation(generation.unsigned_abs()))
}

pub(super) async fn generation(store: &Postgres, name: &str) -> Result<Option<u32>, Error> {
    let rows = store.query(GENERATION, &[&name]).await?;
    let generation = rows.first().map(|row| row.try_get::<_, i32>(0).map_err(classify)).transpose()?;
    Ok(generation.map(i32::unsigned_abs))
}

/// The database says what to do about a consumer that was declared otherwise.
fn advised(error: Error) -> Error {
    let Error::Statement(source) = &error else { return error };
    let reported = source.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::as_db_error);
    match reported {
        Some(reported) if reported.code().code() == OTHERWISE => {
            Error::Settings(format!("{}. {}", reported.message(), reported.hint().unwrap_or_default()))
        }
        _ => error,
    }
}
