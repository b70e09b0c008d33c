//! Messages that were set aside, and those that are tried again.

use rusqlite::{Connection, OptionalExtension, Params, params};
use semel::Error;
use semel::inbox::{Accepted, Consumer, Delivery};
use semel::letter::{Letter, LetterId, LetterRecord, LetterState};

use super::accept::Proofs;
use super::row;
use crate::error::classify;
use crate::store::Sqlite;
use crate::tx::Tx;

const DEAD_LETTER: &str = include_str!("../sql/inbox/dead_letter.sql");
const REDRIVEN: &str = include_str!("../sql/inbox/redriven.sql");
const TAKE_LETTER: &str = include_str!("../sql/inbox/take_letter.sql");
const RENEW_ID: &str = include_str!("../sql/inbox/renew_id.sql");
const BURY: &str = include_str!("../sql/inbox/bury.sql");

/// The most letters that are read at once, and the bytes of payloads after which no more are (I12).
pub(super) const MAX_LISTED: u32 = 10_000;
const MAX_READ_BYTES: usize = 64 * 1024 * 1024;

/// What became of a letter that was to be taken.
enum Taken {
    /// Its effect may run, and it counts as applied if that commits.
    Applies,
    /// Its entity is past it, or not there yet: its row says so if it commits, and nothing is to run.
    Settled,
    /// It is not redriven.
    No,
}

impl Sqlite {
    /// Proof and letter are one commit, which has returned when this does. The version stays with the letter: its
    /// entity moves only when a version applies.
    pub(super) async fn set_aside(
        &self,
        consumer: &Consumer,
        delivery: &Delivery,
        letter: &Letter,
    ) -> Result<bool, Error> {
        row::require_size(letter)?;
        let unversioned = Delivery { version: None, ..delivery.clone() };
        let (mut tx, accepted) = self.accept_settled(consumer, &[unversioned]).await?;
        if accepted != [Accepted::First] {
            return Ok(false);
        }
        let now_ms = self.now_ms();
        tx.run_checked(|connection| insert(connection, consumer, delivery, letter, now_ms)).await?;
        tx.commit().await?;
        Ok(true)
    }

    pub(super) async fn read_redriven(&self, consumer: &str, limit: u32) -> Result<Vec<LetterRecord>, Error> {
        let (consumer, limit) = (consumer.to_owned(), limit.min(MAX_LISTED));
        self.read_aside(move |connection| read(connection, REDRIVEN, (consumer, limit))).await
    }

    /// The turn is the lock: whoever takes the same letter has a later one, and finds it applied if this one's
    /// transaction was kept, or still redriven if it was rolled back (I6).
    ///
    /// A letter that carries a version moves its entity as its message would have. If the entity is past it, it counts
    /// as applied without an effect; if the version before it has not been applied, it is dead again.
    pub(super) async fn take_redriven(&self, id: LetterId) -> Result<Option<Tx>, Error> {
        let now_ms = self.now_ms();
        let mut tx = Tx::business(self.clone());
        let taking = tx.run_checked(|connection| Ok((take(connection, id, now_ms)?, self.shares_group())));
        match taking.await? {
            (Taken::Applies, _) => Ok(Some(tx)),
            (Taken::Settled, _) => tx.commit().await.map(|()| None),
            // Who applied it may be in the same group, and it is not said to be over before that is durable.
            (Taken::No, true) => tx.await_group().await.map(|()| None),
            (Taken::No, false) => Ok(None),
        }
    }

    /// A letter that is not redriven stays as it is: somebody else has seen to it.
    pub(super) async fn bury_redriven(&self, id: LetterId, cause: &str) -> Result<(), Error> {
        let now_ms = self.now_ms();
        self.transact(None, |connection| bury(connection, id, cause, LetterState::Redriven, now_ms)).await
    }
}

