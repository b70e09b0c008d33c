//! durare, on PostgreSQL or on SQLite.
//!
//! Each step is a transaction that commits its line and its record together, which is the strongest that durare has,
//! and takes fewer commits than its plain steps.

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use durare::{DurableContext, DurableEngine, PostgresProvider, SqliteProvider, StateProvider, WorkflowOptions, params};
use peers::order::{Order, Receipt, STEPS};
use peers::task::Task;
use sqlx_of_durare::postgres::PgPoolOptions;
use sqlx_of_durare::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use uuid::Uuid;

const POSTGRES_LINE: &str = include_str!("../../sql/postgres/line.sql");
const SQLITE_LINE: &str = include_str!("../../sql/sqlite/line.sql");

/// How many connections durare opens to a SQLite file by itself.
const SQLITE_CONNECTIONS: u32 = 5;

/// The allocator of the benchmark.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> Result<()> {
    let task = Task::read()?;
    let (provider, line) = if task.url.starts_with("sqlite:") {
        (sqlite(&task).await?, SQLITE_LINE)
    } else {
        (postgres(&task).await?, POSTGRES_LINE)
    };
    let mut builder = DurableEngine::builder(provider);
    builder.app_version("1");
    builder.register("order", move |ctx: DurableContext, order: Order| complete(ctx, order, line));
    let engine = Arc::new(builder.build().await?);
    engine.launch().await?;
    let asked = Arc::clone(&engine);
    let operate = move |order: Order| {
        let engine = Arc::clone(&asked);
        async move {
            let options = WorkflowOptions::with_id(Uuid::now_v7().to_string());
            let receipt = engine.start::<Order, Receipt>("order", order, options).await?.await?;
            ensure!(receipt == order.receipt(), "an order ended with another's receipt");
            anyhow::Ok(())
        }
    };
    task.drive(operate).await?;
    engine.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// A pool of the size that was asked for. A connection is not tested each time that it is taken, as those of the other
/// contestants are not.
async fn postgres(task: &Task) -> Result<Arc<dyn StateProvider>> {
    let pool =
        PgPoolOptions::new().max_connections(task.connections).test_before_acquire(false).connect(&task.url).await?;
    let synchronous: String = sqlx_of_durare::query_scalar("SHOW synchronous_commit").fetch_one(&pool).await?;
    ensure!(synchronous == "on", "commits are not durable: synchronous_commit is {synchronous}");
    Ok(Arc::new(PostgresProvider::from_pool_with_schema(pool, "dbos")?))
}

/// As durare opens a file itself, save that every commit is synced: by itself it leaves that to the checkpoints, and
/// what was committed last may be gone after the machine has crashed.
async fn sqlite(task: &Task) -> Result<Arc<dyn StateProvider>> {
    let options = SqliteConnectOptions::from_str(&task.url)?
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(5));
    let pool = SqlitePoolOptions::new()
        .max_connections(SQLITE_CONNECTIONS)
        .test_before_acquire(false)
        .connect_with(options)
        .await?;
    let synchronous: i64 = sqlx_of_durare::query_scalar("PRAGMA synchronous").fetch_one(&pool).await?;
    ensure!(synchronous == 2, "commits are not durable: synchronous is {synchronous}");
    Ok(Arc::new(SqliteProvider::from_pool(pool)))
}

async fn complete(ctx: DurableContext, order: Order, line: &'static str) -> durare::Result<Receipt> {
    for (step, name) in (1..).zip(STEPS) {
        write(&ctx, name, order, step, line).await?;
    }
    Ok(order.receipt())
}

async fn write(ctx: &DurableContext, name: &str, order: Order, step: i64, line: &'static str) -> durare::Result<()> {
    let written = ctx.transaction(name, move |tx| {
        Box::pin(async move {
            tx.execute(line, &params![order.number, step, order.amount]).await?;
            Ok(())
        })
    });
    written.await
}
