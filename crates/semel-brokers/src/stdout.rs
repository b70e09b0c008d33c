//! Events on standard output: one line of JSON each, for a pipe, a file or a pair of eyes.
//!
//! A line is a CloudEvent in the JSON format. A JSON payload is its `data` as written, except that line breaks between
//! its tokens become spaces; any other payload is `data_base64`. The extension attributes `semeltopic`, `semellane`,
//! `semelsequence` and `semelincarnation` place the event in the outbox, and `semelheaders`, if there are any, holds
//! the event's headers as JSON text, an array of pairs.
//!
//! After an acknowledgement the line is with the operating system, and on the disk if standard output is a file (I4).
//! Lines appear in the order of the batches, so every ordering key keeps its order (I5).

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use semel::sink::{Error, Guarantee, Lane, Outgoing, Position, Sink};
use serde::Serialize;
use serde::de::IgnoredAny;
use tokio::sync::{mpsc, oneshot};

use crate::cloud_event;

/// How many batches may wait for a slow reader.
const MAX_WAITING_BATCHES: usize = 64;

/// Writes events as lines, at least once each.
///
/// A reader that does not keep up slows the relay down; one that has gone makes every event wait in the outbox. The
/// lines are written by a thread of their own, so that a full pipe stops neither the runtime nor its shutdown.
#[derive(Debug)]
pub struct StdoutSink {
    batches: mpsc::Sender<Batch>,
    closed: AtomicBool,
}

/// Lines to be written, and whom to tell how many of their bytes were.
#[derive(Debug)]
struct Batch {
    bytes: Vec<u8>,
    done: oneshot::Sender<Written>,
}

/// What became of a batch: all bytes before `bytes` are written.
#[derive(Debug)]
struct Written {
    bytes: usize,
    error: Option<io::Error>,
}

impl StdoutSink {
    /// A sink that writes to this process's standard output.
    pub fn new() -> io::Result<StdoutSink> {
        StdoutSink::on(io::stdout().as_fd().try_clone_to_owned()?)
    }

    /// A sink that writes to another open file, pipe or socket.
    pub fn on(output: impl Into<OwnedFd>) -> io::Result<StdoutSink> {
        let mut output = Output { file: File::from(output.into()), torn: false };
        let (batches, mut waiting) = mpsc::channel::<Batch>(MAX_WAITING_BATCHES);
        std::thread::Builder::new().name("semel-stdout".to_owned()).spawn(move || {
            while let Some(batch) = waiting.blocking_recv() {
                // A caller that no longer listens will publish the same events again.
                let _ = batch.done.send(output.write(&batch.bytes));
            }
        })?;
        Ok(StdoutSink { batches, closed: AtomicBool::new(false) })
    }

    async fn write(&self, bytes: Vec<u8>) -> Written {
        let (done, written) = oneshot::channel();
        let gone = || Written { bytes: 0, error: Some(io::ErrorKind::BrokenPipe.into()) };
        if self.closed.load(Ordering::Relaxed) {
            return gone();
        }
        match self.batches.send(Batch { bytes, done }).await {
            Ok(()) => written.await.unwrap_or_else(|_| gone()),
            Err(_) => gone(),
        }
    }
}

impl Sink for StdoutSink {
    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    fn fills_gaps(&self) -> bool {
        false
    }

    async fn take_lane(&self, _: Lane) -> Result<Option<Position>, Error> {
        Ok(None)
    }

