//! The servers that everything runs on: private, durable, gone afterwards.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use async_nats::jetstream::{self, stream};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use semel_testkit::broker::{PASSWORD, USER};
use semel_testkit::cluster::Cluster;
use semel_testkit::kafka::Kafka;
use semel_testkit::nats::Nats;

use crate::case::SinkKind;
use crate::jetstream::UnsyncedNats;
use crate::load::TOPIC;

/// How many partitions the Kafka topic has.
const PARTITIONS: i32 = 8;

/// PostgreSQL with fsync on; NATS as it comes, and one that syncs before it acknowledges; Kafka as it comes.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) postgres: Cluster,
    nats: Option<UnsyncedNats>,
    nats_synced: Option<Nats>,
    kafka: Option<Kafka>,
    serial: AtomicU32,
}

impl Servers {
    /// Starts those that these sinks need.
    pub(crate) async fn start(sinks: &[SinkKind]) -> Result<Servers> {
        let needs = |wanted: fn(&SinkKind) -> bool| sinks.iter().any(wanted);
        let nats = needs(|sink| matches!(sink, SinkKind::Nats));
        let nats_synced = needs(|sink| matches!(sink, SinkKind::NatsSynced));
        let kafka = needs(|sink| matches!(sink, SinkKind::Kafka | SinkKind::KafkaTransactional(_)));
        let servers = tokio::task::spawn_blocking(move || -> Result<Servers> {
            Ok(Servers {
                postgres: Cluster::temporary()?,
                nats: nats.then(UnsyncedNats::temporary).transpose()?,
                nats_synced: nats_synced.then(Nats::temporary).transpose()?,
                kafka: kafka.then(Kafka::temporary).transpose()?,
                serial: AtomicU32::new(0),
            })
        })
        .await??;
        if servers.kafka.is_some() {
            let admin: AdminClient<DefaultClientContext> = servers.kafka_client()?.create()?;
            let topic = NewTopic::new(TOPIC, PARTITIONS, TopicReplication::Fixed(1));
            let created = admin.create_topics([&topic], &AdminOptions::new()).await?;
            for result in created {
                result.map_err(|(topic, code)| anyhow::anyhow!("the topic {topic} was not created: {code}"))?;
            }
        }
        Ok(servers)
    }

    /// A name that nothing had before.
    pub(crate) fn fresh_name(&self) -> String {
        format!("bench{}", self.serial.fetch_add(1, Ordering::Relaxed))
    }

    /// How librdkafka reaches Kafka.
    pub(crate) fn kafka_client(&self) -> Result<ClientConfig> {
        let kafka = self.kafka.as_ref().context("no Kafka was started")?;
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", kafka.address().to_string());
        Ok(config)
    }

    /// A stream that nothing was published to yet.
    pub(crate) async fn fresh_stream(&self, synced: bool) -> Result<Stream> {
        let unsynced = self.nats.as_ref().map(UnsyncedNats::url);
        let server = if synced { self.nats_synced.as_ref().map(Nats::url) } else { unsynced };
        let server = server.context("no NATS was started")?;
        let address = server.rsplit('@').next().unwrap_or_default().trim_end_matches('/').to_owned();
        let options = async_nats::ConnectOptions::new().user_and_password(USER.to_owned(), PASSWORD.to_owned());
        let client = options.connect(format!("nats://{address}")).await?;
        let context = jetstream::context::ContextBuilder::new().timeout(Duration::from_secs(30)).build(client);
        let name = self.fresh_name();
        let subjects = vec![format!("{name}.>")];
        let config = stream::Config { name: name.clone(), subjects, ..stream::Config::default() };
        context.create_stream(config).await?;
        Ok(Stream {
            url: format!("{server}?stream={name}&prefix={name}."),
            subject: format!("{name}.{TOPIC}"),
            name,
            context,
        })
    }

    /// The URL of Semel's sink to Kafka.
    pub(crate) fn kafka_url(&self, transactional: bool) -> Result<String> {
        let url = self.kafka.as_ref().context("no Kafka was started")?.url();
        Ok(if transactional { format!("{url}?mode=transactional") } else { url })
    }
}

/// A JetStream stream of one measurement.
#[derive(Debug)]
pub(crate) struct Stream {
    /// How Semel's sink reaches it.
    pub(crate) url: String,
    pub(crate) subject: String,
    pub(crate) context: jetstream::Context,
    name: String,
}

impl Stream {
    /// Removes it, so that the next one finds the disk as this one did.
    pub(crate) async fn delete(self) -> Result<()> {
        self.context.delete_stream(&self.name).await?;
        Ok(())
    }
}
