//! What a source does with a request: believes it or not, hands its message out, and answers when it is applied.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use semel::source::Received;
use semel::{Clock, SystemClock, event, inbox};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::verify::{Trusted, Wrong, verify};
use super::waiting::{Answer, Receipt, Waiting};
use crate::incoming::Incoming;

/// The most bytes of bodies that are held at once, over all requests and messages that are not settled, in KiB (I12).
const ROOM_KIB: usize = 64 * 1024;

/// How long a sender may take to send its body.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// After so many seconds a sender should try again.
const RETRY_SECONDS: &str = "1";

/// Headers that are the connection's, or a secret between the sender and this machine: no part of the message.
const DROPPED: [&str; 17] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Judges requests.
pub(super) struct Gate {
    path: String,
    trusted: Vec<Trusted>,
    tolerance: Duration,
    wait: Duration,
    waiting: Arc<Waiting>,
    queue: mpsc::Sender<Received<Receipt>>,
    room: Arc<Semaphore>,
}

/// Why a request is not answered with success.
struct Problem {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
}

const fn problem(status: StatusCode, code: &'static str, title: &'static str) -> Problem {
    Problem { status, code, title }
}

/// What a sender is told who should send the same again.
const LATER: Problem =
    problem(StatusCode::SERVICE_UNAVAILABLE, "not-applied", "The message is not applied yet. Send it again.");

const TOO_LARGE: Problem =
    problem(StatusCode::PAYLOAD_TOO_LARGE, "message-too-large", "The message is larger than 1 MiB.");

impl Gate {
    pub(super) fn new(
        path: String,
        trusted: Vec<Trusted>,
        tolerance: Duration,
        wait: Duration,
        queue: mpsc::Sender<Received<Receipt>>,
    ) -> Gate {
        let (waiting, room) = (Arc::default(), Arc::new(Semaphore::new(ROOM_KIB)));
        Gate { path, trusted, tolerance, wait, waiting, queue, room }
    }

    /// Answers a request: 204 only after the message's effect is committed.
    pub(super) async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        match self.judge(request).await {
            Ok(()) => {
                let mut response = Response::new(Full::default());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            Err(problem) => problem.response(),
        }
    }

    async fn judge<B>(&self, request: Request<B>) -> Result<(), Problem>
    where
        B: hyper::body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        let (head, body) = request.into_parts();
        if head.uri.path() != self.path {
            return Err(problem(StatusCode::NOT_FOUND, "not-found", "There is no source at this path."));
        }
        if head.method != Method::POST {
            return Err(problem(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Messages are sent with POST."));
        }
        let id = self.id(&head.headers)?;
        let room = self.make_room(&head.headers)?;
        let read = Limited::new(body, event::MAX_PAYLOAD_BYTES).collect();
        let body = match tokio::time::timeout(BODY_WITHIN, read).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(TOO_LARGE),
            Ok(Err(_)) => return Err(problem(StatusCode::BAD_REQUEST, "body-broken", "The body cannot be read.")),
            Err(_) => return Err(problem(StatusCode::REQUEST_TIMEOUT, "body-slow", "The body took too long.")),
        };
        self.believe(&head.headers, id, &body)?;

        let mut place = self.waiting.enter(id);
        if let Some(receipt) = place.first.take() {
            // The message may outlast this request: its sender may go, or be told to come again.
            receipt.keep(room);
            let received = self.received(&head, id, body, receipt);
            // Nobody receives, or not fast enough.
            self.queue.try_send(received).map_err(|_| LATER)?;
        }
        match tokio::time::timeout(self.wait, place.answer()).await {
            Ok(Answer::Applied) => Ok(()),
            Ok(Answer::Later) | Err(_) => Err(LATER),
        }
    }

