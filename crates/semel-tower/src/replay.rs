//! From a handler's response to a stored reply, and back.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, response};
use semel::disposition::Mark;
use semel::{Reply, reply};

use crate::policy::Policy;
use crate::problem::NeverStored;

/// Tells a replay from a first answer.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The headers of a reply that are stored without being asked for.
pub const ALLOWED: &[&str] = &[
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-type",
    "etag",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "vary",
];

/// The headers that are never stored, whoever asks for them: they belong to one client, one connection or one moment.
pub const NEVER_STORED: &[&str] = &[
    "age",
    "authentication-info",
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "date",
    "idempotent-replayed",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// Says that the effect of this 4xx is to be committed with it, rather than rolled back.
pub fn keep(response: impl IntoResponse) -> Response {
    marked(response, Mark::Keep)
}

/// Says that this 5xx will not get better: the effect is rolled back, and retries get the same answer.
pub fn terminal(response: impl IntoResponse) -> Response {
    marked(response, Mark::Terminal)
}

/// A [`Reply`] as a handler's answer, with what it was marked as.
pub fn respond(reply: &Reply) -> Response {
    marked(response_of(reply), reply.mark())
}

fn marked(response: impl IntoResponse, mark: Mark) -> Response {
    let mut response = response.into_response();
    response.extensions_mut().insert(mark);
    response
}

/// Whether the answer stands for a mistake in the service or a passing failure, which a retry must not get again.
pub(crate) fn never_stored(parts: &response::Parts) -> bool {
    parts.extensions.get::<NeverStored>().is_some()
}

/// What the handler, or else the route's policy, says beyond the status.
pub(crate) fn mark_of(parts: &response::Parts, policy: &Policy) -> Mark {
    match parts.extensions.get::<Mark>() {
        None | Some(Mark::None) if policy.terminal.contains(&parts.status) => Mark::Terminal,
        None => Mark::None,
        Some(mark) => *mark,
    }
}

/// What is stored of a response: status, allowed headers with their order and repeats, body.
pub(crate) fn reply_of(
    parts: &response::Parts,
    body: &Bytes,
    mark: Mark,
    policy: &Policy,
) -> Result<Reply, reply::Invalid> {
    let mut reply = Reply::new(parts.status.as_u16(), body.clone())?;
    for (name, value) in parts.headers.iter().filter(|(name, _)| policy.allows(name)) {
        reply = reply.header(name.as_str(), value.as_bytes())?;
    }
    Ok(match mark {
        Mark::None => reply,
        Mark::Keep => reply.keep(),
        Mark::Terminal => reply.terminal(),
    })
}

/// A stored reply as the answer to a retry: byte for byte what the first answer held (I3), and the mark that it is a
/// replay.
pub(crate) fn replayed(reply: &Reply) -> Response {
    let mut response = response_of(reply);
    strip(&mut response);
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    response
}

/// Takes out what is never stored. A flow's reply is stored as it is, so what belongs to one client, one connection or
/// one moment must not get out of it, neither in its first answer nor in a replay.
pub(crate) fn strip(response: &mut Response) {
    for name in NEVER_STORED {
        response.headers_mut().remove(*name);
    }
}

/// A stored header that HTTP does not allow was written by something other than this layer; it is left out and told.
fn response_of(reply: &Reply) -> Response {
    let mut response = Response::new(Body::from(reply.body().clone()));
    *response.status_mut() = StatusCode::from_u16(reply.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in reply.headers() {
        match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
            (Ok(name), Ok(value)) => {
                response.headers_mut().append(name, value);
            }
            _ => tracing::error!(header = name, "a stored header cannot be sent over HTTP and was left out"),
        }
    }
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http_body_util::BodyExt;

    use super::*;

    fn parts(headers: &[(&'static str, &'static [u8])]) -> response::Parts {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::CREATED;
        for (name, value) in headers {
            response.headers_mut().append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        response.into_parts().0
    }

    #[tokio::test]
    async fn a_replay_has_the_allowed_headers_in_order_with_repeats_and_the_same_bytes() {
        let parts = parts(&[
            ("set-cookie", b"session=1"),
            ("link", b"</a>; rel=\"a\""),
            ("content-type", b"application/octet-stream"),
            ("x-cost", b"caf\xe9"),
            ("link", b"</b>; rel=\"b\""),
            ("x-private", b"1"),
        ]);
        let body = Bytes::from_static(b"\x00\xff\r\n\x80");
        let policy = Policy::new().allow_header("x-cost");
        let reply = reply_of(&parts, &body, Mark::None, &policy).unwrap();
        let stored = Reply::from_stored(201, &reply.header_lines(), reply.body().clone()).unwrap();
        let replay = replayed(&stored);
        assert_eq!(replay.status(), 201);
        let sent: Vec<(&str, &[u8])> =
            replay.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(
            sent,
            [
                ("link", b"</a>; rel=\"a\"".as_slice()),
                ("link", b"</b>; rel=\"b\""),
                ("content-type", b"application/octet-stream"),
                ("x-cost", b"caf\xe9"),
                ("idempotent-replayed", b"true"),
            ]
        );
        assert_eq!(replay.into_body().collect().await.unwrap().to_bytes(), body);
    }

    #[test]
    fn no_header_is_both_allowed_and_never_stored() {
        assert!(ALLOWED.iter().all(|name| !NEVER_STORED.contains(name)));
    }

    #[test]
    fn the_handlers_mark_wins_over_the_policy() {
        let policy = Policy::new().terminal([StatusCode::NOT_IMPLEMENTED]);
        let mark = |response: Response| mark_of(&response.into_parts().0, &policy);
        assert_eq!(mark(StatusCode::NOT_IMPLEMENTED.into_response()), Mark::Terminal);
        assert_eq!(mark(StatusCode::BAD_GATEWAY.into_response()), Mark::None);
        assert_eq!(mark(terminal(StatusCode::BAD_GATEWAY)), Mark::Terminal);
        assert_eq!(mark(keep(StatusCode::CONFLICT)), Mark::Keep);
    }
}
