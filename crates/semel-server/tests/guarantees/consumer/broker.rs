//! A broker between relays and consumers.

use std::net::Ipv4Addr;
use std::time::Duration;

use semel_testkit::collector::{Collector, NatsStream, RabbitMqQueue, RedisStreams};
#[cfg(feature = "kafka")]
use semel_testkit::collector::{KafkaTopics, Mode};
use tokio::net::TcpSocket;

/// What both ends of a webhook know.
const SECRET: &str = "whsec_c2VtZWwtdGVzdHMtc2hhcmUtdGhpcy1zZWNyZXQtaGVyZQ==";

/// After how long a group takes a member that was killed for dead: the least that brokers allow as they come.
#[cfg(feature = "kafka")]
const KAFKA_SESSION_MS: u64 = 6_000;

/// Two topics of the test's own.
pub(crate) struct Broker {
    /// How a relay publishes to them.
    pub(crate) sink_url: String,
    pub(crate) topics: [String; 2],
    /// Whether a consumer that never read them can read all that was published.
    pub(crate) has_history: bool,
    /// Whether messages of one key come in their order even after a crash of whoever reads them.
    pub(crate) keeps_order: bool,
    /// Whether several processes can read at once.
    pub(crate) is_shared: bool,
    kept: Kept,
}

/// What ends with the test.
enum Kept {
    /// A port that nobody else is given while the consumer that listens there is dead.
    Port {
        _reserved: TcpSocket,
    },
    Topics(Collector),
}

impl Broker {
    /// Webhooks: the consumer itself is the server.
    pub(crate) async fn http() -> Broker {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = socket.local_addr().unwrap();
        Broker {
            sink_url: format!("http://{address}/hook?semel_allow_loopback=true&semel_secret={SECRET}"),
            topics: ["even".to_owned(), "odd".to_owned()],
            has_history: false,
            keeps_order: true,
            is_shared: false,
            kept: Kept::Port { _reserved: socket },
        }
    }

    pub(crate) async fn nats() -> Broker {
        Broker::on(Collector::Nats(NatsStream::create().await), true, false)
    }

    pub(crate) async fn rabbitmq() -> Broker {
        Broker::on(Collector::RabbitMq(Box::new(RabbitMqQueue::create().await)), false, false)
    }

    pub(crate) async fn redis() -> Broker {
        Broker::on(Collector::Redis(RedisStreams::create()), true, false)
    }

    /// Where relays publish at least once, so that there are duplicates.
    #[cfg(feature = "kafka")]
    pub(crate) async fn kafka() -> Broker {
        Broker::on(Collector::Kafka(KafkaTopics::create(Mode::Idempotent).await), true, true)
    }

    fn on(collector: Collector, has_history: bool, keeps_order: bool) -> Broker {
        Broker {
            sink_url: collector.sink_url(),
            topics: collector.topics().clone(),
            has_history,
            keeps_order,
            is_shared: true,
            kept: Kept::Topics(collector),
        }
    }

    /// How a consumer reads them. What it has and does not acknowledge goes to another after `again_after`, where the
    /// broker cannot tell that it is dead.
    pub(crate) fn source_url(&self, again_after: Duration) -> String {
        let (server, options) = self.sink_url.split_once('?').unwrap_or((&self.sink_url, ""));
        let option = |name: &str| {
            let found = options.split('&').find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
            found.unwrap_or_else(|| panic!("no {name} in {}", self.sink_url))
        };
        let again_ms = again_after.as_millis();
        let [even, odd] = &self.topics;
        match &self.kept {
            Kept::Port { .. } => format!("{server}?secret={SECRET}&redelivery=1h"),
            Kept::Topics(Collector::Nats(_)) => {
                let (stream, prefix) = (option("stream"), option("prefix"));
                format!("{server}?stream={stream}&prefix={prefix}&ack_wait={again_ms}ms&redelivery=1h")
            }
            Kept::Topics(Collector::RabbitMq(_)) => format!("{server}?queue={}&redelivery=1h", option("exchange")),
            Kept::Topics(Collector::Redis(_)) => {
                format!("{server}?stream={even}&stream={odd}&claim_after={again_ms}ms&redelivery=1h")
            }
            #[cfg(feature = "kafka")]
            Kept::Topics(Collector::Kafka(_)) => {
                format!("{server}?topic={even}&topic={odd}&session_timeout_ms={KAFKA_SESSION_MS}")
            }
            Kept::Topics(other) => unreachable!("{other:?}"),
        }
    }

    /// The same for a consumer that is known as `member`: its successor of the same name is given at once what it had,
    /// where else the broker would wait for it.
    pub(crate) fn source_url_of(&self, member: &str, again_after: Duration) -> String {
        let url = self.source_url(again_after);
        match &self.kept {
            #[cfg(feature = "kafka")]
            Kept::Topics(Collector::Kafka(_)) => format!("{url}&instance={member}"),
            _ => {
                let _ = member;
                url
            }
        }
    }
}
