//! HTTP/1.1 over TCP, with limits, until it is time to stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::shutdown::Shutdown;

/// The most connections open at once; further ones wait in the kernel's queue (I12).
const MAX_CONNECTIONS: usize = 1024;

/// How long a client may take to send a request's header, and how long a connection may stay idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long to pause after the operating system refused a connection, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Binds an address.
pub(crate) async fn bind(address: SocketAddr, setting: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; stop what uses it, or choose another address with --{setting}")
    })
}

/// Serves until it is time to stop, then lets the requests in flight finish for up to `drain`.
///
/// A request that is cut off after that is rolled back, as after a crash, unless its commit was already on its way;
/// either way its client may retry with the same key (I1, I2).
pub(crate) async fn serve(listener: TcpListener, router: Router, stop: Shutdown, drain: Duration) {
    let graceful = GracefulShutdown::new();
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let stop = stop.requested();
    tokio::pin!(stop);
    loop {
        let (stream, permit) = tokio::select! {
            () = &mut stop => break,
            accepted = accept(&listener, &connections) => accepted,
        };
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were still in flight after transaction_deadline and are cut off");
    }
}

/// Takes the next connection, once there is room for it.
async fn accept(listener: &TcpListener, connections: &Arc<Semaphore>) -> (TcpStream, Option<impl Send + use<>>) {
    let permit = Arc::clone(connections).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "a connection keeps Nagle's delay");
                }
                return (stream, permit);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
