//! A client that sends what it is told, over HTTP/1.1.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

pub type Client = HyperClient<HttpConnector, Body>;

pub fn client() -> Client {
    HyperClient::builder(TokioExecutor::new()).build_http()
}

/// A request in the making. It is sent by tenant `a` as JSON unless told otherwise.
#[derive(Clone)]
pub struct Sending {
    client: Client,
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Sending {
    pub fn new(client: Client, method: Method, url: String) -> Sending {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_static("Bearer a1"));
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        Sending { client, method, url, headers, body: Bytes::from_static(b"{\"amount\":1}") }
    }

    /// Adds a line `Idempotency-Key` with these bytes.
    pub fn key(self, value: impl AsRef<[u8]>) -> Sending {
        self.header("idempotency-key", value)
    }

    /// Adds a header line.
    pub fn header(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Sending {
        self.headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_ref()).unwrap());
        self
    }

    /// Sends another token, or none if it is empty.
    pub fn token(mut self, token: &str) -> Sending {
        self.headers.remove("authorization");
        if !token.is_empty() {
            self.headers.insert("authorization", format!("Bearer {token}").try_into().unwrap());
        }
        self
    }

    pub fn content_type(mut self, value: &'static str) -> Sending {
        self.headers.insert("content-type", HeaderValue::from_static(value));
        self
    }

    pub fn body(mut self, body: impl Into<Bytes>) -> Sending {
        self.body = body.into();
        self
    }

    pub async fn send(self) -> Answer {
        let body = Body::from(self.body.clone());
        self.send_body(body).await
    }

    /// Sends without announcing the length.
    pub async fn send_chunked(self) -> Answer {
        let frame = Ok::<_, std::convert::Infallible>(self.body.clone());
        let body = Body::from_stream(futures_util::stream::once(std::future::ready(frame)));
        self.send_body(body).await
    }

    async fn send_body(self, body: Body) -> Answer {
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.url.parse().unwrap();
        *request.headers_mut() = self.headers;
        let (parts, body) = self.client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: parts.status, headers: parts.headers, body }
    }
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn replayed(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }

    /// The header lines that a replay must repeat, in order.
    pub fn lines(&self) -> Vec<(String, Vec<u8>)> {
        let one_answers_own = ["date", "idempotent-replayed", "set-cookie", "x-private"];
        let lines = self.headers.iter().filter(|(name, _)| !one_answers_own.contains(&name.as_str()));
        lines.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
    }

    /// Asserts that this is a replay of `first`, byte for byte (I3).
    #[track_caller]
    pub fn replays(&self, first: &Answer) {
        assert!(!first.replayed() && self.replayed(), "{self:?} should replay {first:?}");
        assert_eq!((self.status, self.lines(), &self.body), (first.status, first.lines(), &first.body));
    }

    /// Asserts that this is a first answer with this status.
    #[track_caller]
    pub fn ran(&self, status: u16) -> &Answer {
        assert!(self.status.as_u16() == status && !self.replayed(), "{self:?}");
        self
    }

    /// Asserts that this is the problem with this status and code, in the form that the contract gives it.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        assert_eq!(self.headers["link"], "</idempotency-policy>; rel=\"describedby\"", "{self:?}");
        let members: Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(members["type"], format!("urn:semel:problem:{code}"), "{members}");
        assert_eq!(members["code"], code, "{members}");
        assert_eq!(members["status"], status, "{members}");
        assert!(members["title"].is_string() && members["detail"].is_string(), "{members}");
        members
    }

    /// The seconds in `Retry-After`.
    #[track_caller]
    pub fn retry_after(&self) -> u64 {
        let value = self.headers.get("retry-after").unwrap_or_else(|| panic!("no Retry-After in {self:?}"));
        value.to_str().unwrap().parse().unwrap()
    }
}
