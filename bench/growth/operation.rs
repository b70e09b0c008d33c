//! The operation: a line in a ledger, under a key that nobody has used.

use anyhow::{Result, bail};
use semel::{Fingerprint, Outcome, Reply, Scope, Semel};
use semel_postgres::{Postgres, Tx};

use crate::case::Keys;

const LINE: &str = include_str!("sql/line.sql");

const AMOUNT: i64 = 42;

/// Whose keys they all are, so that new ones have their place among those that are stored.
pub(crate) fn scope() -> Result<Scope> {
    Ok(Scope::new("bench", "charge")?)
}

/// What everybody asks for.
pub(crate) fn fingerprint() -> Fingerprint {
    Fingerprint::of_bytes(b"charge")
}

/// Runs it once.
pub(crate) async fn once(semel: Semel<Postgres>, keys: Keys, number: u64) -> Result<()> {
    let (scope, key) = (scope()?, keys.fresh()?);
    let account = number.cast_signed();
    let effect = async move |tx: &mut Tx| {
        tx.execute(LINE, &[&account, &AMOUNT]).await?;
        answer(number)
    };
    match semel.once(&scope, &key, &fingerprint(), effect).await? {
        Outcome::Fresh(_) => Ok(()),
        other => bail!("a key that nobody had used was {other:?}"),
    }
}

/// A reply as the fill stores them.
fn answer(number: u64) -> Result<Reply> {
    let body = format!(
        "{{\"id\":\"ch_{number:016}\",\"status\":\"succeeded\",\"amount\":{AMOUNT},\"currency\":\"EUR\",\
         \"description\":\"one of each, to be sent to the usual address\",\"receipt\":\"r_{number:064}\"}}"
    );
    Ok(Reply::new(201, body)?.header("content-type", "application/json")?)
}
