//! The work under a key of Semel's.

use anyhow::{Result, bail};
use semel::{Outcome, Scope, Semel, Tx as _};
use semel_postgres::{Deferred, Postgres, Tx};

use crate::bare::{BALANCE, LEDGER};
use crate::charge::{AMOUNT, Charge};

/// Two awaited statements and so many events.
pub(crate) async fn awaited(semel: Semel<Postgres>, scope: Scope, charge: Charge, events: u32) -> Result<()> {
    let (key, fingerprint) = (charge.key.clone(), charge.fingerprint);
    let effect = async move |tx: &mut Tx| {
        tx.execute(LEDGER, &[&charge.account, &AMOUNT]).await?;
        tx.execute(BALANCE, &[&charge.account, &AMOUNT]).await?;
        for _ in 0..events {
            tx.emit(charge.event()?);
        }
        charge.answer()
    };
    fresh(semel.once(&scope, &key, &fingerprint, effect).await?)
}

/// Two statements and one event that travel with the completion.
pub(crate) async fn deferred(semel: Semel<Postgres>, scope: Scope, charge: Charge) -> Result<()> {
    let (key, fingerprint) = (charge.key.clone(), charge.fingerprint);
    let effect = async move |tx: &mut Tx| {
        tx.defer(Deferred::expecting(1, LEDGER).bind(charge.account).bind(AMOUNT));
        tx.defer(Deferred::expecting(1, BALANCE).bind(charge.account).bind(AMOUNT));
        tx.emit(charge.event()?);
        charge.answer()
    };
    fresh(semel.once(&scope, &key, &fingerprint, effect).await?)
}

fn fresh(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Fresh(_) => Ok(()),
        other => bail!("a key that nobody had used was {other:?}"),
    }
}
