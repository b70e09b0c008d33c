//! NATS JetStream: `nats://user:password@host:4222/?stream=NAME`.
//!
//! Each event goes to the subject *prefix + topic* with the header `Nats-Msg-Id` = event id, and counts as published
//! when the stream has acknowledged it. The stream drops a repeated id within its duplicate window.
//!
//! | parameter | meaning |
//! |---|---|
//! | `stream` | the stream that must store the events; required |
//! | `prefix` | comes before the topic in the subject, such as `orders.`; empty unless given |
//! | `create` | `true` creates a missing stream with the subjects *prefix*`>`; needs a prefix that ends in `.` |
//! | `tls` | `true` refuses a server without TLS |
//! | `tls_ca` | a PEM file with the authorities to trust beside the system's |
//! | `timeout_ms` | how long the server may take to answer, 10000 unless given |
//!
//! A user without password is a token. Dots in a topic separate the tokens of the subject. What NATS forbids there is
//! written as `%` and two hexadecimal digits: space, `*`, `>`, `%`, a `$` at the start, and a dot that would leave a
//! token empty. Other characters stay as they are.
//!
//! Headers follow the CloudEvents NATS binding in binary mode: `ce-id`, `ce-type`, `ce-source`, `ce-time`,
//! `ce-partitionkey` (the ordering key), `ce-datacontenttype`, percent-encoded as it demands; beside them
//! `semel-lane`, `semel-sequence`, `semel-incarnation`, `traceparent`, `tracestate` and the event's own.

mod connection;
mod source;

use std::borrow::Cow;
use std::time::Duration;

use async_nats::jetstream::context::{GetStreamByNameErrorKind, GetStreamErrorKind, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, Context, ErrorCode, stream};
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use futures_util::future::join_all;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use semel::Sink;
use semel::sink::{self, Guarantee, Lane, Outgoing, Position};

pub use source::{NatsSource, Receipt};

use connection::{Line, Server};

use crate::session::{Session, within};
use crate::url::SinkUrl;
use crate::wave::{self, refused, unavailable};
use crate::{Error, cloud_event, tls};

/// The most events of one batch that are unacknowledged at a time.
const WAVE: usize = 1024;

/// The attributes of [`cloud_event::attributes`] as headers, in the same order.
const ATTRIBUTES: [HeaderName; 6] = [
    HeaderName::from_static("ce-specversion"),
    HeaderName::from_static("ce-id"),
    HeaderName::from_static("ce-source"),
    HeaderName::from_static("ce-type"),
    HeaderName::from_static("ce-time"),
    HeaderName::from_static("ce-partitionkey"),
];

/// What the CloudEvents NATS binding has percent-encoded in an attribute.
const ATTRIBUTE: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// A stream that takes events.
#[derive(Debug)]
pub struct Nats {
    place: Place,
    session: Session<Line>,
    window: Duration,
}

/// What the URL says.
struct Place {
    server: Server,
    stream: String,
    prefix: String,
    create: bool,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}/{}", self.server, self.stream)
    }
}

impl Nats {
    /// Connects, and reads the stream's duplicate window. A stream that is missing is an error that says how to create
    /// it.
    pub async fn connect(url: &str) -> Result<Nats, Error> {
        let mut url = SinkUrl::parse(url)?;
        let place = Place {
            server: Server::of(&mut url)?,
            create: url.flag("create")?,
            prefix: url.text("prefix").unwrap_or_default(),
            stream: url.text("stream").unwrap_or_default(),
        };
        url.finish()?;
        connection::check_stream(&place.stream)?;
        if !place.prefix.is_empty() && subject("", &format!("{}x", place.prefix)) != format!("{}x", place.prefix) {
            return Err(Error::Url(format!("`prefix={}` cannot begin a NATS subject", place.prefix)));
        }
        if place.create && !place.prefix.ends_with('.') {
            return Err(Error::Url("`create=true` needs a `prefix` that ends in a dot".to_owned()));
        }
        tls::choose_cryptography();
        let (line, window) = within(place.server.timeout, async {
            let line = place.server.open().await?;
            let window = place.duplicate_window(&line.context).await?;
            Ok((line, window))
        })
        .await?;
        Ok(Nats { session: Session::new(line, place.server.timeout), place, window })
    }

