//! RabbitMQ: `amqp://user:password@host:5672/vhost?exchange=NAME`, or `amqps://` for TLS.
//!
//! Each event is published to the exchange with its topic as routing key, persistent and mandatory, and counts as
//! published when the broker has confirmed it and has not returned it. Delivery is at least once; readers drop what
//! they have seen by `message_id`.
//!
//! | parameter | meaning |
//! |---|---|
//! | `exchange` | where events are published; it must exist. Without one, topics are names of queues |
//! | `tls_ca` | a PEM file with the authorities to trust beside the system's |
//! | `timeout_ms` | how long the broker may take to answer, 10000 unless given |
//!
//! An event that no queue is bound for is refused. An acknowledged event survives a crash of the broker if its queue is
//! durable. `/` is the virtual host unless the path names another (`%2F` is a slash in its name).
//!
//! Properties: `message_id`, `content_type`, `type`, `timestamp` (seconds), `delivery_mode` 2. Headers follow the
//! CloudEvents AMQP binding in binary mode: `cloudEvents_id`, `cloudEvents_type`, `cloudEvents_source`,
//! `cloudEvents_time`, `cloudEvents_partitionkey` (the ordering key); beside them `semel-lane`, `semel-sequence`,
//! `semel-incarnation`, `traceparent`, `tracestate` and the event's own. A header given several times is an array.

mod message;
mod source;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPSoftError};
use lapin::tcp::OwnedTLSConfig;
use lapin::types::{AMQPValue, FieldArray, FieldTable, LongString, ShortString};
use lapin::uri::AMQPUri;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ErrorKind, ExchangeKind};
use semel::Sink;
use semel::sink::{self, Guarantee, Lane, Outgoing, Position};

pub use source::{RabbitMqSource, Receipt};

use crate::session::{Session, within};
use crate::url::SinkUrl;
use crate::wave::{self, refused, unavailable};
use crate::{Error, cloud_event, tls};

/// The most events of one batch that are unconfirmed at a time.
const WAVE: usize = 1024;

/// The most idle channels that are kept for the next batch.
const IDLE_CHANNELS: usize = 64;

/// An exchange that takes events.
pub struct RabbitMq {
    server: Server,
    session: Session<Arc<Connection>>,
    idle: Mutex<Vec<Channel>>,
    /// Lanes whose next batch is sent one by one, to find the event that the broker closes channels over.
    cautious: Mutex<HashSet<Lane>>,
}

struct Server {
    uri: AMQPUri,
    address: String,
    exchange: ShortString,
    tls_ca: Option<String>,
    timeout: Duration,
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RabbitMq({}, exchange {:?})", self.server.address, self.server.exchange.as_str())
    }
}

impl RabbitMq {
    /// Connects, and checks that the exchange is there.
    pub async fn connect(url: &str) -> Result<RabbitMq, Error> {
        let mut url = SinkUrl::parse(url)?;
        let exchange = short("exchange", url.text("exchange").unwrap_or_default())?;
        let server = Server::read(&mut url, exchange)?;
        let timeout = server.timeout;
        tls::choose_cryptography();
        let connection = within(timeout, async {
            let connection = server.open().await?;
            server.check_exchange(&connection).await?;
            Ok(connection)
        })
        .await?;
        let session = Session::new(connection, timeout);
        Ok(RabbitMq { server, session, idle: Mutex::default(), cautious: Mutex::default() })
    }

