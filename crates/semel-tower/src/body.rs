//! Reads a request's body, bounded in size and time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::BodyExt;

use crate::code;
use crate::problem::Problem;

/// How much of a body that is refused is still read, so that a client which is busy sending gets to see the answer
/// instead of a broken connection.
const MAX_DRAINED_BYTES: usize = 8 * 1024 * 1024;

/// The whole body, if it is at most `limit` bytes and arrives `within` the time. Otherwise a problem: `body-too-large`
/// or `body-incomplete`. No more than `limit` bytes are ever held in memory (I12).
pub async fn read_body(headers: &HeaderMap, body: Body, limit: usize, within: Duration) -> Result<Bytes, Problem> {
    match tokio::time::timeout(within, read(headers, body, limit)).await {
        Ok(result) => result,
        Err(_) => {
            let detail = format!("the request body did not arrive within {} ms; nothing ran", within.as_millis());
            Err(Problem::of(&code::BODY_INCOMPLETE, detail))
        }
    }
}

async fn read(headers: &HeaderMap, mut body: Body, limit: usize) -> Result<Bytes, Problem> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let mut too_large = announced.is_some_and(|length| length > limit as u64);
    if announced.is_some_and(|length| length > MAX_DRAINED_BYTES as u64) {
        return Err(refused(limit));
    }
    let (mut buffer, mut received) = (Vec::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(Problem::of(&code::BODY_INCOMPLETE, "the request body broke off; nothing ran"));
        };
        let Ok(data) = frame.into_data() else { continue };
        received += data.len();
        too_large |= received > limit;
        if too_large {
            buffer = Vec::new();
            if received > MAX_DRAINED_BYTES {
                break;
            }
        } else {
            buffer.extend_from_slice(&data);
        }
    }
    if too_large { Err(refused(limit)) } else { Ok(buffer.into()) }
}

fn refused(limit: usize) -> Problem {
    Problem::of(&code::BODY_TOO_LARGE, format!("the request body is larger than {limit} bytes; nothing ran"))
}
