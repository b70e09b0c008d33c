//! Semel's flow on PostgreSQL.

use std::sync::Arc;

use anyhow::Result;
use semel::flow::{self, Definition};
use semel::{Error, Flow, Flows, Reply, Scope, Semel};
use semel_bench::drive::{Driven, Load, drive};
use semel_postgres::{Deferred, Options, Postgres, Tx};
use tokio::sync::oneshot;

use crate::order::{FLOW, Order, completed};
use crate::reading::{Reading, Watch};

const LINE: &str = include_str!("sql/postgres/line.sql");

/// Runs orders on this database, the first with this number, with a completer beside them as a service has one.
pub(crate) async fn measure(
    url: &str,
    (deferred, connections): (bool, usize),
    first: u64,
    load: Load,
    watch: &Watch,
) -> Result<Driven<Reading>> {
    let store = Postgres::connect(url, Options { pool_size: connections, ..Options::default() }).await?;
    let builder = Flows::builder(Semel::new(store));
    let builder = match deferred {
        true => builder.register(Definition::new(FLOW, later)),
        false => builder.register(Definition::new(FLOW, awaited)),
    };
    let flows = Arc::new(builder.build()?);
    let completer = flows.completer();
    let (stop, stopped) = oneshot::channel::<()>();
    let completing = tokio::spawn(async move {
        let shutdown = async move {
            // It ends when the other half is dropped.
            let _ = stopped.await;
        };
        completer.run(shutdown).await;
    });
    let scope = Scope::new("bench", FLOW)?;
    let operate = move |number: u64| {
        let (flows, order) = (Arc::clone(&flows), Order::numbered(first + number));
        let ask = order.ask(&scope);
        async move { completed(flows.run(FLOW, &ask, &order).await) }
    };
    let driven = drive(load, || watch.read(), operate).await;
    drop(stop);
    completing.await?;
    driven
}

/// Three steps with an awaited statement each.
async fn awaited(flow: Flow<Postgres>, order: Order) -> flow::Result<Reply> {
    flow.commit("reserve", async move |tx: &mut Tx| write(tx, order, 1).await).await?;
    flow.commit("charge", async move |tx: &mut Tx| write(tx, order, 2).await).await?;
    flow.finish(async move |tx: &mut Tx| {
        write(tx, order, 3).await?;
        order.reply()
    })
    .await
}

/// Three steps whose statements travel with their commits.
async fn later(flow: Flow<Postgres>, order: Order) -> flow::Result<Reply> {
    flow.commit("reserve", async move |tx: &mut Tx| defer(tx, order, 1)).await?;
    flow.commit("charge", async move |tx: &mut Tx| defer(tx, order, 2)).await?;
    flow.finish(async move |tx: &mut Tx| {
        defer(tx, order, 3)?;
        order.reply()
    })
    .await
}

async fn write(tx: &mut Tx, order: Order, step: i64) -> Result<(), Error> {
    tx.execute(LINE, &[&order.number, &step, &order.amount]).await?;
    Ok(())
}

fn defer(tx: &mut Tx, order: Order, step: i64) -> Result<(), Error> {
    tx.defer(Deferred::expecting(1, LINE).bind(order.number).bind(step).bind(order.amount));
    Ok(())
}
