//! Messages from a stream: `nats://user:password@host:4222/?stream=NAME`.
//!
//! A durable pull consumer named after Semel's consumer keeps what is acknowledged. It is created if it is missing, and
//! begins with the first message that the stream has; one that exists is used if nothing gets lost by it.
//!
//! | parameter | meaning |
//! |---|---|
//! | `stream` | the stream to read; required |
//! | `subject` | only messages of this subject, wildcards allowed; all unless given |
//! | `prefix` | what the publisher puts before the topic in a subject; empty unless given |
//! | `ack_wait` | after which time without news a message is delivered again, `30s` unless given |
//! | `max_ack_pending` | how many messages may be unacknowledged, 10000 unless given |
//! | `redelivery` | for how long the publisher or an operator may bring a message again, such as `7d` |
//! | `tls`, `tls_ca`, `timeout_ms` | as for the sink |
//!
//! A message is known by `ce-id`, else by `Nats-Msg-Id`, else by its place: stream, sequence and the second of its
//! arrival there, for a stream that was deleted and made again counts from one again.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::Subject;
use async_nats::jetstream::consumer::pull::{Batch, Config};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{ConsumerErrorKind, Stream};
use async_nats::jetstream::{self, AckKind};
use bytes::Bytes;
use futures_util::StreamExt;
use percent_encoding::percent_decode_str;
use semel::source::{self, Received, Redelivery, Source};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;

use super::connection::{Line, Server, check_stream};
use crate::incoming::Incoming;
use crate::session::{Session, within};
use crate::subscription::Subscription;
use crate::url::SinkUrl;
use crate::{Error, tls};

/// How long the server keeps a request for messages while there are none.
const EXPIRY: Duration = Duration::from_secs(5);

/// How long messages that are on their way are waited for, once there is one.
const COMPANY: Duration = Duration::from_millis(20);

/// How long nothing must come before a request counts as answered, when nobody reads on.
const QUIET: Duration = Duration::from_millis(200);

/// Pauses after a request that brought nothing at once, because others wait for what there is or too much is
/// unacknowledged.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// The name of one delivery: where its acknowledgement goes. It holds over a reconnection.
#[derive(Debug)]
pub struct Receipt {
    reply: Option<Subject>,
}

/// A stream that is read.
pub struct NatsSource {
    place: Place,
    session: Session<Reading>,
    /// What was asked for and has not been handed out: it outlives a `receive` that is dropped.
    pull: Mutex<Option<Pull>>,
    ack_wait_ms: AtomicU64,
}

/// What the URL and the subscription say.
struct Place {
    server: Server,
    stream: String,
    subject: String,
    prefix: String,
    group: String,
    ack_wait: Option<Duration>,
    max_ack_pending: Option<i64>,
    redelivery: Option<Duration>,
}

/// A connection, and the consumer as the server has it.
#[derive(Debug, Clone)]
struct Reading {
    line: Line,
    consumer: PullConsumer,
    config: Config,
}

/// A request for messages.
struct Pull {
    /// What came, or why nothing more comes. There are no more than were asked for (I12).
    arrived: mpsc::UnboundedReceiver<Result<jetstream::Message, Ended>>,
    lost: watch::Receiver<bool>,
    asked: Instant,
    gathered: Vec<jetstream::Message>,
    ended: Option<Ended>,
    /// Takes in what the server sends, also while nobody receives: a [`Batch`] whose time is over drops what it has.
    _intake: JoinSet<()>,
}

/// Why a request brings nothing more.
enum Ended {
    /// It was answered in full, or its time is over.
    Done,
    /// Too many messages are unacknowledged.
    Blocked,
    Failed(String),
}

impl NatsSource {
    /// Connects, and finds or creates the consumer. A stream that is missing is an error.
    pub async fn open(url: &str, subscription: &Subscription) -> Result<NatsSource, Error> {
        let mut url = SinkUrl::parse(url)?;
        let max_ack_pending = url.number("max_ack_pending")?;
        let place = Place {
            server: Server::of(&mut url)?,
            stream: url.text("stream").unwrap_or_default(),
            subject: url.text("subject").unwrap_or_default(),
            prefix: url.text("prefix").unwrap_or_default(),
            group: subscription.group(),
            ack_wait: url.duration("ack_wait")?,
            max_ack_pending: max_ack_pending.map(|most| i64::try_from(most).unwrap_or(i64::MAX)),
            redelivery: url.duration("redelivery")?,
        };
        url.finish()?;
        check_stream(&place.stream)?;
        if place.max_ack_pending == Some(0) {
            return Err(Error::Url("`max_ack_pending` must be above zero".to_owned()));
        }
        tls::choose_cryptography();
        let ack_wait_ms = AtomicU64::new(0);
        let reading = within(place.server.timeout, place.open(&ack_wait_ms)).await?;
        let session = Session::new(reading, place.server.timeout);
        Ok(NatsSource { place, session, pull: Mutex::new(None), ack_wait_ms })
    }

