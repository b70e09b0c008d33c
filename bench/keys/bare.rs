//! The work without Semel: alone, and with keys and outbox as articles write them. All statements are prepared once per
//! connection, and connections come from the same pool as Semel's.

use anyhow::{Result, bail};
use semel_postgres::Postgres;
use semel_postgres::tokio_postgres::types::{ToSql, Type};

use crate::charge::{AMOUNT, Charge};

pub(crate) const LEDGER: &str = include_str!("sql/ledger.sql");
pub(crate) const BALANCE: &str = include_str!("sql/balance.sql");
const CLAIM: &str = include_str!("sql/by_hand_claim.sql");
const EMIT: &str = include_str!("sql/by_hand_emit.sql");
const COMPLETE: &str = include_str!("sql/by_hand_complete.sql");
const ONE_CALL: &str = include_str!("sql/one_call.sql");

/// As people write it.
pub(crate) async fn awaited(store: Postgres, charge: Charge) -> Result<()> {
    let client = store.client().await?;
    let (ledger, balance) = (client.prepare_cached(LEDGER).await?, client.prepare_cached(BALANCE).await?);
    client.batch_execute("BEGIN").await?;
    client.execute(&ledger, &[&charge.account, &AMOUNT]).await?;
    client.execute(&balance, &[&charge.account, &AMOUNT]).await?;
    client.batch_execute("COMMIT").await?;
    Ok(())
}

/// The same with statements that have no names, as a pooler in transaction mode wants them.
pub(crate) async fn unnamed(store: Postgres, charge: Charge) -> Result<()> {
    let client = store.client().await?;
    let params: [(&(dyn ToSql + Sync), Type); 2] = [(&charge.account, Type::INT8), (&AMOUNT, Type::INT8)];
    client.batch_execute("BEGIN").await?;
    client.execute_typed(LEDGER, &params).await?;
    client.execute_typed(BALANCE, &params).await?;
    client.batch_execute("COMMIT").await?;
    Ok(())
}

/// Everything in one round trip: what the server and the wire allow.
pub(crate) async fn pipelined(store: Postgres, charge: Charge) -> Result<()> {
    let client = store.client().await?;
    let (ledger, balance) = (client.prepare_cached(LEDGER).await?, client.prepare_cached(BALANCE).await?);
    let params: [&(dyn ToSql + Sync); 2] = [&charge.account, &AMOUNT];
    // The driver sends each when it is first polled, which is in this order, and waits for none before.
    futures_util::try_join!(
        client.batch_execute("BEGIN"),
        client.execute(&ledger, &params),
        client.execute(&balance, &params),
        client.batch_execute("COMMIT"),
    )?;
    Ok(())
}

/// Insert the key, do the work, insert into the outbox, update the key.
pub(crate) async fn by_hand(store: Postgres, charge: Charge) -> Result<()> {
    let client = store.client().await?;
    let (claim, complete) = (client.prepare_cached(CLAIM).await?, client.prepare_cached(COMPLETE).await?);
    let (ledger, balance) = (client.prepare_cached(LEDGER).await?, client.prepare_cached(BALANCE).await?);
    let emit = client.prepare_cached(EMIT).await?;
    let (key, fingerprint) = (charge.key.as_str(), charge.fingerprint.as_bytes().as_slice());
    client.batch_execute("BEGIN").await?;
    if client.execute(&claim, &[&key, &fingerprint]).await? != 1 {
        bail!("a key that nobody had used was taken");
    }
    client.execute(&ledger, &[&charge.account, &AMOUNT]).await?;
    client.execute(&balance, &[&charge.account, &AMOUNT]).await?;
    client.execute(&emit, &[&charge.ordering_key(), &&charge.payload[..]]).await?;
    client.execute(&complete, &[&key, &&charge.reply[..]]).await?;
    client.batch_execute("COMMIT").await?;
    Ok(())
}

/// Semel's SQL functions, in a function of the service.
pub(crate) async fn one_call(store: Postgres, charge: Charge) -> Result<()> {
    let client = store.client().await?;
    let call = client.prepare_cached(ONE_CALL).await?;
    let (key, fingerprint) = (charge.key.as_str(), charge.fingerprint.as_bytes().as_slice());
    let (payload, reply) = (&charge.payload[..], &charge.reply[..]);
    let params: [&(dyn ToSql + Sync); 7] =
        [&key, &fingerprint, &charge.account, &AMOUNT, &charge.ordering_key(), &payload, &reply];
    let outcome: String = client.query_one(&call, &params).await?.try_get(0)?;
    if outcome != "fresh" {
        bail!("a key that nobody had used was {outcome}");
    }
    Ok(())
}
