//! The only place that opens a connection.
//!
//! The name is resolved here, every address it has is checked, and the connection is made to one of the addresses that
//! were checked. Nothing resolves it a second time, so a name whose answer changes between check and use (DNS
//! rebinding) gains nothing; nothing reads a proxy from the environment, so no other machine resolves it either.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::ReadBufCursor;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;
use url::Host;

use super::address::{Blocked, Reach};

/// How long one address may take to answer before the next is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

/// The addresses behind a name.
pub type Addresses = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// How names become addresses. It is asked once for each connection, and what it says is checked before use.
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of `name`.
    fn resolve(&self, name: &str) -> Addresses;
}

/// The machine's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: &str) -> Addresses {
        let name = name.to_owned();
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect()) })
    }
}

/// Why no connection could be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Blocked(#[from] Blocked),
    #[error("the receiver's name cannot be resolved")]
    Resolve(#[source] io::Error),
    #[error("the receiver's name has no address")]
    NoAddress,
    #[error("the receiver cannot be connected to at {address}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("the receiver's certificate or TLS version was not accepted")]
    Tls(#[source] io::Error),
}

/// Connects to one receiver, whatever address it is asked for.
#[derive(Clone)]
pub(super) struct Dialer(pub(super) Arc<Line>);

/// Where a dialer leads, and how far it may reach.
pub(super) struct Line {
    pub(super) host: Host<String>,
    pub(super) port: u16,
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
    pub(super) reach: Reach,
    pub(super) resolver: Arc<dyn Resolve>,
}

impl Line {
    async fn dial(&self) -> Result<Stream, Error> {
        let mut failed = Error::NoAddress;
        for address in self.checked_addresses().await? {
            let address = SocketAddr::new(address, self.port);
            let connected = match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(connected) => connected,
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
            };
            match connected {
                Ok(socket) => return self.secured(socket).await,
                Err(source) => failed = Error::Connect { address, source },
            }
        }
        Err(failed)
    }

    /// The addresses to try. One that may not be reached spoils them all: a name that points both inside and outside
    /// is a mistake or an attack.
    async fn checked_addresses(&self) -> Result<Vec<IpAddr>, Error> {
        let addresses = match &self.host {
            Host::Ipv4(address) => vec![IpAddr::V4(*address)],
            Host::Ipv6(address) => vec![IpAddr::V6(*address)],
            Host::Domain(name) => self.resolver.resolve(name).await.map_err(Error::Resolve)?,
        };
        for address in &addresses {
            self.reach.check(*address)?;
        }
        Ok(addresses.into_iter().take(MAX_ADDRESSES).collect())
    }

    async fn secured(&self, socket: TcpStream) -> Result<Stream, Error> {
        // Without it a small request waits for the acknowledgement of the one before; its failure costs only that.
        let _ = socket.set_nodelay(true);
        let io: Box<dyn Io> = match &self.tls {
            Some((tls, name)) => Box::new(tls.connect(name.clone(), socket).await.map_err(Error::Tls)?),
            None => Box::new(socket),
        };
        Ok(Stream(TokioIo::new(io)))
    }
}

impl Service<Uri> for Dialer {
    type Response = Stream;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let line = self.0.clone();
        Box::pin(async move { line.dial().await })
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection to a checked address.
pub(super) struct Stream(TokioIo<Box<dyn Io>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl hyper::rt::Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl hyper::rt::Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
