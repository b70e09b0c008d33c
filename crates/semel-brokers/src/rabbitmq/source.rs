//! Reading a queue.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::{Acker, Channel, Connection, Consumer, ErrorKind};
use semel::Source;
use semel::source::{self, Received, Redelivery};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use super::{Server, message, short};
use crate::session::{Session, within};
use crate::url::SinkUrl;
use crate::{Error, Subscription, tls};

/// For how long more messages are waited for after the first, so that batches form.
const LINGER: Duration = Duration::from_millis(2);

/// How often a queue that is created delivers a message before it drops it. There must be a number: without one,
/// RabbitMQ 4 drops after 20 deliveries, and of `-1` older ones make that a message is dropped instead of delivered
/// again.
const DELIVERY_LIMIT: i32 = i32::MAX;

/// What is assumed of how long a message may come again.
const ASSUMED_REDELIVERY: Duration = Duration::from_secs(3 * 24 * 3600);

/// A queue that is read: `amqp://user:password@host:5672/vhost?queue=NAME`.
///
/// | parameter | meaning |
/// |---|---|
/// | `queue` | which one; it must exist |
/// | `create` | `true` makes the queue if there is none, durable and replicated (a quorum queue) |
/// | `exchange`, `key` | with `create`: what the queue is bound to, and by which routing key (`#` unless given) |
/// | `prefetch` | how many messages may be unacknowledged at a time, 1000 unless given |
/// | `redelivery` | for how long a message may come again, such as `7d`; AMQP does not tell, and 3 days are assumed |
/// | `tls_ca`, `timeout_ms` | as for the sink |
///
/// All who read the queue share its messages. When a channel or connection is lost, whatever came over it and was not
/// acknowledged comes again, here or elsewhere; acknowledging it then does nothing. The broker closes a channel over a
/// message that stays unacknowledged for too long (`consumer_timeout`, 30 minutes unless set otherwise).
///
/// A queue keeps no history: after a new generation of a consumer began, what is published again applies again
/// (`semel outbox replay` on the producer's side), and nothing else comes.
///
/// RabbitMQ 4 drops or dead-letters what a quorum queue has delivered 20 times, unless its `delivery-limit` says
/// otherwise. A queue made by `create` has no limit that would be reached.
pub struct RabbitMqSource {
    server: Server,
    queue: ShortString,
    /// By which routing key a queue that is created is bound; `None` if it is not to be created.
    create: Option<ShortString>,
    prefetch: u16,
    redelivery: Redelivery,
    /// The consumer's name, by which operators find it in the list of the queue's.
    reader: ShortString,
    session: Session<Arc<Connection>>,
    intake: Mutex<Option<Intake>>,
}

/// One channel that messages come over.
struct Intake {
    channel: Channel,
    consumer: Consumer,
    /// What came and was not handed out yet, because whoever asked for it went away.
    arrived: VecDeque<Delivery>,
}

/// What acknowledges one delivery. It is void when the channel that brought the message is lost.
#[derive(Debug)]
pub struct Receipt {
    /// Its place among all that came over the channel.
    pub(super) tag: u64,
    pub(super) acker: Acker,
}

impl fmt::Debug for RabbitMqSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RabbitMqSource({}, queue {:?})", self.server.address, self.queue.as_str())
    }
}