    async fn reading(&self) -> Result<Reading, Error> {
        self.session.get(|reading| reading.line.holds(), self.place.open(&self.ack_wait_ms)).await
    }

    /// Asks for up to `most` messages: for those there are, or for the next that comes.
    async fn ask(&self, most: usize) -> Result<Pull, Error> {
        let reading = self.reading().await?;
        let most = usize::try_from(reading.config.max_batch).ok().filter(|limit| *limit > 0).unwrap_or(most).min(most);
        let expiry = Some(reading.config.max_expires).filter(|limit| !limit.is_zero()).unwrap_or(EXPIRY).min(EXPIRY);
        let request = reading.consumer.fetch().max_messages(most).expires(expiry).messages();
        let batch = request.await.map_err(|error| Error::Unavailable(self.place.told(&error)))?;
        Ok(Pull::new(batch, reading.line.lost.clone()))
    }

    /// Answers deliveries. It goes over the connection there is now, whichever brought them.
    async fn answer(&self, receipts: &[&Receipt], kind: AckKind) -> Result<(), source::Error> {
        let client = self.reading().await?.line.context.client();
        let answer = Bytes::from(kind);
        for reply in receipts.iter().filter_map(|receipt| receipt.reply.clone()) {
            let sent = client.publish(reply, answer.clone()).await;
            sent.map_err(|error| Error::Unavailable(self.place.told(&error)))?;
        }
        Ok(())
    }

    fn received(&self, message: jetstream::Message) -> Received<Receipt> {
        let place = message.info().ok().map(|info| {
            // The same at every delivery.
            format!("{}:{}:{}", info.stream, info.stream_sequence, info.published.unix_timestamp())
        });
        let message = message.message;
        let mut incoming = Incoming::default();
        let mut message_id = None;
        for (name, values) in message.headers.iter().flat_map(async_nats::HeaderMap::iter) {
            let name: &str = name.as_ref();
            for value in values.iter().map(async_nats::HeaderValue::as_str) {
                match name.to_ascii_lowercase().as_str() {
                    "nats-msg-id" => message_id = Some(value),
                    "traceparent" | "tracestate" => incoming.own(name, percent_decode_str(value).decode_utf8_lossy()),
                    // They steered the server.
                    lower if lower.starts_with("nats-") => {}
                    _ => incoming.header(name, value),
                }
            }
        }
        incoming.or_attribute("id", message_id.unwrap_or_default());
        let topic = topic(&self.place.prefix, &message.subject);
        incoming.finish(&topic, place, message.payload, Receipt { reply: message.reply })
    }
}

impl Source for NatsSource {
    type Receipt = Receipt;

    async fn receive(&self, most: usize) -> Result<Vec<Received<Receipt>>, source::Error> {
        let mut held = self.pull.lock().await;
        let [mut pause, longest_pause] = PAUSES;
        loop {
            let pull = match held.take() {
                Some(pull) => held.insert(pull),
                None => held.insert(self.ask(most.max(1)).await?),
            };
            let ended = pull.gather(most.max(1)).await;
            // Nothing is waited for from here until they are handed out. More may be there than are wanted now.
            let count = pull.gathered.len().min(most.max(1));
            let gathered: Vec<_> = pull.gathered.drain(..count).collect();
            let at_once = pull.asked.elapsed() < PAUSES[0];
            let blocked = matches!(ended, Some(Ended::Blocked));
            if ended.is_some() {
                *held = None;
            }
            if !gathered.is_empty() {
                return Ok(gathered.into_iter().map(|message| self.received(message)).collect());
            }
            if let Some(Ended::Failed(why)) = ended {
                // The consumer may be gone with the connection, or without it: both are looked for again.
                self.session.discard(|_| true).await;
                return Err(Error::Unavailable(why).into());
            }
            if blocked || at_once {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(longest_pause);
            }
        }
    }

    /// If one gets lost on the way, its message comes again.
    async fn acknowledge(&self, receipts: &[&Receipt]) -> Result<(), source::Error> {
        self.answer(receipts, AckKind::Ack).await
    }

    async fn give_back(&self, receipts: &[&Receipt]) -> Result<(), source::Error> {
        self.answer(receipts, AckKind::Nak(None)).await
    }

