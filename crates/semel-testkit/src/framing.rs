//! As much of PostgreSQL's wire protocol as it takes to see a COMMIT go by and its answer come back.

const SSL_REQUEST: i32 = 80_877_103;
const GSS_ENCRYPTION_REQUEST: i32 = 80_877_104;
const CANCEL_REQUEST: i32 = 80_877_102;
const LONGEST: usize = 64 * 1024 * 1024;

/// What a client's message means to the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// May the session be encrypted? The server answers with a single byte.
    Encryption,
    /// The session begins; the server will say that it is ready.
    Startup,
    /// The server will say that it is ready when it has done this.
    Answerable,
    /// As above, and it commits.
    Commit,
    /// Anything else.
    Other,
}

/// What a server's message means to the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    /// It is ready for the next request.
    Ready,
    /// A transaction ended: by COMMIT, by the ROLLBACK that a failed one becomes, or by an error.
    Ended,
    /// Anything else.
    Other,
}

/// Cuts a client's bytes into messages.
#[derive(Debug, Default)]
pub(crate) struct FromClient {
    buffer: Vec<u8>,
    begun: bool,
    commit_parsed: bool,
}

impl FromClient {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, or `Err` with all bytes if this is not the protocol.
    pub(crate) fn next(&mut self) -> Result<Option<(Asked, Vec<u8>)>, Vec<u8>> {
        let header = if self.begun { 5 } else { 8 };
        if self.buffer.len() < header {
            return Ok(None);
        }
        let kind = self.begun.then(|| self.buffer[0]);
        let Some(whole) = whole_length(&self.buffer, self.begun) else { return Err(std::mem::take(&mut self.buffer)) };
        if self.buffer.len() < whole {
            return Ok(None);
        }
        let message: Vec<u8> = self.buffer.drain(..whole).collect();
        let asked = match kind {
            None => self.startup(integer(&message[4..8])),
            Some(kind) => self.typed(kind, &message[5..]),
        };
        Ok(Some((asked, message)))
    }

    fn startup(&mut self, code: i32) -> Asked {
        match code {
            SSL_REQUEST | GSS_ENCRYPTION_REQUEST => Asked::Encryption,
            CANCEL_REQUEST => Asked::Other,
            _ => {
                self.begun = true;
                Asked::Startup
            }
        }
    }

    fn typed(&mut self, kind: u8, payload: &[u8]) -> Asked {
        match kind {
            b'Q' if commits(until_zero(payload)) => Asked::Commit,
            b'Q' | b'F' => Asked::Answerable,
            b'P' => {
                let name = until_zero(payload).len();
                self.commit_parsed |= commits(until_zero(payload.get(name + 1..).unwrap_or_default()));
                Asked::Other
            }
            // A COMMIT that was parsed in this round is executed and answered by the time of its Sync.
            b'S' if std::mem::take(&mut self.commit_parsed) => Asked::Commit,
            b'S' => Asked::Answerable,
            _ => Asked::Other,
        }
    }
}

/// Cuts a server's bytes into messages.
#[derive(Debug, Default)]
pub(crate) struct FromServer {
    buffer: Vec<u8>,
}

impl FromServer {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The single byte that answers a request for encryption.
    pub(crate) fn next_byte(&mut self) -> Option<u8> {
        (!self.buffer.is_empty()).then(|| self.buffer.remove(0))
    }

    /// The next whole message, or `Err` with all bytes if this is not the protocol.
    pub(crate) fn next(&mut self) -> Result<Option<(Answered, Vec<u8>)>, Vec<u8>> {
        if self.buffer.len() < 5 {
            return Ok(None);
        }
        let Some(whole) = whole_length(&self.buffer, true) else { return Err(std::mem::take(&mut self.buffer)) };
        if self.buffer.len() < whole {
            return Ok(None);
        }
        let message: Vec<u8> = self.buffer.drain(..whole).collect();
        let answered = match message[0] {
            b'Z' => Answered::Ready,
            b'E' => Answered::Ended,
            b'C' if matches!(until_zero(&message[5..]), b"COMMIT" | b"ROLLBACK") => Answered::Ended,
            _ => Answered::Other,
        };
        Ok(Some((answered, message)))
    }

