//! A provider that runs.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::connection::accept;
use crate::shared::Shared;
use crate::{Error, Options, router, webhook};

/// A provider that serves in the background of this process. Dropping it ends it as a crash would, but for
/// transactions that have begun: they end as they would have, and the ledger tells how.
#[derive(Debug)]
pub struct Provider {
    address: SocketAddr,
    serving: JoinHandle<()>,
    open: watch::Sender<()>,
}

impl Provider {
    /// Listens on an address, which must be a loopback one, and serves. Port 0 takes any that is free.
    pub async fn bind(address: SocketAddr, options: Options) -> Result<Provider, Error> {
        require_loopback(address)?;
        let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
        Provider::start(listener, options).await
    }

    async fn start(listener: TcpListener, options: Options) -> Result<Provider, Error> {
        let address = listener.local_addr().map_err(Error::Listener)?;
        require_loopback(address)?;
        let (open, closing) = watch::channel(());
        let shared = Arc::new(Shared::open(options, closing).await?);
        webhook::resume(&shared).await?;
        let serving = tokio::spawn(accept(listener, router(shared)));
        Ok(Provider { address, serving, open })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of `path`, which starts with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Waits until it ends, which it does not do by itself.
    pub async fn ended(&mut self) {
        // It is cancelled, or it panicked. Either way it is over, and asking it once more would panic.
        if !self.serving.is_finished() {
            let _ = (&mut self.serving).await;
        }
    }

    /// Ends it. When this returns, nothing works on the ledger any more: what was being written is written, and what
    /// was paused by a fault is given up, not executed.
    pub async fn stop(mut self) {
        self.serving.abort();
        self.ended().await;
        self.open.send_replace(());
        // Whoever can still reach the ledger holds a receiver.
        self.open.closed().await;
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Serves on this listener until the future is dropped. Refuses one that is not bound to a loopback address.
pub async fn serve(listener: TcpListener, options: Options) -> Result<(), Error> {
    Provider::start(listener, options).await?.ended().await;
    Ok(())
}

fn require_loopback(address: SocketAddr) -> Result<(), Error> {
    if address.ip().is_loopback() { Ok(()) } else { Err(Error::NotLoopback(address)) }
}