    async fn send(&self, line: &Line, outgoing: &Outgoing) -> Result<(), sink::Error> {
        let subject = subject(&self.place.prefix, &outgoing.event.topic);
        let message = message(outgoing)?.expected_stream(&self.place.stream);
        let acknowledged = async { line.context.send_publish(subject.clone(), message).await?.await };
        let mut lost = line.lost.clone();
        let answer = tokio::select! {
            answer = acknowledged => answer,
            // Its acknowledgement would have come over this connection.
            _ = lost.wait_for(|lost| *lost) => {
                return Err(unavailable(format!("the connection to NATS at {} is lost", self.place.server.address)));
            }
        };
        match answer {
            Ok(_) => Ok(()),
            Err(error) => Err(self.failure(&line.context, &subject, error).await),
        }
    }

    /// Tells whose fault it was. Nobody answering on a subject may mean that no stream has it, or only that the
    /// stream's server is not up yet; so the server is asked which.
    async fn failure(&self, context: &Context, subject: &str, error: PublishError) -> sink::Error {
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => sink::Error::Refused(error.into()),
            PublishErrorKind::StreamNotFound => match context.stream_by_subject(subject).await {
                Err(missing) if matches!(missing.kind(), GetStreamByNameErrorKind::NotFound) => refused(format!(
                    "no stream stores the subject {subject}: add it with `nats stream edit {} --subjects …`",
                    self.place.stream
                )),
                _ => unavailable(format!("the stream {} does not answer", self.place.stream)),
            },
            PublishErrorKind::Other => {
                let answer = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<jetstream::Error>());
                // JetStream's codes are HTTP's: 4xx stays wrong however often it is sent, unless it is about the
                // account or the stream as a whole.
                let whole = [ErrorCode::ACCOUNT_RESOURCES_EXCEEDED, ErrorCode::STREAM_SEALED];
                match answer {
                    Some(answer) if whole.contains(&answer.error_code()) => sink::Error::Unavailable(error.into()),
                    Some(answer) if (400..500).contains(&answer.code()) => sink::Error::Refused(error.into()),
                    _ => sink::Error::Unavailable(error.into()),
                }
            }
            _ => sink::Error::Unavailable(error.into()),
        }
    }
}

impl Sink for Nats {
    fn guarantee(&self) -> Guarantee {
        Guarantee::Deduplicated { window: self.window }
    }

    async fn take_lane(&self, _lane: Lane) -> Result<Option<Position>, sink::Error> {
        Ok(None)
    }

    async fn publish(&self, _: Lane, batch: &[Outgoing], _: &Position) -> Vec<Result<(), sink::Error>> {
        match self.session.get(Line::holds, self.place.server.open()).await {
            Ok(line) => {
                let line = &line;
                wave::publish(batch, WAVE, |wave| join_all(wave.into_iter().map(move |it| self.send(line, it)))).await
            }
            Err(error) => wave::fail(batch, error).await,
        }
    }

    async fn close(&self) {
        if let Some(line) = self.session.close().await {
            // Every acknowledged event is in the stream already; this lets the server see an orderly end.
            let _ = tokio::time::timeout(self.place.server.timeout, line.context.client().drain()).await;
        }
    }
}

