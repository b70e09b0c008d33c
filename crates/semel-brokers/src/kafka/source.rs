//! Apache Kafka as a source.
//!
//! `kafka://[user:password@]host:port[,host:port]/?topic=NAME[&topic=NAME]…` with these parameters, and `tls`, `ca`,
//! `sasl` and `timeout_ms` as the sink has them:
//!
//! | parameter | meaning |
//! |---|---|
//! | `topic` | which topic to read, once for each |
//! | `instance` | this member's own name, the same after a restart: the group waits for its return |
//! | `session_timeout_ms` | after how long the group takes a member that was killed for dead, 10000 unless given |
//! | `redelivery` | for how long a message may come again, as `7d`, where the broker does not bound it |
//!
//! A message's ordering key is the record's key. Its id is `ce_id`; a record without one goes by its place and its
//! timestamp, `topic/partition/offset/milliseconds`. Only committed records are read, and the records of transactions
//! that were aborted stop nobody.
//!
//! The consumer's group shares the partitions of its topics out among its members. Those who go by ids or sequences
//! read on at the group's committed offset: behind the last record of a partition before which all is acknowledged. It
//! is committed every second, before a partition goes to somebody else, and on close; what was acknowledged and not
//! committed when a process dies comes again, and is a duplicate. A log that goes on further down than it was read is
//! handed over from there, and so is the group's offset set back. Those who go by offsets read on where their store
//! says, and the group's offset is for dashboards only.
//!
//! A thread of its own serves the group, so that no member is thrown out while nobody receives. It reads ahead as far
//! as there is room, and then pauses its partitions (I12).

mod address;
mod group;
mod message;
mod partition;
mod reader;
mod retention;
mod shared;

use std::sync::Arc;

use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use semel::source::{Error, Received, Recognition, Redelivery, Source};
use tokio::runtime::Handle;
use tokio::sync::watch;

pub use self::shared::Receipt;

use self::address::Address;
use self::group::{Group, Places};
use self::reader::Reader;
use self::shared::Shared;
use super::context::{Client, Context, blocking};
use super::failure::explain;
use crate::subscription::Subscription;

pub(super) use self::address::{CLIENT, SESSION, group_consumer, split};
pub(super) use self::message::received;

/// Topics of a Kafka cluster as a source.
#[derive(Debug)]
pub struct KafkaSource {
    address: Address,
    client: Client,
    shared: Arc<Shared>,
    ended: watch::Receiver<()>,
}

impl KafkaSource {
    /// Connects by URL and joins the consumer's group.
    ///
    /// Wrong credentials and a topic that does not exist are refused here; a broker that cannot be reached is
    /// [`crate::Error::Unavailable`].
    pub async fn open(url: &str, subscription: &Subscription) -> Result<KafkaSource, crate::Error> {
        let address = Address::parse(url)?;
        let context = Context::new(address.settings.bootstrap());
        let client = Client::new(&address.settings, &context)?;
        client.brokers(address.settings.timeout()).await?;
        require_topics(&client, &address).await?;
        let cluster = cluster_id(&client, &address).await?;
        let places = match (subscription.recognition, &subscription.resume) {
            (Recognition::Offset, Some(resume)) => {
                let (resume, cluster) = (Arc::clone(resume), Arc::clone(&cluster));
                Some(Places { resume, cluster, runtime: Handle::current() })
            }
            (Recognition::Offset, None) => {
                return Err(crate::Error::Refused(
                    "a consumer that goes by offsets needs a store that says where it reads on".to_owned(),
                ));
            }
            _ => None,
        };
        let shared = Arc::new(Shared::default());
        let group = Group { context: context.clone(), shared: Arc::clone(&shared), places: places.clone() };
        let config = address.consumer(&subscription.group());
        let consumer = BaseConsumer::from_config_and_context(&config, group).map_err(|error| unusable(&error))?;
        let topics: Vec<&str> = address.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| unusable(&error))?;
        let (ending, ended) = watch::channel(());
        let reader = Reader { consumer, shared: Arc::clone(&shared), cluster, places, _ended: ending };
        std::thread::Builder::new()
            .name("semel-kafka".to_owned())
            .spawn(move || reader.run())
            .map_err(|error| crate::Error::Unavailable(error.to_string()))?;
        Ok(KafkaSource { address, client, shared, ended })
    }
}

impl Source for KafkaSource {
    type Receipt = Receipt;

    async fn receive(&self, most: usize) -> Result<Vec<Received<Receipt>>, Error> {
        self.shared.receive(most).await
    }

    /// Takes note. The group is told within a second; a receipt from before the partition went to somebody else means
    /// nothing.
    async fn acknowledge(&self, receipts: &[&Receipt]) -> Result<(), Error> {
        self.shared.acknowledge(receipts);
        Ok(())
    }

    /// Reads the partition again: what was given back comes again, and what others have in hand does not. For those who
    /// go by offsets everything comes again that their store has not applied.
    async fn give_back(&self, receipts: &[&Receipt]) -> Result<(), Error> {
        self.shared.give_back(receipts);
        Ok(())
    }

    /// What the brokers say of the topic that is kept longest.
    async fn redelivery(&self) -> Result<Redelivery, Error> {
        retention::redelivery(&self.client, &self.address).await
    }

    /// Commits what is done and leaves the group. A member with an `instance` stays in it, for its return.
    async fn close(&self) {
        self.shared.stop();
        let mut ended = self.ended.clone();
        // The channel closes when the thread has ended. A broker that does not answer is not waited for.
        let _ = tokio::time::timeout(self.address.settings.timeout(), ended.changed()).await;
    }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

async fn require_topics(client: &Client, address: &Address) -> Result<(), crate::Error> {
    for topic in &address.topics {
        let asked = client.partitions(topic, address.settings.timeout()).await;
        let asked = asked.map_err(|error| crate::Error::Unavailable(explain(&error, client.context())))?;
        asked.map_err(|code| match code {
            RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition => {
                crate::Error::Refused(format!("there is no topic `{topic}`"))
            }
            RDKafkaErrorCode::TopicAuthorizationFailed => {
                crate::Error::Refused(format!("this user may not read the topic `{topic}`"))
            }
            code => crate::Error::Unavailable(format!("the topic `{topic}` is not ready: {code}")),
        })?;
    }
    Ok(())
}

/// What offsets of this cluster are kept under.
async fn cluster_id(client: &Client, address: &Address) -> Result<Arc<str>, crate::Error> {
    let (asking, timeout) = (client.clone(), address.settings.timeout());
    let asked = blocking(move || Ok(asking.admin().inner().fetch_cluster_id(timeout))).await;
    match asked {
        Ok(Some(id)) => Ok(id.into()),
        _ => Err(crate::Error::Unavailable("the cluster did not say its id in time".to_owned())),
    }
}

/// librdkafka does not take the settings. The value is left out: it may be a password.
pub(super) fn unusable(error: &KafkaError) -> crate::Error {
    match error {
        KafkaError::ClientConfig(_, reason, key, _) => crate::Error::Url(format!("{key}: {reason}")),
        other => crate::Error::Refused(other.to_string()),
    }
}