fn insert(
    connection: &Connection,
    consumer: &Consumer,
    delivery: &Delivery,
    letter: &Letter,
    now_ms: i64,
) -> Result<(), Error> {
    let Letter { message, cause, attempts } = letter;
    // A place that the database cannot count to is no event's.
    let sequence = message.sequence.as_ref().and_then(|it| Some((it, i64::try_from(it.sequence).ok()?)));
    let offset = message.offset.as_ref();
    let version = delivery.version.as_ref().and_then(|it| Some((it, i64::try_from(it.version).ok()?)));
    let mut insert = connection.prepare_cached(DEAD_LETTER).map_err(classify)?;
    let inserted = insert.execute(params![
        consumer.name(),
        consumer.generation(),
        attempts,
        row::cause(cause),
        now_ms,
        row::text(&message.id),
        row::text(&message.topic),
        row::text(&message.ordering_key),
        row::text(&message.message_type),
        row::text(&message.producer),
        row::text(&message.content_type),
        row::headers_json(&message.headers),
        sequence.map(|(place, _)| row::text(&place.incarnation)),
        sequence.map(|(place, _)| row::text(&place.topic)),
        sequence.map(|(place, _)| place.lane),
        sequence.map(|(_, sequence)| sequence),
        offset.map(|place| row::text(&place.source)),
        offset.map(|place| row::text(&place.topic)),
        offset.map(|place| place.partition),
        offset.map(|place| place.from),
        offset.map(|place| place.offset),
        version.map(|(version, _)| &version.entity),
        version.map(|(_, number)| number),
        version.map(|(version, _)| row::rule_name(version.rule)),
        &message.payload[..],
    ]);
    match inserted.map_err(classify)? {
        1 => Ok(()),
        _ => Err(Error::Statement(format!("consumer {:?} has no number", consumer.name()).into())),
    }
}

fn take(connection: &Connection, id: LetterId, now_ms: i64) -> Result<Taken, Error> {
    let mut take = connection.prepare_cached(TAKE_LETTER).map_err(classify)?;
    let taken = take
        .query_row((id.0, now_ms), |row| Ok((row.get(0)?, row.get(1)?, row::version(row)?, row.get::<_, String>(5)?)));
    let Some((consumer, generation, version, message_id)) = taken.optional().map_err(classify)? else {
        return Ok(Taken::No);
    };
    // Its id is as young as its effect (I9). A message of another identity has none.
    let mut renew = connection.prepare_cached(RENEW_ID).map_err(classify)?;
    renew.execute((consumer, generation, message_id, now_ms)).map_err(classify)?;
    let Some(version) = version else { return Ok(Taken::Applies) };
    Ok(match (Proofs { connection, consumer, generation }).accept_version(&version)? {
        Accepted::First => Taken::Applies,
        Accepted::Stale | Accepted::Duplicate => Taken::Settled,
        Accepted::Early => {
            bury(connection, id, "the version before it has not been applied", LetterState::Applied, now_ms)?;
            Taken::Settled
        }
    })
}

fn bury(connection: &Connection, id: LetterId, cause: &str, from: LetterState, now_ms: i64) -> Result<(), Error> {
    let mut bury = connection.prepare_cached(BURY).map_err(classify)?;
    bury.execute((id.0, row::cause(cause), now_ms, from.as_str())).map(drop).map_err(classify)
}

/// Reads letters until their payloads take more than may be held at once. What comes behind is for another time.
pub(super) fn read(connection: &Connection, sql: &str, params: impl Params) -> Result<Vec<LetterRecord>, Error> {
    let mut select = connection.prepare_cached(sql).map_err(classify)?;
    let mut rows = select.query(params).map_err(classify)?;
    let (mut letters, mut bytes) = (Vec::new(), 0);
    while bytes <= MAX_READ_BYTES
        && let Some(row) = rows.next().map_err(classify)?
    {
        let letter = row::letter(row).map_err(classify)?;
        bytes += letter.letter.message.payload.len();
        letters.push(letter);
    }
    Ok(letters)
}