    /// The message's id. With a dot it could pass a signature over something else for its own.
    fn id<'a>(&self, headers: &'a HeaderMap) -> Result<&'a str, Problem> {
        let id = only(headers, "webhook-id").filter(|id| (1..=inbox::MAX_ID_BYTES).contains(&id.len()));
        let usable = |id: &&str| id.bytes().all(|byte| byte.is_ascii_graphic() && (byte != b'.' || !self.verifies()));
        id.filter(usable).ok_or(problem(
            StatusCode::BAD_REQUEST,
            "webhook-id-invalid",
            "The header webhook-id must be there once, with 1 to 255 visible ASCII characters, and no dot if signed.",
        ))
    }

    fn verifies(&self) -> bool {
        !self.trusted.is_empty()
    }

    /// Takes room for a body, before it is read.
    fn make_room(&self, headers: &HeaderMap) -> Result<OwnedSemaphorePermit, Problem> {
        let told = only(headers, CONTENT_LENGTH.as_str()).and_then(|length| length.parse::<usize>().ok());
        let bytes = told.unwrap_or(event::MAX_PAYLOAD_BYTES);
        if bytes > event::MAX_PAYLOAD_BYTES {
            return Err(TOO_LARGE);
        }
        let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX);
        Arc::clone(&self.room).try_acquire_many_owned(kib).map_err(|_| LATER)
    }

    fn believe(&self, headers: &HeaderMap, id: &str, body: &[u8]) -> Result<(), Problem> {
        if !self.verifies() {
            return Ok(());
        }
        let text = |name| only(headers, name).unwrap_or_default();
        let (timestamp, signatures) = (text("webhook-timestamp"), text("webhook-signature"));
        let now_ms = SystemClock.now_ms();
        verify(&self.trusted, id, timestamp, signatures, body, now_ms, self.tolerance).map_err(|wrong| {
            let (code, title) = match wrong {
                Wrong::Timestamp => ("timestamp-invalid", "The header webhook-timestamp must be a number of seconds."),
                Wrong::Tolerance => ("timestamp-out-of-tolerance", "The message was signed too long ago, or too soon."),
                Wrong::Signature => ("signature-invalid", "No signature is by a key that is trusted here."),
            };
            problem(StatusCode::UNAUTHORIZED, code, title)
        })
    }

    /// The message. It is known by the id that is signed, whatever `ce-id` says.
    fn received(&self, head: &Parts, id: &str, body: Bytes, receipt: Receipt) -> Received<Receipt> {
        let mut incoming = Incoming::default();
        for (name, value) in &head.headers {
            let (name, value) = (name.as_str(), String::from_utf8_lossy(value.as_bytes()));
            match name {
                "ce-id" if value == id => {}
                "ce-id" => incoming.own(name, value),
                _ if DROPPED.contains(&name) || name.starts_with("webhook-") || name.starts_with("proxy-") => {}
                _ => incoming.header(name, &value),
            }
        }
        incoming.attribute("id", id);
        if let Some(value) = head.headers.get(CONTENT_TYPE) {
            incoming.or_attribute("datacontenttype", &String::from_utf8_lossy(value.as_bytes()));
        }
        incoming.finish(&self.path, None, body, receipt)
    }
}

impl Problem {
    fn response(&self) -> Response<Full<Bytes>> {
        let body = format!(
            r#"{{"type":"urn:semel:problem:{0}","title":"{1}","status":{2},"code":"{0}"}}"#,
            self.code,
            self.title,
            self.status.as_u16()
        );
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.status {
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(ALLOW, HeaderValue::from_static("POST"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
            }
            _ => {}
        }
        response
    }
}

/// The value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_sender_that_goes_does_not_free_the_room_of_its_message() {
        let (queue, mut incoming) = mpsc::channel(1024);
        let second = Duration::from_secs(1);
        let gate = Gate::new("/in".to_owned(), Vec::new(), second, second, queue);
        // Breaks off as soon as nothing more can be done for it: `None` says that its message waits to be received.
        let send = |id: usize| {
            let body = Full::new(Bytes::from(vec![0; event::MAX_PAYLOAD_BYTES]));
            let length = event::MAX_PAYLOAD_BYTES;
            let request = Request::post("/in").header("webhook-id", id).header(CONTENT_LENGTH, length);
            gate.answer(request.body(body).unwrap()).now_or_never().map(|response| response.status())
        };
        let held = (0..1000).take_while(|id| send(*id).is_none()).count();
        assert_eq!(held, ROOM_KIB / (event::MAX_PAYLOAD_BYTES / 1024 + 1));
        assert_eq!(send(1000), Some(StatusCode::SERVICE_UNAVAILABLE));

        let mut received = Vec::new();
        incoming.recv_many(&mut received, 1024).await;
        assert_eq!(received.len(), held);
        assert_eq!(send(1001), Some(StatusCode::SERVICE_UNAVAILABLE), "they are in hand");
        received[0].receipt.settle(Answer::Applied);
        assert_eq!((send(1002), send(1003)), (None, Some(StatusCode::SERVICE_UNAVAILABLE)));
        drop(received.remove(1));
        assert_eq!((send(1004), send(1005)), (None, Some(StatusCode::SERVICE_UNAVAILABLE)));
    }
}
