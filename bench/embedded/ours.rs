//! The work under a key of Semel's.

use anyhow::{Result, bail};
use semel::{Outcome, Scope, Semel, Tx as _};
use semel_sqlite::{Deferred, Options, Sqlite, Tx};

use crate::by_hand::{BALANCE, LEDGER};
use crate::charge::{AMOUNT, Charge};
use crate::file::File;

/// Semel on a file.
#[derive(Debug)]
pub(crate) struct Ours {
    semel: Semel<Sqlite>,
    scope: Scope,
}

impl Ours {
    pub(crate) async fn open(file: &File, options: Options) -> Result<Ours> {
        let store = Sqlite::open(file.path(), options).await?;
        Ok(Ours { semel: Semel::new(store), scope: Scope::new("bench", "charge")? })
    }

    /// Two awaited statements and one event.
    pub(crate) async fn awaited(&self, charge: Charge) -> Result<()> {
        let (key, fingerprint) = (charge.key.clone(), charge.fingerprint);
        let effect = async move |tx: &mut Tx| {
            tx.execute(LEDGER, (charge.account, AMOUNT)).await?;
            tx.execute(BALANCE, (charge.account, AMOUNT)).await?;
            tx.emit(charge.event()?);
            charge.answer()
        };
        fresh(self.semel.once(&self.scope, &key, &fingerprint, effect).await?)
    }

    /// Two statements and one event that run at the completion.
    pub(crate) async fn deferred(&self, charge: Charge) -> Result<()> {
        let (key, fingerprint) = (charge.key.clone(), charge.fingerprint);
        let effect = async move |tx: &mut Tx| {
            tx.defer(Deferred::expecting(1, LEDGER).bind(charge.account).bind(AMOUNT));
            tx.defer(Deferred::expecting(1, BALANCE).bind(charge.account).bind(AMOUNT));
            tx.emit(charge.event()?);
            charge.answer()
        };
        fresh(self.semel.once(&self.scope, &key, &fingerprint, effect).await?)
    }

    pub(crate) fn commits(&self) -> u64 {
        self.semel.store().commits()
    }
}

fn fresh(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Fresh(_) => Ok(()),
        other => bail!("a key that nobody had used was {other:?}"),
    }
}
