//! What a request was answered, stored verbatim.

use bytes::Bytes;
use serde::Serialize;

use crate::disposition::Mark;

/// The most bytes all header lines of a stored reply may take. The database checks the same bound (I12).
pub const MAX_HEADER_BYTES: usize = 16 * 1024;

/// The most bytes a stored body may take, whatever is configured. The database checks the same bound (I12).
pub const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// Status, headers (repeats and order kept) and body bytes. Stored verbatim and replayed byte for byte (I3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Bytes,
    mark: Mark,
}

/// Why a reply was refused, or could not be read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The status is not between 200 and 599.
    #[error("a stored reply needs a final HTTP status between 200 and 599, not {0}")]
    Status(u16),
    /// A header's name or value cannot stand in one line.
    #[error("the header {0:?} has a name or value that HTTP does not allow")]
    Header(String),
    /// The stored header lines are not what this crate writes.
    #[error(
        "the stored headers cannot be read; were they written by semel.complete with other than `name: value` lines?"
    )]
    StoredHeaders,
    /// The value could not be written as JSON.
    #[error("the reply could not be written as JSON")]
    Json(#[from] serde_json::Error),
}

impl Reply {
    /// A reply with these body bytes and no headers.
    pub fn new(status: u16, body: impl Into<Bytes>) -> Result<Reply, Invalid> {
        if !(200..=599).contains(&status) {
            return Err(Invalid::Status(status));
        }
        Ok(Reply { status, headers: Vec::new(), body: body.into(), mark: Mark::None })
    }

    /// A reply with `value` as JSON.
    pub fn json<T: Serialize + ?Sized>(status: u16, value: &T) -> Result<Reply, Invalid> {
        Reply::new(status, serde_json::to_vec(value)?)?.header("content-type", "application/json")
    }

    /// Adds a header; a name may repeat.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Result<Reply, Invalid> {
        let (name, value) = (name.into(), value.into());
        let name_ok = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
        if !name_ok || value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
            return Err(Invalid::Header(name));
        }
        self.headers.push((name, value));
        Ok(self)
    }

    /// Says that the effect of this 4xx is to be committed rather than rolled back.
    #[must_use]
    pub fn keep(mut self) -> Reply {
        self.mark = Mark::Keep;
        self
    }

    /// Says that this 5xx will not get better: the effect is rolled back, and retries get this reply again.
    #[must_use]
    pub fn terminal(mut self) -> Reply {
        self.mark = Mark::Terminal;
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Name and value of each header, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The body's bytes.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// What the handler said beyond the status. It is not stored.
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// How many bytes the stored form takes.
    pub fn stored_bytes(&self) -> usize {
        self.body.len() + self.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>()
    }

    /// The headers as HTTP field lines (`name: value`, CRLF), the form in which every store keeps them and which plain
    /// SQL can write and read.
    pub fn header_lines(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for (name, value) in &self.headers {
            lines.extend_from_slice(name.as_bytes());
            lines.extend_from_slice(b": ");
            lines.extend_from_slice(value);
            lines.extend_from_slice(b"\r\n");
        }
        lines
    }

    /// Reads back what [`Reply::header_lines`] and a store kept.
    pub fn from_stored(status: u16, header_lines: &[u8], body: Bytes) -> Result<Reply, Invalid> {
        let mut reply = Reply::new(status, body)?;
        let mut rest = header_lines;
        while !rest.is_empty() {
            let end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or(Invalid::StoredHeaders)?;
            let colon = rest[..end].windows(2).position(|pair| pair == b": ").ok_or(Invalid::StoredHeaders)?;
            let name = std::str::from_utf8(&rest[..colon]).map_err(|_| Invalid::StoredHeaders)?;
            reply = reply.header(name, &rest[colon + 2..end])?;
            rest = &rest[end + 2..];
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_stored_reply_reads_back_byte_for_byte(
            status in 200u16..600,
            headers in prop::collection::vec(("[a-z-]{1,20}", prop::collection::vec(any::<u8>(), 0..40)), 0..6),
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut reply = Reply::new(status, body).unwrap();
            for (name, value) in headers {
                let value: Vec<u8> = value.into_iter().filter(|b| !matches!(b, b'\r' | b'\n' | 0)).collect();
                reply = reply.header(name, value).unwrap();
            }
            let back = Reply::from_stored(reply.status(), &reply.header_lines(), reply.body().clone()).unwrap();
            prop_assert_eq!(back, reply);
        }
    }

    #[test]
    fn a_header_cannot_smuggle_a_line() {
        let reply = Reply::new(200, "").unwrap();
        assert!(reply.clone().header("x", "a\r\nset-cookie: b").is_err());
        assert!(reply.clone().header("x: y", "a").is_err());
        assert!(reply.header("", "a").is_err());
    }

    #[test]
    fn a_status_that_is_not_final_is_refused() {
        assert!(Reply::new(100, "").is_err());
        assert!(Reply::new(600, "").is_err());
    }
}