    /// Prolongs what waits here to be received as well, so that it does not come behind newer messages of its key.
    async fn prolong(&self, receipts: &[&Receipt]) -> Result<(), source::Error> {
        let mut waiting = Vec::new();
        // Whoever holds it receives, and leaves nothing waiting.
        if let Ok(mut held) = self.pull.try_lock()
            && let Some(pull) = held.as_mut()
        {
            pull.take_in();
            waiting.extend(pull.gathered.iter().map(|message| Receipt { reply: message.message.reply.clone() }));
        }
        let all: Vec<&Receipt> = receipts.iter().copied().chain(&waiting).collect();
        self.answer(&all, AckKind::Progress).await
    }

    fn prolong_every(&self) -> Option<Duration> {
        Some(Duration::from_millis((self.ack_wait_ms.load(Ordering::Relaxed) / 3).max(1)))
    }

    async fn redelivery(&self) -> Result<Redelivery, source::Error> {
        let reading = self.reading().await?;
        let stream = self.place.stream_of(&reading.line).await?;
        Ok(self.place.longest(stream.cached_info().config.max_age))
    }

    /// What was acknowledged is on its way to the server before this returns, unless it does not answer in time.
    async fn close(&self) {
        if let Some(mut pull) = self.pull.lock().await.take() {
            // What was given back may have come again already: the server still has the request.
            while let Ok(Some(Ok(message))) = tokio::time::timeout(QUIET, pull.arrived.recv()).await {
                pull.gathered.push(message);
            }
            let receipts: Vec<Receipt> =
                pull.gathered.into_iter().map(|message| Receipt { reply: message.message.reply }).collect();
            let receipts: Vec<&Receipt> = receipts.iter().collect();
            // After the request's time, so that they do not come here once more.
            let _ = self.answer(&receipts, AckKind::Nak(Some(EXPIRY))).await;
        }
        if let Some(reading) = self.session.close().await {
            let client = reading.line.context.client();
            let _ = tokio::time::timeout(self.place.server.timeout, client.flush()).await;
            let _ = tokio::time::timeout(self.place.server.timeout, client.drain()).await;
        }
    }
}

impl Pull {
    fn new(mut batch: Batch, lost: watch::Receiver<bool>) -> Pull {
        let (sender, arrived) = mpsc::unbounded_channel();
        let mut intake = JoinSet::new();
        intake.spawn(async move {
            while let Some(next) = batch.next().await {
                let next = next.map_err(|error| match error.to_string() {
                    why if why.contains("MaxAckPending") => Ended::Blocked,
                    why => Ended::Failed(why),
                });
                if sender.send(next).is_err() {
                    break;
                }
            }
        });
        Pull { arrived, lost, asked: Instant::now(), gathered: Vec::new(), ended: None, _intake: intake }
    }

    /// Takes what is there, without waiting.
    fn take_in(&mut self) {
        while self.ended.is_none()
            && let Ok(next) = self.arrived.try_recv()
        {
            match next {
                Ok(message) => self.gathered.push(message),
                Err(ended) => self.ended = Some(ended),
            }
        }
    }

    /// Waits for a message and takes those that come with it. `None` if more may come. Dropping it loses nothing: what
    /// it took is kept here.
    async fn gather(&mut self, most: usize) -> Option<Ended> {
        while self.gathered.len() < most {
            if self.ended.is_some() {
                return self.ended.take();
            }
            let next = if self.gathered.is_empty() {
                tokio::select! {
                    biased;
                    next = self.arrived.recv() => next,
                    _ = self.lost.wait_for(|lost| *lost) => {
                        return Some(Ended::Failed("the connection to NATS is lost".to_owned()));
                    }
                }
            } else {
                match tokio::time::timeout(COMPANY, self.arrived.recv()).await {
                    Ok(next) => next,
                    Err(_) => return None,
                }
            };
            match next {
                Some(Ok(message)) => self.gathered.push(message),
                Some(Err(ended)) => return Some(ended),
                None => return Some(Ended::Done),
            }
        }
        None
    }
}

