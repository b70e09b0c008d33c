//! The connections that read beside the writer.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use rusqlite::Connection;
use semel::Error;
use tokio::sync::Semaphore;

use crate::connect;
use crate::error::{classify, lock};

/// Connections that see what is committed and never wait for the writer.
#[derive(Debug)]
pub(crate) struct Readers {
    idle: Mutex<Vec<Connection>>,
    /// As many as there are connections.
    permits: Semaphore,
    deadline: Duration,
}

impl Readers {
    pub(crate) fn open(
        path: &Path,
        count: usize,
        busy_timeout: Duration,
        deadline: Duration,
    ) -> Result<Readers, Error> {
        let mut idle = Vec::with_capacity(count);
        for _ in 0..count {
            let connection = connect::open(path, busy_timeout)?;
            connection.pragma_update(None, "query_only", true).map_err(classify)?;
            idle.push(connection);
        }
        Ok(Readers { permits: Semaphore::new(idle.len()), idle: Mutex::new(idle), deadline })
    }

    /// Runs `work` on a connection. The wait for one is bounded by the deadline.
    pub(crate) async fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        let permit = tokio::time::timeout(self.deadline, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(Error::Unavailable("other reads held all reading connections for too long".into()));
        };
        let lent = Lent { idle: &self.idle, connection: lock(&self.idle).pop() };
        match &lent.connection {
            Some(connection) => work(connection),
            None => Err(Error::Unavailable("there are fewer reading connections than permits".into())),
        }
    }
}

/// A connection on loan: it comes back even if the work panics.
struct Lent<'r> {
    idle: &'r Mutex<Vec<Connection>>,
    connection: Option<Connection>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        lock(self.idle).extend(self.connection.take());
    }
}
