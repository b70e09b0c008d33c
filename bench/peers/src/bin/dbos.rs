//! DBOS for Rust, on PostgreSQL.
//!
//! It has no transactional step: a step runs, commits what it commits by itself, and is recorded afterwards. So the
//! line of a step is a commit of the service's own, on a pool of the service's own. DBOS's pool cannot be configured
//! but for its size: it asks the server whether a connection still lives each time that it takes one, which is a round
//! trip that the other contestants do not have.

use anyhow::{Result, ensure};
use dbos::{Config, DBOS, RunOptions};
use peers::order::{Order, Receipt, STEPS};
use peers::task::Task;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use uuid::Uuid;

const LINE: &str = include_str!("../../../flows/sql/postgres/line.sql");

/// The allocator of the benchmark.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What a step may fail with.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
#[error("{0}")]
struct Failed(String);

#[tokio::main]
async fn main() -> Result<()> {
    let task = Task::read()?;
    let clients = u32::try_from(task.clients)?;
    // A connection of this pool is not tested each time that it is taken.
    let pool = PgPoolOptions::new().max_connections(clients).test_before_acquire(false).connect(&task.url).await?;
    let config = Config {
        max_connections: task.connections,
        app_version: Some("1".to_owned()),
        ..Config::new("semel-bench", task.url.as_str())
    };
    let dbos = DBOS::new(config);
    let flow = dbos.register_workflow("order", move |order: Order| complete(pool.clone(), order))?;
    dbos.launch().await?;
    let operate = move |order: Order| {
        let flow = flow.clone();
        async move {
            let id = Uuid::now_v7().to_string();
            let options = RunOptions { workflow_id: Some(&id), ..RunOptions::default() };
            let receipt = flow.run_with(order, options).await?;
            ensure!(receipt == order.receipt(), "an order ended with another's receipt");
            anyhow::Ok(())
        }
    };
    task.drive(operate).await?;
    dbos.shutdown().await;
    Ok(())
}

async fn complete(pool: PgPool, order: Order) -> dbos::Result<Receipt, Failed> {
    let pool = &pool;
    for (step, name) in (1..).zip(STEPS) {
        dbos::step(name, move || line(pool, order, step)).await?;
    }
    Ok(order.receipt())
}

async fn line(pool: &PgPool, order: Order, step: i64) -> dbos::Result<(), Failed> {
    let written = sqlx::query(LINE).bind(order.number).bind(step).bind(order.amount).execute(pool).await;
    written.map_err(|error| dbos::Error::Application(Failed(error.to_string())))?;
    Ok(())
}
