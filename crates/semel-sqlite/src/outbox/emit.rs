//! Writing events, and hearing that they were committed.

use std::collections::HashSet;
use std::sync::Mutex;

use rusqlite::{Connection, OptionalExtension};
use semel::event::EventId;
use semel::outbox::{MAX_EVENTS, MAX_ORDERING_KEYS};
use semel::sink::Lane;
use semel::{Error, Event, Execution};
use tokio::sync::watch;

use super::row;
use crate::error::{classify, lock};

const EMIT: &str = include_str!("../sql/outbox/emit.sql");
const JOINED_RUN: &str = include_str!("../sql/outbox/joined_run.sql");

/// What a transaction has emitted and will write at its completion.
#[derive(Debug, Default)]
pub(crate) struct Emitted {
    events: Vec<Event>,
    /// How many there were. Past the limit nothing is kept of them: the completion fails anyway (I12).
    count: usize,
}

impl Emitted {
    pub(crate) fn push(&mut self, event: Event) {
        self.count += 1;
        if self.count <= MAX_EVENTS {
            self.events.push(event);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Writes them as the events of a run, inside a turn: they go with it, whatever becomes of it.
    pub(crate) fn write(&self, connection: &Connection, execution: Execution, now_ms: i64) -> Result<(), Error> {
        check(self.count, &self.events)?;
        write(connection, execution, 0, &self.events, now_ms)
    }
}

/// Refuses more events, or more ordering keys, than one transaction may emit (I12).
fn check(count: usize, events: &[Event]) -> Result<(), Error> {
    if count > MAX_EVENTS {
        return Err(Error::TooManyEvents { what: format!("{count} events"), limit: MAX_EVENTS });
    }
    if events.len() > MAX_ORDERING_KEYS {
        let keys: HashSet<&str> = events.iter().map(|event| event.ordering_key.as_str()).collect();
        if keys.len() > MAX_ORDERING_KEYS {
            let what = format!("to {} ordering keys", keys.len());
            return Err(Error::TooManyEvents { what, limit: MAX_ORDERING_KEYS });
        }
    }
    Ok(())
}

fn write(
    connection: &Connection,
    execution: Execution,
    first_ordinal: u32,
    events: &[Event],
    now_ms: i64,
) -> Result<(), Error> {
    let mut insert = connection.prepare_cached(EMIT).map_err(classify)?;
    for (ordinal, event) in (first_ordinal..).zip(events) {
        let id = EventId::derive(execution, ordinal).as_uuid();
        insert
            .execute((
                id.as_bytes(),
                Lane::of(&event.ordering_key).0,
                now_ms,
                &event.topic,
                &event.ordering_key,
                &event.event_type,
                &event.content_type,
                row::headers_to_json(&event.headers),
                &event.traceparent,
                &event.tracestate,
                &event.payload[..],
            ))
            .map_err(classify)?;
    }
    Ok(())
}

/// Notes which run a transaction of the caller's is, for the events that it emits. The note lies in a temporary table:
/// it takes no lock of the file, and a rollback takes it along.
pub(crate) fn note_joined_run(connection: &Connection, execution: Execution) -> Result<(), Error> {
    forget_joined_run(connection)?;
    let mut insert = connection.prepare_cached("INSERT INTO temp.semel_joined_run VALUES (?1, 0)").map_err(classify)?;
    insert.execute((execution.as_uuid().as_bytes(),)).map(drop).map_err(classify)
}

/// Ends what [`note_joined_run`] began: what is emitted now belongs to no key.
pub(crate) fn forget_joined_run(connection: &Connection) -> Result<(), Error> {
    connection.prepare_cached(JOINED_RUN).and_then(|mut create| create.execute(())).map_err(classify)?;
    let mut delete = connection.prepare_cached("DELETE FROM temp.semel_joined_run").map_err(classify)?;
    delete.execute(()).map(drop).map_err(classify)
}

/// Writes events in a transaction that the caller owns: as those of the run that was noted, or as those of a run that
/// nobody has a key for.
///
/// A connection whose COMMIT does not reach the disk is refused: its events could be published and then vanish with a
/// power failure (I4).
pub(crate) fn write_joined(connection: &Connection, events: &[Event], now_ms: i64) -> Result<(), Error> {
    let synchronous: i64 = connection.pragma_query_value(None, "synchronous", |row| row.get(0)).map_err(classify)?;
    if synchronous < 2 {
        return Err(Error::Settings(
            "this connection commits without waiting for the disk, so its events could be published and then vanish; \
             set PRAGMA synchronous = FULL before the transaction begins"
                .to_owned(),
        ));
    }
    connection.prepare_cached(JOINED_RUN).and_then(|mut create| create.execute(())).map_err(classify)?;
    let noted = connection
        .prepare_cached("SELECT execution, next_ordinal FROM temp.semel_joined_run")
        .and_then(|mut select| {
            select.query_row((), |row| Ok((crate::probe::execution(row, 0)?, row.get(1)?))).optional()
        })
        .map_err(classify)?;
    let Some((execution, next)) = noted else {
        check(events.len(), events)?;
        return write(connection, Execution::mint(), 0, events, now_ms);
    };
    let next: u32 = next;
    check(usize::try_from(next).unwrap_or(usize::MAX).saturating_add(events.len()), events)?;
    write(connection, execution, next, events, now_ms)?;
    let mut update = connection
        .prepare_cached("UPDATE temp.semel_joined_run SET next_ordinal = next_ordinal + ?1")
        .map_err(classify)?;
    let written = i64::try_from(events.len()).unwrap_or(i64::MAX);
    update.execute((written,)).map(drop).map_err(classify)
}

/// Tells one handle of the store that events, or staged jobs, were committed since it asked last. Every clone hears for
/// itself.
#[derive(Debug)]
pub(crate) struct Emissions(Mutex<watch::Receiver<()>>);

impl Emissions {
    pub(crate) fn new(committed: watch::Receiver<()>) -> Emissions {
        Emissions(Mutex::new(committed))
    }

    /// Completes when some were committed since this last did.
    pub(crate) async fn next(&self) {
        let mut committed = lock(&self.0).clone();
        if committed.changed().await.is_err() {
            // The writer is gone, and with it whoever could emit or stage through it.
            std::future::pending::<()>().await;
        }
        *lock(&self.0) = committed;
    }
}

impl Clone for Emissions {
    fn clone(&self) -> Emissions {
        Emissions::new(lock(&self.0).clone())
    }
}
