//! How the suite reaches a broker.

use std::future::Future;

use semel::{Event, Sink};

/// A broker under test, with a topic of the test's own.
pub trait Harness: Sized {
    /// The sink under test.
    type Sink: Sink;

    /// Uses the server of `cargo xtask services up`, or of the broker's `SEMEL_TEST_…_URL`.
    fn shared() -> impl Future<Output = Self>;

    /// Uses a server that only this test has, and may kill.
    fn own() -> impl Future<Output = Self>;

    /// A new sink.
    fn connect(&self) -> impl Future<Output = Self::Sink>;

    /// Tries to connect with this password, which is wrong, and returns the error with its causes, as shown to people
    /// and as shown by `Debug`.
    fn connect_with_password(&self, password: &str) -> impl Future<Output = Result<(), String>>;

    /// Where events of this test can be published.
    fn topic(&self) -> String;

    /// Events of the ordering key that this broker refuses, one for each reason that it has.
    fn refused(&self, ordering_key: &str) -> impl Future<Output = Vec<Event>>;

    /// All that arrived at [`Harness::topic`], in order. It is asked once, at the end.
    fn arrived(&self) -> impl Future<Output = Vec<Arrived>>;

    /// Ends the server with SIGKILL.
    fn kill(&mut self);

    /// Starts the server again, at the same address, and returns when it takes events.
    fn restart(&mut self) -> impl Future<Output = ()>;
}

/// An event as a reader of the broker sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// The CloudEvents attribute `id`.
    pub id: String,
    /// The CloudEvents attribute `source`.
    pub source: String,
    /// The CloudEvents attribute `type`.
    pub event_type: String,
    /// The CloudEvents attribute `time`.
    pub time: String,
    /// The CloudEvents attribute `datacontenttype`.
    pub content_type: String,
    /// The ordering key.
    pub ordering_key: String,
    /// The lane.
    pub lane: u16,
    /// The sequence number.
    pub sequence: u64,
    /// The producer's incarnation.
    pub incarnation: String,
    /// The W3C trace context.
    pub traceparent: Option<String>,
    /// The vendors' part of it.
    pub tracestate: Option<String>,
    /// The event's own headers, sorted by name; values of one name in the order they arrived in.
    pub headers: Vec<(String, String)>,
    /// The payload.
    pub payload: Vec<u8>,
}
