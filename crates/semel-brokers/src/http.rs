//! Webhooks, sent and received. [`HttpSource`] receives them; the rest is about sending: each event is posted to one
//! receiver, in the binary mode of CloudEvents, signed by Standard Webhooks.
//!
//! The receiver acknowledges with any 2xx, and the event counts as published from then on (I4). Whatever happens
//! before, it is sent again with the same `webhook-id`, so a receiver that remembers ids applies it once. The next
//! event of an ordering key is sent only after the one before it was acknowledged (I5); different keys travel side by
//! side.
//!
//! | header | holds |
//! |---|---|
//! | `ce-id`, `webhook-id` | the event's id, the same on every attempt |
//! | `ce-specversion`, `ce-source`, `ce-type`, `ce-time`, `content-type` | the CloudEvents attributes |
//! | `ce-partitionkey` | the ordering key |
//! | `semel-topic`, `semel-lane`, `semel-sequence`, `semel-incarnation` | the event's place in the outbox |
//! | `traceparent`, `tracestate` | the trace context, if the event has one |
//! | `webhook-timestamp`, `webhook-signature` | the attempt's time in seconds, and one signature per secret |
//!
//! The event's own headers travel under their own names, except that a name of ours or one that steers the connection
//! is set aside as `semel-header-…`: an event can neither forge its identity nor split its request. Values of
//! attributes outside of printable ASCII are percent-encoded, as CloudEvents says.
//!
//! **What an answer means.** 2xx: acknowledged. 4xx: this event is refused, except 401, 407, 408, 409, 421, 425 and
//! 429. Those, 5xx, a redirect, no answer in time, no connection, no address: try again later, and not before
//! `Retry-After` where the receiver names it. Redirects are never followed.
//!
//! **Where it may go.** Only to public addresses, unless the options say otherwise; see [`Options::allow_loopback`].
//! The name is resolved once per connection and the connection is made to an address that was checked. An address
//! that may not be reached is no event's fault: events wait in the outbox until the name or the setting is right.

mod address;
mod answer;
mod dial;
mod error;
mod gate;
mod headers;
mod options;
mod sign;
mod source;
mod target;
mod tls;
mod verify;
mod waiting;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use semel::sink::{self, Guarantee, Lane, Outgoing, Position, Sink};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

pub use address::Blocked;
pub use dial::{Addresses, Resolve, SystemResolver};
pub use error::{Error, Failure};
pub use options::Options;
pub use sign::Secret;
pub use source::HttpSource;
pub use waiting::Receipt;

use address::Reach;
use dial::{Dialer, Line};
use target::Target;

/// The most bytes of an answer's body that are read. They are thrown away: reading them keeps the connection.
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// The most bytes of an answer's head.
const MAX_HEAD_BYTES: usize = 32 * 1024;

/// Posts events to one receiver, at least once each.
pub struct HttpSink {
    client: Client<Dialer, Full<Bytes>>,
    target: Target,
    options: Options,
    /// Before this time, in milliseconds since the Unix epoch, the receiver is left alone.
    not_before_ms: AtomicI64,
    permits: Semaphore,
}

impl HttpSink {
    /// A sink that posts to `url`. User and password in it become `Authorization: Basic`.
    ///
    /// An address in the URL is checked now, a name each time it is connected to.
    pub fn new(url: &str, options: Options) -> Result<HttpSink, Error> {
        let target = Target::parse(url)?;
        let reach = Reach { loopback: options.allow_loopback, private: options.allow_private };
        if let Some(address) = target.address() {
            reach.check(address)?;
        }
        let tls = match target.tls {
            true => Some(tls::connector(&target.host, options.roots_file.as_deref())?),
            false => None,
        };
        let resolver = options.resolver.clone();
        let dialer = Dialer(Arc::new(Line { host: target.host.clone(), port: target.port, tls, reach, resolver }));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(options.concurrency)
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .build(dialer);
        let permits = Semaphore::new(options.concurrency.clamp(1, options::MAX_CONCURRENCY));
        Ok(HttpSink { client, target, options, not_before_ms: AtomicI64::new(i64::MIN), permits })
    }

    /// A sink whose options are parameters of the URL. They are taken out of it; the receiver sees the rest.
    ///
    /// `semel_secret` and `semel_secret_file` (one secret per line) may repeat; `semel_allow_loopback`,
    /// `semel_allow_private`, `semel_timeout_ms`, `semel_concurrency`, `semel_retry_after_limit_ms` and
    /// `semel_roots_file` are the fields of [`Options`]. An unknown parameter that begins with `semel_` is an error
    /// that names it.
    pub fn from_url(url: &str) -> Result<HttpSink, Error> {
        let (url, options) = options::from_url(url)?;
        HttpSink::new(&url, options)
    }

    /// Publishes the events of one ordering key, each after the one before it was acknowledged (I5). Once the receiver
    /// is down for one key of the batch, nothing more of the batch is begun: to wait for it once per key would only
    /// take longer to say the same.
    async fn publish_key(
        &self,
        batch: &[Outgoing],
        places: Vec<usize>,
        down: &AtomicBool,
    ) -> Vec<(usize, Result<(), sink::Error>)> {
        let mut results = Vec::with_capacity(places.len());
        let mut behind = false;
        for place in places {
            let result = if behind { Err(sink::Error::Behind) } else { self.deliver(&batch[place], down).await };
            behind |= result.is_err();
            results.push((place, result));
        }
        results
    }