impl Place {
    /// Connects, and finds or creates the consumer.
    async fn open(&self, ack_wait_ms: &AtomicU64) -> Result<Reading, Error> {
        let line = self.server.open().await?;
        let stream = self.stream_of(&line).await?;
        let wanted = Config {
            durable_name: Some(self.group.clone()),
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait.unwrap_or(Duration::from_secs(30)),
            max_deliver: -1,
            filter_subject: self.subject.clone(),
            max_ack_pending: self.max_ack_pending.unwrap_or(10_000),
            ..Config::default()
        };
        let consumer =
            stream.get_or_create_consumer(&self.group, wanted).await.map_err(|error| match error.kind() {
                ConsumerErrorKind::JetStream(answer) if (400..500).contains(&answer.code()) => {
                    Error::Refused(format!("consumer {} of stream {}: {answer}", self.group, self.stream))
                }
                ConsumerErrorKind::InvalidConsumerType => {
                    Error::Refused(format!("consumer {} of stream {} pushes: delete it", self.group, self.stream))
                }
                _ => Error::Unavailable(self.told(&error)),
            })?;
        let found = consumer.cached_info().config.clone();
        let config = Config {
            ack_policy: found.ack_policy,
            ack_wait: found.ack_wait,
            max_deliver: found.max_deliver,
            filter_subject: found.filter_subject,
            filter_subjects: found.filter_subjects,
            max_ack_pending: found.max_ack_pending,
            headers_only: found.headers_only,
            max_batch: found.max_batch,
            max_expires: found.max_expires,
            backoff: found.backoff,
            ..Config::default()
        };
        if let Some(wrong) = self.wrong_with(&config) {
            return Err(Error::Refused(format!(
                "consumer {} of stream {} {wrong}: change it with `nats consumer edit`, or delete it and it will be \
                 created anew",
                self.group, self.stream
            )));
        }
        let shortest = config.backoff.iter().copied().min().unwrap_or(config.ack_wait).min(config.ack_wait);
        ack_wait_ms.store(u64::try_from(shortest.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        Ok(Reading { line, consumer, config })
    }

    async fn stream_of(&self, line: &Line) -> Result<Stream, Error> {
        let name = &self.stream;
        line.context.get_stream(name).await.map_err(|error| match error.kind() {
            GetStreamErrorKind::JetStream(answer) if answer.code() == 404 => Error::Refused(format!(
                "the stream {name} does not exist: its publisher creates it, or `nats stream add {name} --subjects …`"
            )),
            GetStreamErrorKind::JetStream(answer) if (400..500).contains(&answer.code()) => {
                Error::Refused(format!("stream {name}: {answer}"))
            }
            _ => Error::Unavailable(self.told(&error)),
        })
    }

    /// What would lose messages, or is not what the URL says.
    fn wrong_with(&self, found: &Config) -> Option<String> {
        let mut filters = found.filter_subjects.clone();
        filters.extend(Some(&found.filter_subject).filter(|filter| !filter.is_empty()).cloned());
        let wanted: Vec<String> =
            Some(&self.subject).filter(|subject| !subject.is_empty()).cloned().into_iter().collect();
        if found.ack_policy != AckPolicy::Explicit {
            return Some("does not want each message acknowledged".to_owned());
        }
        if found.max_deliver > 0 {
            return Some(format!("gives a message up after {} deliveries", found.max_deliver));
        }
        if found.headers_only {
            return Some("leaves out the payloads".to_owned());
        }
        if filters != wanted {
            return Some(format!("reads the subjects {filters:?} and the URL says {wanted:?}"));
        }
        if self.ack_wait.is_some_and(|wanted| wanted != found.ack_wait) {
            return Some(format!("has the ack_wait {}", humantime::format_duration(found.ack_wait)));
        }
        if self.max_ack_pending.is_some_and(|wanted| wanted != found.max_ack_pending) {
            return Some(format!("has the max_ack_pending {}", found.max_ack_pending));
        }
        None
    }

    /// For how long a message may come again: what the stream keeps, or longer if the operator says so.
    fn longest(&self, max_age: Duration) -> Redelivery {
        let shown = |duration| humantime::format_duration(duration).to_string().replace(' ', "");
        match (max_age, self.redelivery) {
            (Duration::ZERO, None) => Redelivery::Unlimited {
                because: format!(
                    "stream {} has no max_age; `redelivery=` in the source's URL may say what bounds it instead",
                    self.stream
                ),
            },
            (max_age, Some(told)) if told > max_age => {
                Redelivery::Within { longest: told, because: format!("redelivery={} of the source's URL", shown(told)) }
            }
            (max_age, _) => Redelivery::Within {
                longest: max_age,
                because: format!("max_age {} of stream {}", shown(max_age), self.stream),
            },
        }
    }

    fn told(&self, error: &dyn fmt::Display) -> String {
        format!("JetStream at {}: {error}", self.server.address)
    }
}

impl fmt::Debug for NatsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}/{}", self.place.server, self.place.stream, self.place.group)
    }
}

/// The topic of a subject, as the sink wrote it there.
fn topic(prefix: &str, subject: &str) -> String {
    let written = subject.strip_prefix(prefix).filter(|rest| !rest.is_empty()).unwrap_or(subject);
    percent_decode_str(written).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::subject;
    use super::topic;

    #[test]
    fn a_topic_comes_back_from_its_subject() {
        for wanted in
            ["orders", "orders.eu", "two words", "a.*.>", "50%", "%20", "$SYS.x", ".a", "a..b", "...", "zürich"]
        {
            for prefix in ["", "p.", "p-"] {
                assert_eq!(topic(prefix, &subject(prefix, wanted)), wanted, "after {prefix:?}");
            }
        }
    }
}
