//! A connection that is made again after it was lost.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::Error;

/// Holds one connection for all lanes. It is opened when first asked for and again after it broke; many askers make
/// one attempt.
#[derive(Debug)]
pub(crate) struct Session<C> {
    timeout: Duration,
    state: Mutex<State<C>>,
}

#[derive(Debug)]
struct State<C> {
    connection: Option<C>,
    failed: Option<(Instant, String)>,
    closed: bool,
}

impl<C: Clone> Session<C> {
    pub(crate) fn new(connection: C, timeout: Duration) -> Session<C> {
        Session { timeout, state: Mutex::new(State { connection: Some(connection), failed: None, closed: false }) }
    }

    /// The connection if `alive`, else what `open` makes within the timeout. Whoever waited while another's attempt
    /// failed shares that failure instead of waiting once more.
    pub(crate) async fn get<F>(&self, alive: impl Fn(&C) -> bool, open: F) -> Result<C, Error>
    where
        F: Future<Output = Result<C, Error>>,
    {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        if state.closed {
            return Err(Error::Unavailable("the sink is closed".to_owned()));
        }
        if let Some(connection) = state.connection.as_ref().filter(|connection| alive(connection)) {
            return Ok(connection.clone());
        }
        if let Some((_, reason)) = state.failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(Error::Unavailable(reason.clone()));
        }
        // The broken connection goes first, so that nothing it still holds is sent beside the new one.
        state.connection = None;
        match within(self.timeout, open).await {
            Ok(connection) => {
                state.connection = Some(connection.clone());
                state.failed = None;
                Ok(connection)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.to_string()));
                Err(error)
            }
        }
    }

    /// Ends the session: the connection is handed out a last time, and later askers are refused.
    pub(crate) async fn close(&self) -> Option<C> {
        let mut state = self.state.lock().await;
        state.closed = true;
        state.connection.take()
    }

    /// Forgets the connection, so that the next asker opens another.
    #[cfg(any(feature = "nats", feature = "redis"))]
    pub(crate) async fn discard(&self, same: impl Fn(&C) -> bool) {
        let mut state = self.state.lock().await;
        if state.connection.as_ref().is_some_and(same) {
            state.connection = None;
        }
    }
}

/// Runs `open`, and gives up after `timeout`.
pub(crate) async fn within<T>(timeout: Duration, open: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(timeout, open).await {
        Ok(result) => result,
        Err(_) => Err(Error::Unavailable(format!("no answer within {} ms", timeout.as_millis()))),
    }
}