    /// One attempt. After `Ok` the receiver has acknowledged; after an error it may have applied the event all the
    /// same, and will see the same id again.
    async fn deliver(&self, outgoing: &Outgoing, down: &AtomicBool) -> Result<(), sink::Error> {
        let _permit = self.permits.acquire().await.map_err(|closed| sink::Error::Unavailable(closed.into()))?;
        if down.load(Ordering::Relaxed) {
            return Err(sink::Error::Unavailable(Failure::Down.into()));
        }
        let result = self.attempt(outgoing).await;
        if result.as_ref().is_err_and(says_nothing_of_the_event) {
            down.store(true, Ordering::Relaxed);
        }
        result
    }

    async fn attempt(&self, outgoing: &Outgoing) -> Result<(), sink::Error> {
        let now_ms = self.options.clock.now_ms();
        self.spare_the_receiver(now_ms)?;
        let timestamp_s = now_ms.div_euclid(1000);
        let authorization = self.target.authorization.as_ref();
        let headers = headers::headers(outgoing, authorization, &self.options.secrets, timestamp_s)
            .map_err(|failure| sink::Error::Refused(failure.into()))?;
        let mut request = Request::new(Full::new(outgoing.event.payload.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.target.uri.clone();
        *request.headers_mut() = headers;
        // The client leaves it out where there is no body, and some servers then wait for one.
        request.headers_mut().insert(CONTENT_LENGTH, outgoing.event.payload.len().into());
        let deadline = Instant::now() + self.options.timeout;
        let answer = match timeout_at(deadline, self.client.request(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(sink::Error::Unavailable(Failure::Transport(error.into()).into())),
            Err(_) => return Err(sink::Error::Unavailable(Failure::Timeout(self.options.timeout).into())),
        };
        let status = answer.status();
        let limit = self.options.retry_after_limit;
        if let Some(pause) = answer::pause(status, answer.headers(), self.options.clock.now_ms(), limit) {
            let until_ms = self.options.clock.now_ms().saturating_add(millis(pause));
            self.not_before_ms.fetch_max(until_ms, Ordering::Relaxed);
        }
        drain(answer, deadline).await;
        answer::judge(status)
    }

    /// Fails while the receiver has asked to be left alone. A clock that was set back does not lengthen the wait
    /// beyond the limit.
    fn spare_the_receiver(&self, now_ms: i64) -> Result<(), sink::Error> {
        let left_ms = self.not_before_ms.load(Ordering::Relaxed).saturating_sub(now_ms);
        if left_ms <= 0 || left_ms > millis(self.options.retry_after_limit) {
            return Ok(());
        }
        let left = Duration::from_millis(left_ms.unsigned_abs());
        Err(sink::Error::Unavailable(Failure::Waiting(left).into()))
    }
}

impl Sink for HttpSink {
    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    fn fills_gaps(&self) -> bool {
        false
    }

    async fn take_lane(&self, _: Lane) -> Result<Option<Position>, sink::Error> {
        Ok(None)
    }

    async fn publish(&self, _: Lane, batch: &[Outgoing], _: &Position) -> Vec<Result<(), sink::Error>> {
        let mut keys: HashMap<&str, Vec<usize>> = HashMap::new();
        for (place, outgoing) in batch.iter().enumerate() {
            keys.entry(&outgoing.event.ordering_key).or_default().push(place);
        }
        // In the batch's order, so that under a limit the oldest events go first.
        let mut keys: Vec<_> = keys.into_values().collect();
        keys.sort_unstable_by_key(|places| places[0]);
        let down = AtomicBool::new(false);
        let mut running = FuturesUnordered::new();
        for places in keys {
            running.push(self.publish_key(batch, places, &down));
        }
        let mut results: Vec<_> = batch.iter().map(|_| Err(sink::Error::Behind)).collect();
        while let Some(published) = running.next().await {
            for (place, result) in published {
                results[place] = result;
            }
        }
        results
    }

    /// Takes no more events. What is under way is still answered; what was acknowledged is with the receiver.
    async fn close(&self) {
        self.permits.close();
    }
}

impl std::fmt::Debug for HttpSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpSink")
            .field("origin", &self.target.origin())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Whether an attempt failed before the receiver said anything about the event.
fn says_nothing_of_the_event(error: &sink::Error) -> bool {
    let sink::Error::Unavailable(source) = error else { return false };
    matches!(source.downcast_ref(), Some(Failure::Timeout(_) | Failure::Transport(_) | Failure::Waiting(_)))
}

/// Reads the rest of an answer so that its connection can be used again, up to a bound; past it the connection is
/// dropped. The status has been seen, so nothing here changes what it meant.
async fn drain(answer: Response<Incoming>, deadline: Instant) {
    let mut body = answer.into_body();
    let mut left = MAX_ANSWER_BYTES;
    while let Ok(Some(Ok(frame))) = timeout_at(deadline, body.frame()).await {
        let read = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(read) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
