//! Messages that were set aside, and those that are tried again.

use std::sync::Arc;

use semel::inbox::{Accepted, Consumer, Delivery};
use semel::letter::{Letter, LetterId, LetterRecord};
use semel::{Error, Execution, Tx as _};

use super::accept;
use super::row::{self, Place, Record};
use crate::error::classify;
use crate::parameter::Parameter;
use crate::store::Postgres;
use crate::tx::{Holds, Tx};

const SET_ASIDE: &str = include_str!("../sql/letters_set_aside.sql");
const REDRIVEN: &str = include_str!("../sql/letters_redriven.sql");
const READ: &str = include_str!("../sql/letters_read.sql");
const TAKE: &str = "SELECT semel.take_letter($1)";
const BURY: &str = "SELECT semel.bury_letter($1, $2)";

/// The most letters that are read at once (I12).
pub(super) const MAX_LISTED: u32 = 10_000;

/// Accepts a message and keeps it as a letter, in one commit. The version that it carries is not asked about, so that
/// its entity stays where it is; it is kept with the letter.
pub(super) async fn set_aside(
    store: &Postgres,
    consumer: &Consumer,
    delivery: &Delivery,
    letter: &Letter,
) -> Result<bool, Error> {
    row::require_size(letter)?;
    let unversioned = Delivery { version: None, ..delivery.clone() };
    let (mut tx, accepted) = accept::begin(store, consumer, std::slice::from_ref(&unversioned)).await?;
    if accepted != [Accepted::First] {
        tx.rollback().await;
        return Ok(false);
    }
    if let Err(error) = insert(&mut tx, consumer, delivery, letter).await {
        tx.rollback().await;
        return Err(error);
    }
    tx.commit().await?;
    Ok(true)
}

async fn insert(tx: &mut Tx, consumer: &Consumer, delivery: &Delivery, letter: &Letter) -> Result<(), Error> {
    let message = &letter.message;
    let generation = i32::try_from(consumer.generation()).unwrap_or(i32::MAX);
    let [id, topic, ordering_key] = [&message.id, &message.topic, &message.ordering_key].map(|text| row::text(text));
    let [kind, producer, content] =
        [&message.message_type, &message.producer, &message.content_type].map(|text| row::text(text));
    let (payload, headers) = (message.payload.as_ref(), row::headers_json(&message.headers));
    let (cause, attempts) = (row::cause(&letter.cause), i32::try_from(letter.attempts).unwrap_or(i32::MAX));
    let place = message.sequence.as_ref().and_then(Place::of);
    let record = message.offset.as_ref().map(Record::of);
    let version = row::version(delivery);
    let params: [&dyn Parameter; 24] = [
        &consumer.name(),
        &generation,
        &id,
        &topic,
        &payload,
        &cause,
        &attempts,
        &ordering_key,
        &kind,
        &producer,
        &content,
        &headers,
        &place.as_ref().map(|place| place.incarnation.as_str()),
        &place.as_ref().map(|place| place.topic.as_str()),
        &place.as_ref().map(|place| place.lane),
        &place.as_ref().map(|place| place.sequence),
        &record.as_ref().map(|record| record.source.as_str()),
        &record.as_ref().map(|record| record.topic.as_str()),
        &record.as_ref().map(|record| record.partition),
        &record.as_ref().map(|record| record.from),
        &record.as_ref().map(|record| record.offset),
        &version.map(|(entity, ..)| entity),
        &version.map(|(_, version, _)| version),
        &version.map(|(.., each)| each),
    ];
    tx.query(SET_ASIDE, &params).await.map(drop)
}

pub(super) async fn redriven(store: &Postgres, consumer: &str, limit: u32) -> Result<Vec<LetterRecord>, Error> {
    read(store, REDRIVEN, &[&consumer, &i64::from(limit.min(MAX_LISTED))]).await
}

/// The letters whose ids this statement returns. Their payloads are read only then, and no more of them than fit.
pub(super) async fn read(store: &Postgres, sql: &str, params: &[&dyn Parameter]) -> Result<Vec<LetterRecord>, Error> {
    let rows = store.query(sql, params).await?;
    let ids: Vec<i64> = rows.iter().map(|row| row.try_get(0).map_err(classify)).collect::<Result<_, _>>()?;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    store.query(READ, &[&ids]).await?.iter().map(row::letter).collect()
}

/// Begins a transaction in which a redriven letter counts as applied. A letter that carries a version obeys its entity:
/// one that the entity is past counts as applied without an effect, and one that comes before its turn is dead again.
pub(super) async fn take(store: &Postgres, id: LetterId) -> Result<Option<Tx>, Error> {
    match take_once(store, id).await {
        // A pooled connection may have died while it was idle, or somebody else has had the letter meanwhile. What is
        // not committed changes nothing, so it is asked once more.
        Err(Error::Unavailable(_) | Error::Conflict(_)) => take_once(store, id).await,
        other => other,
    }
}

async fn take_once(store: &Postgres, id: LetterId) -> Result<Option<Tx>, Error> {
    let (session, rows) = store.begin_with(TAKE, &[&id.0]).await?;
    let tx = Tx::new(Arc::clone(&store.shared), session, Execution::mint(), Holds::Nothing);
    let [row] = rows.as_slice() else {
        return Err(Error::Statement(format!("no row came back from {TAKE}").into()));
    };
    match row.try_get(0).map_err(classify)? {
        "taken" => return Ok(Some(tx)),
        "stale" => tx.commit().await?,
        "early" => {
            tx.rollback().await;
            bury(store, id, "the version before it has not been applied").await?;
        }
        _ => tx.rollback().await,
    }
    Ok(None)
}

pub(super) async fn bury(store: &Postgres, id: LetterId, cause: &str) -> Result<(), Error> {
    store.call(BURY, &[&id.0, &row::cause(cause)]).await.map(drop)
}