    /// A channel in confirm mode that nobody else uses: a channel that one batch breaks must not fail another's.
    async fn channel(&self) -> Result<Channel, Error> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(channel) if channel.status().connected() => return Ok(channel),
                Some(_) => {}
                None => break,
            }
        }
        let connected = |connection: &Arc<Connection>| connection.status().connected();
        let connection = self.session.get(connected, self.server.open()).await?;
        within(self.server.timeout, async {
            let failed = |error: lapin::Error| self.server.failed(&error);
            let channel = connection.create_channel().await.map_err(failed)?;
            channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(failed)?;
            Ok(channel)
        })
        .await
    }

    /// Keeps a channel for the next batch, unless an unanswered event may still be on its way through it.
    async fn give_back(&self, channel: Channel, clean: bool) {
        if clean && channel.status().connected() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < IDLE_CHANNELS {
                idle.push(channel);
            }
        } else if channel.status().connected() {
            let closing = channel.close(200, ShortString::from("a confirmation is overdue"));
            let _ = tokio::time::timeout(self.server.timeout, closing).await;
        }
    }

    /// Sends a wave and waits for every confirmation.
    ///
    /// The broker returns an unroutable message before it confirms it, but the client hands a returned message to
    /// whichever confirmation comes next. So returned messages are collected over the whole wave, which leaves none of
    /// them behind, and matched by id.
    async fn send(&self, channel: &Channel, wave: Vec<&Outgoing>) -> Vec<Result<(), sink::Error>> {
        let alone = wave.len() == 1;
        let confirmations = join_all(wave.iter().map(|outgoing| self.confirm(channel, outgoing))).await;
        let mut returned = HashSet::new();
        let mut answers = Vec::with_capacity(wave.len());
        for confirmation in confirmations {
            answers.push(match confirmation {
                Ok(confirmation) => {
                    let acknowledged = confirmation.is_ack();
                    if let Some(message) = confirmation.take_message() {
                        let id = message.delivery.properties.message_id().as_ref();
                        returned.extend(id.map(|id| id.as_str().to_owned()));
                    }
                    if acknowledged { Ok(()) } else { Err(unavailable("RabbitMQ could not store the event")) }
                }
                Err(Failure::Sink(error)) => Err(error),
                // The broker closed the channel over one of the events in it. Alone in it, the event is to blame; else
                // the next batches are sent one by one until it is found.
                Err(Failure::Closed(reason)) if alone => Err(refused(reason)),
                Err(Failure::Closed(reason)) => {
                    self.cautious
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .extend(wave.first().map(|one| one.lane));
                    Err(unavailable(reason))
                }
            });
        }
        for (outgoing, answer) in wave.iter().zip(&mut answers) {
            if answer.is_ok() && returned.contains(&outgoing.id.to_string()) {
                *answer = Err(refused(format!(
                    "no queue is bound to the exchange {:?} for the routing key {:?}",
                    self.server.exchange.as_str(),
                    outgoing.event.topic
                )));
            }
        }
        answers
    }

    async fn confirm(&self, channel: &Channel, outgoing: &Outgoing) -> Result<Confirmation, Failure> {
        let properties = properties(outgoing).map_err(Failure::Sink)?;
        let topic = ShortString::from(outgoing.event.topic.as_str());
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let publishing = async {
            let payload = &outgoing.event.payload;
            channel.basic_publish(self.server.exchange.clone(), topic, options, payload, properties).await?.await
        };
        match tokio::time::timeout(self.server.timeout, publishing).await {
            Ok(Ok(Confirmation::NotRequested)) => {
                Err(Failure::Sink(unavailable("the channel was not in confirm mode")))
            }
            Ok(Ok(confirmation)) => Ok(confirmation),
            Ok(Err(error)) => Err(match error.kind() {
                ErrorKind::ProtocolError(problem) if blames_the_event(problem) => {
                    Failure::Closed(format!("RabbitMQ closed the channel: {}", problem.get_message()))
                }
                _ => Failure::Sink(unavailable(format!("RabbitMQ at {}: {error}", self.server.address))),
            }),
            Err(_) => Err(Failure::Sink(unavailable("RabbitMQ did not confirm in time"))),
        }
    }
}

enum Failure {
    Sink(sink::Error),
    Closed(String),
}

impl Sink for RabbitMq {
    fn guarantee(&self) -> Guarantee {
        Guarantee::AtLeastOnce
    }

    async fn take_lane(&self, _lane: Lane) -> Result<Option<Position>, sink::Error> {
        Ok(None)
    }

    async fn publish(&self, lane: Lane, batch: &[Outgoing], _: &Position) -> Vec<Result<(), sink::Error>> {
        let channel = match self.channel().await {
            Ok(channel) => channel,
            Err(error) => return wave::fail(batch, error).await,
        };
        let cautious = self.cautious.lock().unwrap_or_else(PoisonError::into_inner).remove(&lane);
        let limit = if cautious { 1 } else { WAVE };
        let results = wave::publish(batch, limit, |wave| self.send(&channel, wave)).await;
        let clean = results.iter().all(|result| !matches!(result, Err(sink::Error::Unavailable(_))));
        self.give_back(channel, clean).await;
        results
    }