    async fn publish(&self, _: Lane, batch: &[Outgoing], _: &Position) -> Vec<Result<(), Error>> {
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(batch.len());
        for outgoing in batch {
            let start = bytes.len();
            // Text and numbers always have a form in JSON. Should that ever fail, the event is refused, and so are its
            // successors; nothing half-written goes out.
            match line(&mut bytes, outgoing) {
                Ok(()) => ends.push(Ok(bytes.len())),
                Err(error) => {
                    bytes.truncate(start);
                    ends.push(Err(error));
                }
            }
        }
        let written = self.write(bytes).await;
        let reason = written.error.map(|error| (error.kind(), error.to_string()));
        let mut failed_keys = HashSet::new();
        let mut results = Vec::with_capacity(batch.len());
        for (outgoing, end) in batch.iter().zip(ends) {
            let key = outgoing.event.ordering_key.as_str();
            let result = match end {
                Ok(end) if end <= written.bytes => Ok(()),
                _ if failed_keys.contains(key) => Err(Error::Behind),
                Ok(_) => {
                    let (kind, text) = reason.clone().unwrap_or((io::ErrorKind::WriteZero, "not written".to_owned()));
                    Err(Error::Unavailable(io::Error::new(kind, text).into()))
                }
                Err(error) => Err(Error::Refused(error.into())),
            };
            if result.is_err() {
                failed_keys.insert(key);
            }
            results.push(result);
        }
        results
    }

    /// Takes no more events. What was acknowledged has been written; there is nothing to flush.
    async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

/// Where the lines go.
struct Output {
    file: File,
    /// The last line has no end: the disk was full, or the reader stopped in the middle of it.
    torn: bool,
}

impl Output {
    /// Writes lines, and says up to which byte they are safe. A line that was torn is ended first, so that it costs a
    /// reader that one line and no other.
    fn write(&mut self, bytes: &[u8]) -> Written {
        let mut written = 0;
        let error = match self.end_torn_line().and_then(|()| self.write_all(bytes, &mut written)) {
            Ok(()) => None,
            Err(error) => {
                self.torn |= written > 0 && bytes[written - 1] != b'\n';
                Some(error)
            }
        };
        match (error, self.make_durable()) {
            (error, Ok(())) => Written { bytes: written, error },
            (error, Err(unsafe_now)) => Written { bytes: 0, error: Some(error.unwrap_or(unsafe_now)) },
        }
    }

    fn end_torn_line(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.write_all(b"\n")?;
            self.torn = false;
        }
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8], written: &mut usize) -> io::Result<()> {
        while *written < bytes.len() {
            match self.file.write(&bytes[*written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => *written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.file.flush()
    }

    fn make_durable(&self) -> io::Result<()> {
        if self.file.metadata()?.is_file() { self.file.sync_data() } else { Ok(()) }
    }
}

/// Appends an event as one line.
fn line(line: &mut Vec<u8>, outgoing: &Outgoing) -> serde_json::Result<()> {
    let event = &outgoing.event;
    line.push(b'{');
    for (name, value) in cloud_event::attributes(outgoing) {
        member(line, name, &value)?;
    }
    member(line, "datacontenttype", &event.content_type)?;
    for (name, value) in cloud_event::trace_context(outgoing) {
        member(line, name, value)?;
    }
    member(line, "semeltopic", &event.topic)?;
    for (name, value) in cloud_event::coordinates(outgoing) {
        // Attributes of CloudEvents have no dashes, and their integers only 32 bits, so a sequence is text.
        member(line, &name.replace('-', ""), &value)?;
    }
    if !event.headers.is_empty() {
        member(line, "semelheaders", &serde_json::to_string(&event.headers)?)?;
    }
    if is_json(&event.content_type, &event.payload) {
        line.extend_from_slice(b"\"data\":");
        // Within a JSON string a line break is always escaped, so a bare one stands between tokens.
        line.extend(event.payload.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    } else {
        line.extend_from_slice(b"\"data_base64\":");
        serde_json::to_writer(&mut *line, &STANDARD.encode(&event.payload))?;
    }
    line.extend_from_slice(b"}\n");
    Ok(())
}

/// Appends a member and the comma after it.
fn member<T: Serialize + ?Sized>(line: &mut Vec<u8>, name: &str, value: &T) -> serde_json::Result<()> {
    serde_json::to_writer(&mut *line, name)?;
    line.push(b':');
    serde_json::to_writer(&mut *line, value)?;
    line.push(b',');
    Ok(())
}

/// Whether a payload is called JSON and is. The parser skips over strings without reading them as UTF-8, so that is
/// checked first.
fn is_json(content_type: &str, payload: &[u8]) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    (essence.ends_with("/json") || essence.ends_with("+json"))
        && std::str::from_utf8(payload).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}