impl RabbitMqSource {
    /// Connects, checks that the queue is there or makes it, and begins to read.
    pub async fn open(url: &str, subscription: &Subscription) -> Result<RabbitMqSource, Error> {
        let mut url = SinkUrl::parse(url)?;
        let Some(queue) = url.text("queue").filter(|name| !name.is_empty()) else {
            return Err(Error::Url("it names no queue: `queue=NAME`".to_owned()));
        };
        let queue = short("queue", queue)?;
        let create = url.flag("create")?;
        let (exchange, key) = (url.text("exchange"), url.text("key"));
        if !create && (exchange.is_some() || key.is_some()) {
            return Err(Error::Url("`exchange` and `key` say how a queue is created: add `create=true`".to_owned()));
        }
        if key.is_some() && exchange.is_none() {
            return Err(Error::Url("`key` needs an `exchange` to bind the queue to".to_owned()));
        }
        let exchange = short("exchange", exchange.unwrap_or_default())?;
        let key = short("key", key.unwrap_or_else(|| "#".to_owned()))?;
        let prefetch = match url.number("prefetch")?.unwrap_or(1000) {
            number @ 1..=65_535 => u16::try_from(number).unwrap_or(u16::MAX),
            other => return Err(Error::Url(format!("`prefetch={other}` must be between 1 and 65535"))),
        };
        let redelivery = match url.duration("redelivery")? {
            Some(longest) => {
                let because = format!("`redelivery={}` of the source's URL", humantime::format_duration(longest));
                Redelivery::Within { longest, because }
            }
            None => Redelivery::Within {
                longest: ASSUMED_REDELIVERY,
                because:
                    "3 days are assumed, because RabbitMQ does not tell for how long messages may wait in a queue \
                          or be published again; `redelivery=` in the source's URL says otherwise"
                        .to_owned(),
            },
        };
        let server = Server::read(&mut url, exchange)?;
        tls::choose_cryptography();
        let connection = within(server.timeout, server.open()).await?;
        let source = RabbitMqSource {
            session: Session::new(connection, server.timeout),
            queue,
            create: create.then_some(key),
            prefetch,
            redelivery,
            reader: short("consumer", subscription.group())?,
            intake: Mutex::default(),
            server,
        };
        let intake = source.begin().await?;
        *source.intake.lock().await = Some(intake);
        Ok(source)
    }

    /// Begins to read, over a connection that is made anew if it was lost.
    async fn begin(&self) -> Result<Intake, Error> {
        let connected = |connection: &Arc<Connection>| connection.status().connected();
        let connection = self.session.get(connected, self.server.open()).await?;
        within(self.server.timeout, async {
            self.find_queue(&connection).await?;
            let failed = |error: lapin::Error| self.server.failed(&error);
            let channel = connection.create_channel().await.map_err(failed)?;
            channel.basic_qos(self.prefetch, BasicQosOptions::default()).await.map_err(failed)?;
            let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
            let consuming = channel.basic_consume(self.queue.clone(), self.reader.clone(), options, arguments);
            let consumer = consuming.await.map_err(failed)?;
            Ok(Intake { channel, consumer, arrived: VecDeque::new() })
        })
        .await
    }

    /// Checks that the queue is there, or makes it if it is to be made.
    async fn find_queue(&self, connection: &Connection) -> Result<(), Error> {
        let failed = |error: lapin::Error| self.server.failed(&error);
        let channel = connection.create_channel().await.map_err(failed)?;
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        match channel.queue_declare(self.queue.clone(), passive, FieldTable::default()).await {
            Ok(_) => match &self.create {
                Some(key) => self.bind(&channel, key).await,
                None => Ok(()),
            },
            Err(error) => match (Trouble::of(&error), &self.create) {
                (Trouble::Missing, Some(key)) => self.create(connection, key).await,
                (Trouble::Missing, None) => Err(Error::Refused(format!(
                    "the queue {:?} does not exist at RabbitMQ at {}: declare it, durable, and bind it, or add \
                     `create=true` to the source's URL",
                    self.queue.as_str(),
                    self.server.address
                ))),
                (Trouble::Away(why), _) => {
                    Err(Error::Unavailable(format!("RabbitMQ at {}: {why}", self.server.address)))
                }
                _ => Err(failed(error)),
            },
        }
    }

    async fn create(&self, connection: &Connection, key: &ShortString) -> Result<(), Error> {
        let failed = |error: lapin::Error| self.server.failed(&error);
        let mut arguments = FieldTable::default();
        arguments.insert(ShortString::from("x-queue-type"), AMQPValue::LongString(LongString::from("quorum")));
        arguments.insert(ShortString::from("x-delivery-limit"), AMQPValue::LongInt(DELIVERY_LIMIT));
        let channel = connection.create_channel().await.map_err(failed)?;
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(self.queue.clone(), durable, arguments).await.map_err(failed)?;
        self.bind(&channel, key).await
    }

    /// Binding again what is bound changes nothing.
    async fn bind(&self, channel: &Channel, key: &ShortString) -> Result<(), Error> {
        let exchange = self.server.exchange.clone();
        if exchange.as_str().is_empty() {
            return Ok(());
        }
        let (queue, options) = (self.queue.clone(), QueueBindOptions::default());
        let bound = channel.queue_bind(queue, exchange, key.clone(), options, FieldTable::default()).await;
        bound.map_err(|error| self.server.failed(&error))
    }