    async fn close(&self) {
        if let Some(connection) = self.session.close().await {
            // Every confirmed event is with the broker already; this lets it see an orderly end.
            let closing = connection.close(200, ShortString::from("closed"));
            let _ = tokio::time::timeout(self.server.timeout, closing).await;
        }
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Server {
    /// What sinks and sources have in common. It takes the last parameters of the URL, and refuses those left.
    fn read(url: &mut SinkUrl, exchange: ShortString) -> Result<Server, Error> {
        let tls_ca = match url.text("tls_ca") {
            Some(path) => {
                let pem = std::fs::read_to_string(&path);
                Some(pem.map_err(|error| Error::Url(format!("`tls_ca={path}`: {error}")))?)
            }
            None => None,
        };
        let timeout = url.timeout()?;
        url.finish()?;
        if url.path().contains('/') {
            return Err(Error::Url(
                "the path of an amqp: URL is one virtual host; write a slash in it as %2F".to_owned(),
            ));
        }
        let uri = AMQPUri::from_str(url.with_secrets().trim_end_matches('/'))
            .map_err(|_| Error::Url("it is no AMQP URL".to_owned()))?;
        let default_port = if url.scheme() == "amqps" { 5671 } else { 5672 };
        Ok(Server { uri, address: url.authority(default_port), exchange, tls_ca, timeout })
    }

    async fn open(&self) -> Result<Arc<Connection>, Error> {
        let properties = ConnectionProperties::default().with_connection_name(LongString::from("semel"));
        let runtime = lapin::runtime::default_runtime().map_err(|error| Error::Unavailable(error.to_string()))?;
        let tls = OwnedTLSConfig { identity: None, cert_chain: self.tls_ca.clone() };
        let connecting = Connection::connect_uri_with_config(self.uri.clone(), properties, tls, runtime);
        Ok(Arc::new(connecting.await.map_err(|error| self.failed(&error))?))
    }

    async fn check_exchange(&self, connection: &Connection) -> Result<(), Error> {
        if self.exchange.as_str().is_empty() {
            return Ok(());
        }
        let channel = connection.create_channel().await.map_err(|error| self.failed(&error))?;
        // A passive declaration only looks: the kind does not matter.
        let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        let exchange = self.exchange.clone();
        let looked = channel.exchange_declare(exchange, ExchangeKind::Topic, options, FieldTable::default()).await;
        looked.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &lapin::Error) -> Error {
        let ErrorKind::ProtocolError(problem) = error.kind() else {
            return Error::Unavailable(format!("RabbitMQ at {}: {error}", self.address));
        };
        match problem.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
                Error::Refused(format!("RabbitMQ at {} refuses the user: {}", self.address, problem.get_message()))
            }
            AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => Error::Refused(format!(
                "the exchange {:?} does not exist at RabbitMQ at {}: declare it, durable, and bind queues to it",
                self.exchange.as_str(),
                self.address
            )),
            _ => Error::Unavailable(format!("RabbitMQ at {}: {}", self.address, problem.get_message())),
        }
    }
}

/// A parameter that AMQP takes as a short string.
fn short(name: &'static str, text: String) -> Result<ShortString, Error> {
    ShortString::try_new(text).map_err(|_| Error::Url(format!("`{name}` is longer than 255 bytes")))
}

/// Whether the broker closed a channel over what one event asked for: too large, or a routing key that the user may not
/// write to. An exchange that is gone, or not the user's to write to, is no event's fault.
fn blames_the_event(problem: &AMQPError) -> bool {
    match problem.kind() {
        AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => false,
        AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => problem.get_message().as_str().contains("access to topic"),
        AMQPErrorKind::Soft(_) => true,
        AMQPErrorKind::Hard(_) => false,
    }
}

fn properties(outgoing: &Outgoing) -> Result<BasicProperties, sink::Error> {
    let event = &outgoing.event;
    let mut fields: BTreeMap<ShortString, AMQPValue> = BTreeMap::new();
    let text = |value: &str| AMQPValue::LongString(LongString::from(value));
    for (name, value) in cloud_event::attributes(outgoing) {
        fields.insert(ShortString::from(format!("cloudEvents_{name}")), text(&value));
    }
    for (name, value) in cloud_event::coordinates(outgoing) {
        fields.insert(ShortString::from(name), text(&value));
    }
    for (name, value) in cloud_event::trace_context(outgoing) {
        fields.insert(ShortString::from(name), text(value));
    }
    let mut own: BTreeMap<ShortString, Vec<AMQPValue>> = BTreeMap::new();
    for (name, value) in cloud_event::headers(outgoing) {
        let name = ShortString::try_new(name).map_err(|_| refused("a header's name is longer than 255 bytes"))?;
        own.entry(name).or_default().push(text(value));
    }
    for (name, mut values) in own {
        let single = if values.len() == 1 { values.pop() } else { None };
        fields.insert(name, single.unwrap_or_else(|| AMQPValue::FieldArray(FieldArray::from(values))));
    }
    Ok(BasicProperties::default()
        .with_delivery_mode(2)
        .with_message_id(ShortString::from(outgoing.id.to_string()))
        .with_content_type(ShortString::from(event.content_type.as_str()))
        .with_type(ShortString::from(event.event_type.as_str()))
        .with_timestamp((outgoing.time_ms.max(0) / 1000).unsigned_abs())
        .with_headers(FieldTable::from(fields)))
}
