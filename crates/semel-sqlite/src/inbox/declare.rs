//! What a consumer says of itself at each start.

use rusqlite::{Connection, OptionalExtension};
use semel::Error;
use semel::inbox::Consumer;
use semel::letter::Declaration;
use semel::source::Recognition;

use super::accept::Proofs;
use crate::error::{classify, millis};
use crate::store::Sqlite;

const DECLARATION: &str = include_str!("../sql/inbox/declaration.sql");
const GENERATION: &str = include_str!("../sql/inbox/generation.sql");
const KINDS_OF_PROOF: &str = include_str!("../sql/inbox/kinds_of_proof.sql");
const DECLARE_CONSUMER: &str = include_str!("../sql/inbox/declare_consumer.sql");

/// The longest retention, a thousand years. The database checks the same bound (I12).
const LONGEST_RETENTION_MS: i64 = 366_000 * 24 * 60 * 60 * 1000;

impl Sqlite {
    /// Registers and declares in one commit. A refusal changes nothing, and is told only when what it goes by is
    /// durable.
    pub(super) async fn declare_consumer(&self, name: &str, declaration: &Declaration) -> Result<Consumer, Error> {
        let consumer = Consumer::new(name).map_err(|invalid| Error::Settings(invalid.to_string()))?;
        let now_ms = self.now_ms();
        self.transact(None, |connection| declare(connection, &consumer, declaration, now_ms)).await?
    }

    /// What is committed.
    pub(super) async fn read_generation(&self, name: &str) -> Result<Option<u32>, Error> {
        self.readers()
            .read(|connection| {
                let mut generation = connection.prepare_cached(GENERATION).map_err(classify)?;
                generation.query_row((name,), |row| row.get(0)).optional().map_err(classify)
            })
            .await
    }
}

/// The consumer in its generation, or why it cannot be what it declares. After an error nothing may be committed.
fn declare(
    connection: &Connection,
    consumer: &Consumer,
    declaration: &Declaration,
    now_ms: i64,
) -> Result<Result<Consumer, Error>, Error> {
    Proofs::register(connection, consumer, now_ms)?;
    let name = consumer.name();
    let mut declared = connection.prepare_cached(DECLARATION).map_err(classify)?;
    let declared = declared.query_row((name,), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let (number, generation, recognition): (i64, u32, Option<String>) = declared.map_err(classify)?;
    let wanted = declaration.recognition.as_str();
    let used = match recognition {
        Some(declared) => vec![declared],
        // Nobody declared it, but somebody may have consumed all the same.
        None => kinds_of_proof(connection, number, generation)?,
    };
    if let Some(other) = used.iter().find(|used| *used != wanted) {
        return Ok(Err(Error::Settings(format!(
            "consumer {name:?} recognises messages by {other} in generation {generation}, and now by {wanted}: proofs \
             of one kind say nothing about the other, so messages could apply twice; recognise them by {other}, or \
             run `semel inbox replay {name}`, which begins a new generation that may be declared anew"
        ))));
    }
    let mut declare = connection.prepare_cached(DECLARE_CONSUMER).map_err(classify)?;
    let retention_ms = millis(declaration.retention).min(LONGEST_RETENTION_MS);
    declare.execute((number, wanted, retention_ms, now_ms)).map_err(classify)?;
    Ok(Ok(consumer.clone().in_generation(generation)))
}

fn kinds_of_proof(connection: &Connection, consumer: i64, generation: u32) -> Result<Vec<String>, Error> {
    let mut kinds = connection.prepare_cached(KINDS_OF_PROOF).map_err(classify)?;
    let kinds = kinds.query_row((consumer, generation), |row| {
        let there =
            [(Recognition::Id, row.get(0)?), (Recognition::Sequence, row.get(1)?), (Recognition::Offset, row.get(2)?)];
        Ok(there.into_iter().filter(|(_, there)| *there).map(|(kind, _)| kind.as_str().to_owned()).collect())
    });
    kinds.map_err(classify)
}
