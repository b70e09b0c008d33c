//! One proxied connection: two directions that end together.

use std::io;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::framing::{Answered, Asked, FromClient, FromServer};
use crate::proxy::{Controls, Fault};

/// What the bytes mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Postgres,
    Opaque,
}

/// What one direction has to tell the other.
#[derive(Debug, Default)]
struct Progress {
    opaque: bool,
    encryption_asked: bool,
    /// How many times the server owes, or has given, its word that it is ready.
    ready_owed: u64,
    ready_given: u64,
    /// The count of `ready_given` that answers the COMMIT whose answer is withheld.
    withheld: Option<u64>,
}

/// Forwards until one side closes or a fault strikes; the caller then drops both sides.
pub(crate) async fn forward(
    client: TcpStream,
    server: TcpStream,
    dialect: Dialect,
    controls: &Controls,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let progress = Mutex::new(Progress { opaque: dialect == Dialect::Opaque, ..Progress::default() });
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Both directions are futures of one task: they take turns only where they wait.
    tokio::select! {
        ended = requests(from_client, to_server, &progress, controls) => ended,
        ended = answers(from_server, to_client, &progress, controls) => ended,
    }
}

async fn requests(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    progress: &Mutex<Progress>,
    controls: &Controls,
) -> io::Result<()> {
    let mut framing = FromClient::default();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let read = client.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        controls.may_forward().await;
        if progress.lock().unwrap().opaque {
            server.write_all(&chunk[..read]).await?;
            continue;
        }
        framing.push(&chunk[..read]);
        let mut out = Vec::with_capacity(read);
        let cut = take_requests(&mut framing, &mut out, progress, controls);
        if cut {
            controls.count_cut();
        }
        server.write_all(&out).await?;
        if cut {
            // An orderly end towards the server: it reads the COMMIT first, and then that nobody is there.
            return server.shutdown().await;
        }
    }
}

/// Moves whole messages to `out` and says whether the session is to be cut after them.
fn take_requests(framing: &mut FromClient, out: &mut Vec<u8>, progress: &Mutex<Progress>, controls: &Controls) -> bool {
    let mut progress = progress.lock().unwrap();
    loop {
        match framing.next() {
            Ok(Some((asked, message))) => {
                out.extend(message);
                match asked {
                    Asked::Encryption => progress.encryption_asked = true,
                    Asked::Startup | Asked::Answerable | Asked::Commit => progress.ready_owed += 1,
                    Asked::Other => {}
                }
                if asked == Asked::Commit && progress.withheld.is_none() {
                    match controls.next_fault() {
                        Some(Fault::CutAfterCommitForwarded) => return true,
                        // Noted before the COMMIT is sent, so its answer cannot slip through.
                        Some(Fault::DropCommitAcknowledgement) => progress.withheld = Some(progress.ready_owed),
                        None => {}
                    }
                }
            }
            Ok(None) => return false,
            Err(unknown) => {
                progress.opaque = true;
                out.extend(unknown);
                return false;
            }
        }
    }
}

async fn answers(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    progress: &Mutex<Progress>,
    controls: &Controls,
) -> io::Result<()> {
    let mut framing = FromServer::default();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let read = server.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        controls.may_forward().await;
        framing.push(&chunk[..read]);
        let mut out = Vec::with_capacity(read);
        let cut = take_answers(&mut framing, &mut out, progress);
        if cut {
            // Counted first: what goes before the withheld answer may already tell the client that all is not well.
            controls.count_cut();
        }
        client.write_all(&out).await?;
        if cut {
            return Ok(());
        }
    }
}

/// Moves whole messages to `out` and says whether the next one was the answer to withhold.
fn take_answers(framing: &mut FromServer, out: &mut Vec<u8>, progress: &Mutex<Progress>) -> bool {
    let mut progress = progress.lock().unwrap();
    loop {
        if progress.opaque {
            out.extend(framing.take_all());
            return false;
        }
        if progress.encryption_asked {
            let Some(byte) = framing.next_byte() else { return false };
            progress.encryption_asked = false;
            // From an accepted encryption on, nothing can be read; after a refusal the client starts in the clear.
            progress.opaque = byte == b'S' || byte == b'G';
            out.push(byte);
            continue;
        }
        match framing.next() {
            Ok(Some((answered, message))) => {
                let turn = progress.ready_given + 1;
                // Earlier requests have turns of their own, so this is the answer to the COMMIT, good or bad.
                if progress.withheld == Some(turn) && answered != Answered::Other {
                    return true;
                }
                if answered == Answered::Ready {
                    progress.ready_given = turn;
                }
                out.extend(message);
            }
            Ok(None) => return false,
            Err(unknown) => {
                progress.opaque = true;
                out.extend(unknown);
            }
        }
    }
}
