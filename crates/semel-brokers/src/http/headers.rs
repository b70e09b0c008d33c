//! The headers of a webhook: CloudEvents in binary mode, Semel's own, the trace context, the signature, and the
//! event's headers where they cannot be mistaken for any of these.

use std::borrow::Cow;
use std::fmt::Write;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use semel::sink::Outgoing;

use super::{Failure, Secret};
use crate::cloud_event;

/// Under this prefix travel the event's headers whose names are taken.
const SET_ASIDE: &str = "semel-header-";

/// Names that an event's header does not get, beside `ce-`, `webhook-`, `semel-` and `proxy-`: ours, and those that
/// steer the connection rather than describe the event.
const TAKEN: [&str; 16] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "date",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// All headers of one attempt. The id and everything derived from the event are the same on every attempt (I5); the
/// timestamp, and with it the signature, is the attempt's.
pub(super) fn headers(
    outgoing: &Outgoing,
    authorization: Option<&HeaderValue>,
    secrets: &[Secret],
    timestamp_s: i64,
) -> Result<HeaderMap, Failure> {
    let event = &outgoing.event;
    let id = outgoing.id.to_string();
    let mut headers = HeaderMap::with_capacity(20 + event.headers.len());
    for (name, value) in &event.headers {
        let carried = carried_as(name);
        let unusable = || Failure::Header(name.clone());
        let name = HeaderName::from_bytes(carried.as_bytes()).map_err(|_| unusable())?;
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| unusable())?);
    }
    let mut set = |name: &str, value: &[u8]| {
        let unusable = || Failure::Header(name.to_owned());
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unusable())?;
        headers.insert(header, HeaderValue::from_bytes(value).map_err(|_| unusable())?);
        Ok::<_, Failure>(())
    };
    for (name, value) in cloud_event::attributes(outgoing) {
        set(&format!("ce-{name}"), encoded(&value).as_bytes())?;
    }
    set("semel-topic", encoded(&event.topic).as_bytes())?;
    for (name, value) in cloud_event::coordinates(outgoing) {
        set(name, encoded(&value).as_bytes())?;
    }
    for (name, value) in cloud_event::trace_context(outgoing) {
        set(name, value.as_bytes())?;
    }
    set("content-type", event.content_type.as_bytes())?;
    set("user-agent", concat!("semel/", env!("CARGO_PKG_VERSION")).as_bytes())?;
    set("webhook-id", id.as_bytes())?;
    set("webhook-timestamp", timestamp_s.to_string().as_bytes())?;
    if !secrets.is_empty() {
        let signatures: Vec<_> = secrets.iter().map(|secret| secret.sign(&id, timestamp_s, &event.payload)).collect();
        set("webhook-signature", signatures.join(" ").as_bytes())?;
    }
    if let Some(authorization) = authorization {
        headers.insert(AUTHORIZATION, authorization.clone());
    }
    Ok(headers)
}

/// The name under which an event's header travels.
fn carried_as(name: &str) -> Cow<'_, str> {
    let lower = name.to_ascii_lowercase();
    let taken = ["ce-", "webhook-", "semel-", "proxy-"].iter().any(|prefix| lower.starts_with(prefix));
    if taken || TAKEN.contains(&lower.as_str()) { format!("{SET_ASIDE}{lower}").into() } else { name.into() }
}

/// A value as the HTTP binding of CloudEvents writes it: printable ASCII stays, the rest is percent-encoded.
fn encoded(value: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'%';
    if value.bytes().all(plain) {
        return value.into();
    }
    let mut text = String::with_capacity(value.len() * 3);
    for byte in value.bytes() {
        if plain(byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_cannot_take_a_name_that_is_ours_or_steers_the_connection() {
        for name in TAKEN.into_iter().chain(["CE-Id", "Webhook-Signature", "semel-sequence", "Proxy-Authorization"]) {
            assert_eq!(carried_as(name), format!("semel-header-{}", name.to_ascii_lowercase()));
        }
        assert_eq!(carried_as("semel-header-host"), "semel-header-semel-header-host");
        assert_eq!(carried_as("tenant"), "tenant");
        assert_eq!(carried_as("certificate"), "certificate");
    }

    #[test]
    fn attributes_are_percent_encoded_as_cloudevents_says() {
        assert_eq!(encoded("plain-/:ascii~"), "plain-/:ascii~");
        assert_eq!(encoded("a b\"%"), "a%20b%22%25");
        assert_eq!(encoded("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80");
    }
}
