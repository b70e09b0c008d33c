//! A TCP proxy that breaks connections at the moment that matters.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::session::{self, Dialect};

/// How to break a session, once, at its next COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Both sides are cut as soon as the server has been sent the COMMIT. It may or may not take effect.
    CutAfterCommitForwarded,
    /// Both sides are cut when the server has answered the COMMIT; the client never sees the answer. If it was a
    /// COMMIT and not the ROLLBACK of a failed transaction, it has taken effect.
    DropCommitAcknowledgement,
}

/// A proxy on a free loopback port. It runs on a thread of its own, so a test may block. Dropping it cuts everything.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    controls: Arc<Controls>,
    thread: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// Starts a proxy to a PostgreSQL server or pooler. Sessions must not be encrypted, or no COMMIT can be seen.
    pub fn start(upstream: SocketAddr) -> io::Result<FaultProxy> {
        FaultProxy::with_dialect(upstream, Dialect::Postgres)
    }

    /// Starts a proxy to a server of any kind, without looking at the bytes: [`FaultProxy::refuse`],
    /// [`FaultProxy::stall`] and [`FaultProxy::cut_all`] work, [`FaultProxy::arm`] has nothing to act on.
    pub fn start_opaque(upstream: SocketAddr) -> io::Result<FaultProxy> {
        FaultProxy::with_dialect(upstream, Dialect::Opaque)
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Breaks the next COMMIT that passes, of whichever session; armed twice, the next two.
    pub fn arm(&self, fault: Fault) {
        self.controls.faults.lock().unwrap().push_back(fault);
    }

    /// How many faults are armed and have not happened.
    pub fn armed(&self) -> usize {
        self.controls.faults.lock().unwrap().len()
    }

    /// How many sessions a fault has cut. It is counted before the client can notice.
    pub fn cuts(&self) -> u64 {
        self.controls.cuts.load(Ordering::SeqCst)
    }

    /// Cuts all sessions and closes new ones at once, or lets them in again: the server as good as down.
    pub fn refuse(&self, refuse: bool) {
        self.controls.refusing.store(refuse, Ordering::SeqCst);
        if refuse {
            self.cut_all();
        }
    }

    /// Stops forwarding while connections stay open, or goes on: the network as good as gone. Nothing is lost.
    pub fn stall(&self, stall: bool) {
        self.controls.stalled.send_replace(stall);
    }

    /// Cuts all sessions once; new ones are let in.
    pub fn cut_all(&self) {
        self.controls.generation.send_modify(|generation| *generation += 1);
    }

    fn with_dialect(upstream: SocketAddr, dialect: Dialect) -> io::Result<FaultProxy> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let controls = Arc::new(Controls::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Arc::clone(&controls);
        let thread = std::thread::Builder::new().name("fault-proxy".into()).spawn(move || {
            runtime.block_on(accept(listener, upstream, dialect, shared));
        })?;
        Ok(FaultProxy { address, controls, thread: Some(thread) })
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.controls.ended.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the test's side of the proxy tells the sessions' side.
#[derive(Debug)]
pub(crate) struct Controls {
    faults: Mutex<VecDeque<Fault>>,
    cuts: AtomicU64,
    refusing: AtomicBool,
    stalled: watch::Sender<bool>,
    generation: watch::Sender<u64>,
    ended: watch::Sender<bool>,
}

impl Default for Controls {
    fn default() -> Controls {
        Controls {
            faults: Mutex::default(),
            cuts: AtomicU64::new(0),
            refusing: AtomicBool::new(false),
            stalled: watch::Sender::new(false),
            generation: watch::Sender::new(0),
            ended: watch::Sender::new(false),
        }
    }
}

impl Controls {
    pub(crate) fn next_fault(&self) -> Option<Fault> {
        self.faults.lock().unwrap().pop_front()
    }

    pub(crate) fn count_cut(&self) {
        self.cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns when bytes may be forwarded.
    pub(crate) async fn may_forward(&self) {
        let mut stalled = self.stalled.subscribe();
        // The sender lives as long as `self`, so this ends only when the stall does.
        let _ = stalled.wait_for(|stalled| !stalled).await;
    }
}

async fn accept(listener: std::net::TcpListener, upstream: SocketAddr, dialect: Dialect, controls: Arc<Controls>) {
    let listener = TcpListener::from_std(listener).expect("the listener is non-blocking");
    let mut ended = controls.ended.subscribe();
    loop {
        let client = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.wait_for(|ended| *ended) => return,
        };
        // Subscribed before the look at `refusing`, so that a session is either closed here or cut there.
        let generation = controls.generation.subscribe();
        if let Ok((client, _)) = client
            && !controls.refusing.load(Ordering::SeqCst)
        {
            tokio::spawn(serve(client, upstream, dialect, Arc::clone(&controls), generation));
        }
    }
}

async fn serve(
    client: TcpStream,
    upstream: SocketAddr,
    dialect: Dialect,
    controls: Arc<Controls>,
    mut generation: watch::Receiver<u64>,
) {
    let session = async {
        let server = TcpStream::connect(upstream).await?;
        session::forward(client, server, dialect, &controls).await
    };
    // Whichever ends first, both sockets are closed with it. Errors are the two peers' own to report.
    tokio::select! {
        _ = session => {}
        _ = generation.changed() => {}
    }
}
