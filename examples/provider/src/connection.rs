//! HTTP/1.1 over TCP, and connections that are cut.

use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::ServiceExt;

/// How long a client may take to send a request's header, and how long a connection may stay idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long to pause after the operating system refused a connection, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// In place of an answer: the connection is closed and the client gets not one byte.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the connection is cut on request")]
pub(crate) struct Cut;

impl IntoResponse for Cut {
    /// A response that [`accept`] never sends.
    fn into_response(self) -> Response {
        let mut response = Response::default();
        response.extensions_mut().insert(self);
        response
    }
}

/// Serves until it is dropped, and with it every connection.
pub(crate) async fn accept(listener: TcpListener, router: Router) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(converse(stream, router.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, router: Router) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let router = router.clone();
        async move {
            let Ok(response) = router.oneshot(request).await;
            // A service that fails makes hyper drop the connection with nothing written to it.
            if response.extensions().get::<Cut>().is_some() { Err(Cut) } else { Ok(response) }
        }
    });
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    // How a connection ends concerns the client alone: what was executed is in the ledger.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}
