//! Clients with a connection each, which they keep.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// What says that an answer was given before: Semel's header, and that of `axum-idempotent`.
const REPLAYED: [&str; 2] = ["idempotent-replayed", "idempotency-replayed"];

/// So many clients.
#[derive(Debug)]
pub(crate) struct Crowd(Vec<Mutex<SendRequest<Full<Bytes>>>>);

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// Whether it was given before.
    replayed: bool,
    pub(crate) body: Bytes,
}

impl Crowd {
    pub(crate) async fn connect(address: SocketAddr, clients: u64) -> Result<Crowd> {
        let mut crowd = Vec::new();
        for _ in 0..clients {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let (client, connection) = handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            crowd.push(Mutex::new(client));
        }
        Ok(Crowd(crowd))
    }

    /// Sends the request with this number, which says whose turn it is.
    pub(crate) async fn send(&self, number: u64, request: Request<Full<Bytes>>) -> Result<Answer> {
        let mut client = self.0[number as usize % self.0.len()].lock().await;
        client.ready().await?;
        let (head, body) = client.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        let replayed = REPLAYED.iter().any(|name| head.headers.contains_key(*name));
        Ok(Answer { status: head.status, replayed, body })
    }
}

impl Answer {
    /// Fails unless a charge was made: now, or before if it should be `replayed`.
    pub(crate) fn charged(&self, replayed: bool) -> Result<()> {
        if (self.status, self.replayed) == (StatusCode::CREATED, replayed) {
            return Ok(());
        }
        let again = if self.replayed { "replayed" } else { "not replayed" };
        bail!("a charge was answered {}, {again}: {}", self.status, String::from_utf8_lossy(&self.body))
    }
}