    /// Waits until what is to be told to the broker is written. A receipt whose channel is lost tells nothing, and its
    /// message comes again.
    async fn told(&self, telling: impl Future<Output = lapin::Result<()>>) -> Result<(), source::Error> {
        match timeout(self.server.timeout, telling).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(unavailable(format!("RabbitMQ at {}: {error}", self.server.address))),
            Err(_) => Err(unavailable(format!("RabbitMQ at {} takes no answers", self.server.address))),
        }
    }
}

impl Source for RabbitMqSource {
    type Receipt = Receipt;

    async fn receive(&self, most: usize) -> Result<Vec<Received<Receipt>>, source::Error> {
        let mut held = self.intake.lock().await;
        // What came over a lost channel comes again.
        let intake = match held.take().filter(|intake| intake.channel.status().connected()) {
            Some(intake) => held.insert(intake),
            // However it fails, somebody may mend it meanwhile.
            None => held.insert(self.begin().await.map_err(|error| unavailable(error.to_string()))?),
        };
        if let Err(why) = intake.gather(most.max(1)).await {
            *held = None;
            return Err(unavailable(format!("RabbitMQ at {}: {why}", self.server.address)));
        }
        let count = intake.arrived.len().min(most.max(1));
        Ok(intake.arrived.drain(..count).map(|delivery| message::received(delivery, self.queue.as_str())).collect())
    }

    async fn acknowledge(&self, receipts: &[&Receipt]) -> Result<(), source::Error> {
        let acknowledging = receipts.iter().map(|receipt| receipt.acker.ack(BasicAckOptions::default()));
        self.told(async { join_all(acknowledging).await.into_iter().try_for_each(|told| told.map(drop)) }).await
    }

    async fn give_back(&self, receipts: &[&Receipt]) -> Result<(), source::Error> {
        let requeue = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
        // One by one, from the first: as soon as one is back it may be delivered again, before those behind it.
        let mut receipts = receipts.to_vec();
        receipts.sort_by_key(|receipt| receipt.tag);
        self.told(async {
            for receipt in receipts {
                receipt.acker.nack(requeue).await?;
            }
            Ok(())
        })
        .await
    }

    async fn redelivery(&self) -> Result<Redelivery, source::Error> {
        Ok(self.redelivery.clone())
    }

    async fn close(&self) {
        if let Some(connection) = self.session.close().await {
            // Acknowledgements are before it in the same connection; the rest goes back to the queue.
            let closing = connection.close(200, ShortString::from("closed"));
            let _ = timeout(self.server.timeout, closing).await;
        }
        if let Ok(mut intake) = self.intake.try_lock() {
            intake.take();
        }
    }
}

impl Intake {
    /// Waits until something has arrived, and a little longer for more. What arrived stays here if it is dropped.
    async fn gather(&mut self, most: usize) -> Result<(), String> {
        if self.arrived.is_empty() {
            let next = self.consumer.next().await;
            self.take(next)?;
        }
        let ends = Instant::now() + LINGER;
        while self.arrived.len() < most {
            match timeout_at(ends, self.consumer.next()).await {
                Ok(next) => self.take(next)?,
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn take(&mut self, next: Option<lapin::Result<Delivery>>) -> Result<(), String> {
        match next {
            Some(Ok(delivery)) => {
                self.arrived.push_back(delivery);
                Ok(())
            }
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the broker ended the reading of the queue".to_owned()),
        }
    }
}

/// What a refusal over a queue means.
enum Trouble {
    /// There is no such queue.
    Missing,
    /// It is there, and cannot be reached now: the node that has it is down.
    Away(String),
    Other,
}

impl Trouble {
    fn of(error: &lapin::Error) -> Trouble {
        let ErrorKind::ProtocolError(problem) = error.kind() else { return Trouble::Other };
        match problem.kind() {
            AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) if problem.get_message().as_str().contains("no queue") => {
                Trouble::Missing
            }
            AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => Trouble::Away(problem.get_message().to_string()),
            _ => Trouble::Other,
        }
    }
}

fn unavailable(reason: String) -> source::Error {
    source::Error::Unavailable(reason.into())
}
