//! A provider in the process of the test, whose clock the test moves.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use semel_provider::{Clock, Options, Provider};

use super::{Api, Directory};

/// A clock that stands still until it is moved. Clones share the time.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    pub fn advance_ms(&self, by: i64) {
        self.0.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A provider in this process, with a clock of the test's.
#[derive(Debug)]
pub struct Running {
    api: Api,
    provider: Provider,
    pub clock: ManualClock,
    directory: Directory,
}

impl Running {
    pub async fn start() -> Running {
        let (directory, clock) = (Directory::make(), ManualClock(Arc::new(AtomicI64::new(1_000_000))));
        let provider = open(&directory.ledger(), &clock).await;
        Running { api: Api::new(provider.address()), provider, clock, directory }
    }

    /// Stops it, and starts another with the same ledger.
    pub async fn restart(self) -> Running {
        self.provider.stop().await;
        let provider = open(&self.directory.ledger(), &self.clock).await;
        Running { api: Api::new(provider.address()), provider, clock: self.clock, directory: self.directory }
    }

    pub fn ledger_file(&self) -> PathBuf {
        self.directory.ledger()
    }
}

async fn open(ledger: &Path, clock: &ManualClock) -> Provider {
    let options = Options { clock: Arc::new(clock.clone()), ..Options::new(ledger) };
    Provider::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options).await.unwrap()
}

impl Deref for Running {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}
