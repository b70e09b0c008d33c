//! What operators see of the inbox, and what they may change.

use semel::Error;
use semel::letter::{ConsumerRecord, LetterFilter, LetterRecord, LetterState};
use semel::operator::Audit;

use super::letter::{MAX_LISTED, read};
use super::row;
use crate::error::classify;
use crate::store::Postgres;

const CONSUMERS: &str = include_str!("../sql/inbox_consumers.sql");
const LETTERS: &str = include_str!("../sql/letters_listed.sql");
const REDRIVE: &str = "SELECT semel.redrive_letters($1, $2, $3, $4, $5)";
const REPLAY: &str = "SELECT semel.replay_consumer($1, $2, $3, $4)";

pub(super) async fn consumers(store: &Postgres, name: Option<&str>) -> Result<Vec<ConsumerRecord>, Error> {
    store.query(CONSUMERS, &[&name, &i64::from(MAX_LISTED)]).await?.iter().map(row::consumer).collect()
}

pub(super) async fn letters(store: &Postgres, filter: &LetterFilter, limit: u32) -> Result<Vec<LetterRecord>, Error> {
    let (consumer, id) = (filter.consumer.as_deref(), filter.id.map(|id| id.0));
    let state = filter.state.map(LetterState::as_str);
    read(store, LETTERS, &[&consumer, &id, &state, &i64::from(limit.min(MAX_LISTED))]).await
}

pub(super) async fn redrive(
    store: &Postgres,
    filter: &LetterFilter,
    audit: &Audit,
    dry_run: bool,
) -> Result<u64, Error> {
    if filter.state.is_some_and(|state| state != LetterState::Dead) {
        // What is to be tried again anyway, and what was applied, is not dead.
        return Ok(0);
    }
    let (consumer, id) = (filter.consumer.as_deref(), filter.id.map(|id| id.0));
    let (actor, reason) = (audit.actor.as_str(), audit.reason.as_str());
    let row = store.call(REDRIVE, &[&consumer, &id, &actor, &reason, &dry_run]).await?;
    Ok(u64::try_from(row.try_get::<_, i64>(0).map_err(classify)?).unwrap_or(0))
}

pub(super) async fn replay(store: &Postgres, name: &str, audit: &Audit, dry_run: bool) -> Result<Option<u32>, Error> {
    let row = store.call(REPLAY, &[&name, &audit.actor.as_str(), &audit.reason.as_str(), &dry_run]).await?;
    Ok(row.try_get::<_, Option<i32>>(0).map_err(classify)?.map(i32::unsigned_abs))
}