    pub(crate) fn take_all(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }
}

/// The length in bytes of the message at the start of `buffer`, type byte included; `None` if it cannot be one.
fn whole_length(buffer: &[u8], typed: bool) -> Option<usize> {
    let at = usize::from(typed);
    let length = usize::try_from(integer(&buffer[at..at + 4])).ok()?;
    let shortest = if typed { 4 } else { 8 };
    (shortest..=LONGEST).contains(&length).then_some(length + at)
}

fn integer(bytes: &[u8]) -> i32 {
    i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Whether one of the statements in `text` is a COMMIT. A semicolon inside a literal may mislead it; the statements
/// that tests send have none before a word COMMIT.
fn commits(text: &[u8]) -> bool {
    text.split(|byte| *byte == b';').any(|statement| {
        let statement = statement.trim_ascii_start();
        statement.len() >= 6
            && statement[..6].eq_ignore_ascii_case(b"COMMIT")
            && !statement.get(6).is_some_and(|next| next.is_ascii_alphanumeric() || *next == b'_')
            && !statement[6..].trim_ascii_start().to_ascii_uppercase().starts_with(b"PREPARED")
    })
}

#[cfg(test)]
mod tests {
    use super::{Answered, Asked, FromClient, FromServer};

    fn startup(code: i32) -> Vec<u8> {
        [8_i32.to_be_bytes(), code.to_be_bytes()].concat()
    }

    fn typed(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = i32::try_from(payload.len() + 4).unwrap().to_be_bytes();
        [&[kind], &length[..], payload].concat()
    }

    fn asked(bytes: &[u8], at_once: bool) -> Vec<Asked> {
        let mut client = FromClient::default();
        let mut seen = Vec::new();
        let mut passed = Vec::new();
        let pieces: Vec<&[u8]> = if at_once { vec![bytes] } else { bytes.chunks(1).collect() };
        for piece in pieces {
            client.push(piece);
            while let Some((asked, message)) = client.next().unwrap() {
                seen.push(asked);
                passed.extend(message);
            }
        }
        assert_eq!(passed, bytes, "every byte is passed on");
        seen
    }

    #[test]
    fn a_commit_is_seen_however_the_bytes_are_cut() {
        let stream = [
            startup(super::SSL_REQUEST),
            startup(196_608),
            typed(b'Q', b"BEGIN\0"),
            typed(b'P', b"\0INSERT INTO t VALUES (1)\0\0\0"),
            typed(b'S', b""),
            typed(b'Q', b"commit\0"),
            typed(b'Q', b"SELECT 1; COMMIT\0"),
            typed(b'P', b"name\0COMMIT\0\0\0"),
            typed(b'E', b"\0\0\0\0\0"),
            typed(b'S', b""),
        ]
        .concat();
        use Asked::{Answerable, Commit, Encryption, Other, Startup};
        let wanted = [Encryption, Startup, Answerable, Other, Answerable, Commit, Commit, Other, Other, Commit];
        assert_eq!(asked(&stream, true), wanted);
        assert_eq!(asked(&stream, false), wanted);
    }

    #[test]
    fn words_that_only_resemble_a_commit_are_let_through() {
        for text in ["COMMITTED", "COMMIT PREPARED 'x'", "SELECT 'COMMIT'", "ROLLBACK", "COMM"] {
            assert!(!super::commits(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_commit_that_failed_is_answered_too() {
        let mut server = FromServer::default();
        for (message, wanted) in [
            (typed(b'C', b"INSERT 0 1\0"), Answered::Other),
            (typed(b'C', b"COMMIT\0"), Answered::Ended),
            (typed(b'C', b"ROLLBACK\0"), Answered::Ended),
            (typed(b'E', b"SERROR\0\0"), Answered::Ended),
            (typed(b'Z', b"I"), Answered::Ready),
        ] {
            server.push(&message);
            assert_eq!(server.next().unwrap().unwrap(), (wanted, message));
        }
    }

    #[test]
    fn bytes_of_another_protocol_are_handed_back_whole() {
        let mut client = FromClient::default();
        client.push(b"GET / HTTP/1.1\r\n");
        assert_eq!(client.next().unwrap_err(), b"GET / HTTP/1.1\r\n");
    }
}
