//! What operators see of the inbox, and what they may change.

use rusqlite::{Connection, OptionalExtension};
use semel::Error;
use semel::letter::{ConsumerRecord, LetterFilter, LetterId, LetterRecord, LetterState};
use semel::operator::Audit;

use super::letter::{MAX_LISTED, read};
use super::row;
use crate::error::classify;
use crate::operator::check_audit;
use crate::store::Sqlite;

const CONSUMERS: &str = include_str!("../sql/inbox/consumers.sql");
const LETTERS: &str = include_str!("../sql/inbox/letters.sql");
const COUNT_DEAD: &str = include_str!("../sql/inbox/count_dead.sql");
const DEAD: &str = include_str!("../sql/inbox/dead.sql");
const REDRIVE_LETTER: &str = include_str!("../sql/inbox/redrive_letter.sql");
const LATEST_GENERATION: &str = include_str!("../sql/inbox/latest_generation.sql");
const REPLAY_CONSUMER: &str = include_str!("../sql/inbox/replay_consumer.sql");
const AUDIT: &str = include_str!("../sql/inbox/audit.sql");

/// How many letters one turn redrives (I12).
const REDRIVE_BATCH: u32 = 1_000;
/// The last generation that a consumer may have. The database checks the same bound (I12).
const LAST_GENERATION: u32 = i32::MAX.unsigned_abs();

impl Sqlite {
    pub(super) async fn read_consumers(&self, name: Option<&str>) -> Result<Vec<ConsumerRecord>, Error> {
        let name = name.map(str::to_owned);
        self.read_aside(move |connection| {
            let mut select = connection.prepare_cached(CONSUMERS).map_err(classify)?;
            let found = select.query_map((name,), row::consumer).map_err(classify)?;
            found.collect::<rusqlite::Result<_>>().map_err(classify)
        })
        .await
    }

    pub(super) async fn list_letters(&self, filter: &LetterFilter, limit: u32) -> Result<Vec<LetterRecord>, Error> {
        let (first, last) = ids_of(filter);
        let (consumer, state) = (filter.consumer.clone(), filter.state.map(LetterState::as_str));
        let limit = limit.min(MAX_LISTED);
        self.read_aside(move |connection| read(connection, LETTERS, (first, last, consumer, state, limit))).await
    }

    /// In turns of bounded length, each with the audit rows of the letters that it changes. A letter that fails again
    /// meanwhile is not redriven twice.
    pub(super) async fn redrive_dead(&self, filter: &LetterFilter, audit: &Audit, dry_run: bool) -> Result<u64, Error> {
        check_audit(audit)?;
        if filter.state.is_some_and(|state| state != LetterState::Dead) {
            return Ok(0);
        }
        let (mut first, last) = ids_of(filter);
        let consumer = filter.consumer.clone();
        let counting = self.read_aside(move |connection| {
            let mut count = connection.prepare_cached(COUNT_DEAD).map_err(classify)?;
            count.query_row((first, last, consumer), |row| Ok((row.get(0)?, row.get(1)?))).map_err(classify)
        });
        let (waiting, newest): (i64, Option<i64>) = counting.await?;
        let Some(newest) = newest.filter(|_| !dry_run) else { return Ok(waiting.unsigned_abs()) };
        let mut redriven = 0;
        loop {
            let turn = self.transact(None, |connection| {
                redrive(connection, (first, newest), filter.consumer.as_deref(), audit, self.now_ms())
            });
            let (letters, Some(upto)) = turn.await? else { return Ok(redriven) };
            redriven += letters;
            first = upto.saturating_add(1);
        }
    }

    /// The generation begins and the audit row comes in one commit. Those who consume in the old one go on with it
    /// until they look, and what they record there says nothing about the new one.
    pub(super) async fn begin_generation(
        &self,
        name: &str,
        audit: &Audit,
        dry_run: bool,
    ) -> Result<Option<u32>, Error> {
        check_audit(audit)?;
        if dry_run {
            let next = self.readers().read(|connection| next_generation(connection, name)).await?;
            return Ok(next.map(|(_, generation)| generation));
        }
        self.transact(None, |connection| {
            let Some((consumer, generation)) = next_generation(connection, name)? else { return Ok(None) };
            let mut replay = connection.prepare_cached(REPLAY_CONSUMER).map_err(classify)?;
            replay.execute((consumer, generation)).map_err(classify)?;
            note(connection, audit, "inbox replay", name, None, self.now_ms())?;
            Ok(Some(generation))
        })
        .await
    }
}

/// The first and the last id that a filter lets pass.
fn ids_of(filter: &LetterFilter) -> (i64, i64) {
    filter.id.map_or((i64::MIN, i64::MAX), |LetterId(id)| (id, id))
}

/// Redrives a turn's worth of dead letters, and says how many and up to which id; none if there are no more.
fn redrive(
    connection: &Connection,
    (first, last): (i64, i64),
    consumer: Option<&str>,
    audit: &Audit,
    now_ms: i64,
) -> Result<(u64, Option<i64>), Error> {
    let mut dead = connection.prepare_cached(DEAD).map_err(classify)?;
    let dead = dead
        .query_map((first, last, consumer, REDRIVE_BATCH), |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(Iterator::collect::<rusqlite::Result<Vec<(i64, String)>>>)
        .map_err(classify)?;
    let mut redrive = connection.prepare_cached(REDRIVE_LETTER).map_err(classify)?;
    for (id, consumer) in &dead {
        redrive.execute((id, now_ms)).map_err(classify)?;
        note(connection, audit, "inbox redrive", consumer, Some(LetterId(*id)), now_ms)?;
    }
    Ok((dead.len() as u64, dead.last().map(|(id, _)| *id)))
}

/// A consumer's number and the generation after all that it has been in.
fn next_generation(connection: &Connection, name: &str) -> Result<Option<(i64, u32)>, Error> {
    let mut latest = connection.prepare_cached(LATEST_GENERATION).map_err(classify)?;
    let found = latest.query_row((name,), |row| Ok((row.get(0)?, row.get::<_, u32>(1)?)));
    match found.optional().map_err(classify)? {
        Some((_, LAST_GENERATION..)) => {
            Err(Error::Settings(format!("consumer {name:?} is in its last generation, {LAST_GENERATION}")))
        }
        found => Ok(found.map(|(consumer, generation)| (consumer, generation + 1))),
    }
}

/// Leaves who changed something of a consumer, and why, in the commit that changes it.
fn note(
    connection: &Connection,
    audit: &Audit,
    action: &str,
    consumer: &str,
    letter: Option<LetterId>,
    now_ms: i64,
) -> Result<(), Error> {
    let mut insert = connection.prepare_cached(AUDIT).map_err(classify)?;
    let letter = letter.map(|LetterId(id)| id);
    let row = (now_ms, &audit.actor, action, consumer, letter, &audit.reason);
    insert.execute(row).map(drop).map_err(classify)
}
