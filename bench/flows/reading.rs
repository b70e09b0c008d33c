//! What a round takes of the server and of the processor.

use anyhow::Result;
use semel_bench::processor::{PerEvent, Used};
use semel_bench::stage::Stage;
use semel_postgres::tokio_postgres::Client;

const SERVER: &str = include_str!("sql/postgres/server.sql");

/// There is no server whose processor time would count.
const NO_SERVER: i32 = -1;

/// One who looks.
pub(crate) struct Watch {
    admin: Option<Client>,
    postmaster: i32,
}

/// Where everything stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    used: Used,
    server: Option<Server>,
}

#[derive(Debug, Clone, Copy)]
struct Server {
    log_bytes: i64,
    transactions: i64,
}

/// What lies between two readings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    /// Processor time per flow. That of a peer's process counts as our own.
    pub(crate) processor: PerEvent,
    /// Bytes of log per flow, where there is a server.
    pub(crate) log_bytes: Option<f64>,
    /// Transactions that wrote something, likewise.
    pub(crate) transactions: Option<f64>,
}

impl Watch {
    /// Looks at this server.
    pub(crate) async fn on(stage: &Stage) -> Result<Watch> {
        Ok(Watch { admin: Some(stage.admin().await?), postmaster: stage.postmaster })
    }

    /// Looks at processes alone.
    pub(crate) fn without_server() -> Watch {
        Watch { admin: None, postmaster: NO_SERVER }
    }

    pub(crate) async fn read(&self) -> Result<Reading> {
        let server = match &self.admin {
            Some(admin) => {
                let row = admin.query_one(SERVER, &[]).await?;
                Some(Server { log_bytes: row.try_get(0)?, transactions: row.try_get(1)? })
            }
            None => None,
        };
        Ok(Reading { used: Used::now(self.postmaster), server })
    }
}

impl Reading {
    /// What was taken since `before`, for each of these flows.
    pub(crate) fn since(self, before: Reading, flows: u64) -> Taken {
        let used = self.used.since(before.used, flows);
        let each = |of: fn(Server) -> i64| {
            let (after, before) = (self.server?, before.server?);
            Some((of(after) - of(before)) as f64 / flows as f64)
        };
        Taken {
            // The only process that this one has started is the peer, if there is one.
            processor: PerEvent { own_us: used.own_us + used.brokers_us, brokers_us: 0.0, ..used },
            log_bytes: each(|server| server.log_bytes),
            transactions: each(|server| server.transactions),
        }
    }
}
