//! The parent's end of a failpoint: processes park there until they are released or killed.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The variable that tells a process where its parent listens.
pub const CONTROL_VARIABLE: &str = "SEMEL_FAILPOINT_CONTROL";

/// Listens for processes that reach an armed failpoint. Give them [`Control::address`] in `SEMEL_FAILPOINT_CONTROL`
/// and arm the point in `FAILPOINTS`, as in `claimed=1*return`.
#[derive(Debug)]
pub struct Control {
    listener: TcpListener,
    parked: Vec<Parked>,
}

/// A process, or one of its threads, that waits at a failpoint. Dropping this leaves it there for good.
#[derive(Debug)]
pub struct Parked {
    point: String,
    stream: TcpStream,
}

impl Control {
    /// Listens on a free loopback port.
    pub async fn listen() -> Control {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Control { listener, parked: Vec::new() }
    }

    /// What `SEMEL_FAILPOINT_CONTROL` is to hold.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Waits until a process is parked at `point`. Panics, naming the points that were reached instead, if none is
    /// `within` the bound: a crash test whose point is never reached proves nothing.
    pub async fn reached(&mut self, point: &str, within: Duration) -> Parked {
        match tokio::time::timeout(within, self.wait_for(point)).await {
            Ok(parked) => parked,
            Err(_) => {
                let others: Vec<&str> = self.parked.iter().map(Parked::point).collect();
                panic!("the failpoint `{point}` was not reached within {within:?}; reached: {others:?}")
            }
        }
    }

    async fn wait_for(&mut self, point: &str) -> Parked {
        loop {
            if let Some(at) = self.parked.iter().position(|parked| parked.point == point) {
                return self.parked.remove(at);
            }
            let (stream, _) = self.listener.accept().await.unwrap();
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            // A process that was killed while it was saying its point has not reached one.
            if reader.read_line(&mut line).await.is_ok() && line.ends_with('\n') {
                self.parked.push(Parked { point: line.trim_end().to_owned(), stream: reader.into_inner() });
            }
        }
    }
}

impl Parked {
    /// The point's name.
    pub fn point(&self) -> &str {
        &self.point
    }

    /// Lets the process go on.
    pub async fn release(mut self) {
        self.stream.write_all(&[1]).await.unwrap();
    }
}