impl Place {
    async fn duplicate_window(&self, context: &Context) -> Result<Duration, Error> {
        let (stream, prefix) = (&self.stream, &self.prefix);
        let error = match context.get_stream(stream).await {
            Ok(found) => return Ok(found.cached_info().config.duplicate_window),
            Err(error) => error,
        };
        match error.kind() {
            GetStreamErrorKind::JetStream(answer) if answer.code() == 404 && self.create => {
                let subjects = vec![format!("{prefix}>")];
                let config = stream::Config { name: stream.clone(), subjects, ..stream::Config::default() };
                let created = context.create_stream(config).await;
                let created = created.map_err(|error| Error::Refused(format!("stream {stream}: {error}")))?;
                Ok(created.cached_info().config.duplicate_window)
            }
            GetStreamErrorKind::JetStream(answer) if answer.code() == 404 => Err(Error::Refused(format!(
                "the stream {stream} does not exist: create it with `nats stream add {stream} --subjects '{prefix}>'`, \
                 or add `create=true` to the URL"
            ))),
            GetStreamErrorKind::JetStream(answer) => Err(Error::Refused(format!("stream {stream}: {answer}"))),
            _ => Err(Error::Unavailable(format!("JetStream at {} does not answer: {error}", self.server.address))),
        }
    }
}

/// The subject of a topic.
fn subject(prefix: &str, topic: &str) -> String {
    let mut subject = String::with_capacity(prefix.len() + topic.len());
    subject.push_str(prefix);
    for (at, character) in topic.char_indices() {
        let first = subject.is_empty() || subject.ends_with('.');
        match character {
            ' ' => subject.push_str("%20"),
            '*' => subject.push_str("%2A"),
            '>' => subject.push_str("%3E"),
            '%' => subject.push_str("%25"),
            '$' if subject.is_empty() => subject.push_str("%24"),
            '.' if first || at + 1 == topic.len() => subject.push_str("%2E"),
            other => subject.push(other),
        }
    }
    subject
}

fn message(outgoing: &Outgoing) -> Result<PublishMessage, sink::Error> {
    let mut headers = HeaderMap::new();
    let encoded = |text: &str| Cow::from(utf8_percent_encode(text, ATTRIBUTE)).into_owned();
    for (name, (_, value)) in ATTRIBUTES.into_iter().zip(cloud_event::attributes(outgoing)) {
        headers.insert(name, encoded(&value));
    }
    headers.insert(HeaderName::from_static("ce-datacontenttype"), encoded(&outgoing.event.content_type));
    for (name, value) in cloud_event::coordinates(outgoing) {
        headers.insert(HeaderName::from_static(name), encoded(&value));
    }
    for (name, value) in cloud_event::trace_context(outgoing) {
        headers.insert(name, encoded(value));
    }
    for (name, value) in cloud_event::headers(outgoing) {
        let invalid = |what: &str| refused(format!("NATS cannot carry the header {name}: its {what} is not allowed"));
        let valid: HeaderName = name.parse().map_err(|_| invalid("name"))?;
        headers.append(valid, value.parse::<HeaderValue>().map_err(|_| invalid("value"))?);
    }
    let payload = outgoing.event.payload.clone();
    Ok(PublishMessage::build().headers(headers).payload(payload).message_id(outgoing.id.to_string()))
}

#[cfg(test)]
mod tests {
    use super::subject;

    #[test]
    fn what_nats_forbids_in_a_subject_is_escaped() {
        let cases = [
            ("orders", "orders"),
            ("orders.eu", "orders.eu"),
            ("two words", "two%20words"),
            ("a.*.>", "a.%2A.%3E"),
            ("50%", "50%25"),
            ("$SYS.x", "%24SYS.x"),
            (".a", "%2Ea"),
            ("a.", "a%2E"),
            ("a..b", "a.%2Eb"),
            ("...", "%2E.%2E"),
            (".", "%2E"),
            ("zürich", "zürich"),
        ];
        for (topic, expected) in cases {
            assert_eq!(subject("", topic), expected, "{topic}");
            let prefixed = subject("p.", topic);
            assert!(prefixed.starts_with("p.") && !prefixed.contains("..") && !prefixed.ends_with('.'), "{prefixed}");
        }
        assert_eq!(subject("p.", "$x"), "p.$x");
    }

    #[test]
    fn two_topics_never_share_a_subject() {
        let topics = ["a b", "a%20b", "a..b", "a.%2Eb", "a.", "a%2E", "a", "...", "%2E.%2E", "..", "."];
        let subjects: std::collections::HashSet<_> = topics.iter().map(|topic| subject("", topic)).collect();
        assert_eq!(subjects.len(), topics.len());
    }
}
