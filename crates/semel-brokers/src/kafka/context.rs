//! Clients of one cluster, and what they were told last.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{FutureProducer, Producer as _, PurgeConfig};

use super::failure::explain;
use super::settings::Settings;
use crate::Error;

/// How long what was heard explains an error.
const NEWS: Duration = Duration::from_secs(60);

/// Hears what librdkafka says in passing, such as why a connection fails, so that an error can repeat it.
#[derive(Debug, Clone)]
pub(super) struct Context {
    bootstrap: String,
    heard: Arc<Mutex<Option<Heard>>>,
}

#[derive(Debug)]
struct Heard {
    at: Instant,
    code: RDKafkaErrorCode,
    reason: String,
}

impl Context {
    pub(super) fn new(bootstrap: &str) -> Context {
        Context { bootstrap: bootstrap.to_owned(), heard: Arc::default() }
    }

    /// The last thing that went wrong with a connection, while it is news.
    pub(super) fn heard(&self) -> Option<(RDKafkaErrorCode, String)> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.as_ref().filter(|heard| heard.at.elapsed() < NEWS).map(|heard| (heard.code, heard.reason.clone()))
    }

    /// The brokers asked first.
    pub(super) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
                tracing::debug!(facility, "kafka: {message}");
            }
            _ => tracing::warn!(facility, "kafka: {message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!("kafka: {reason}");
        if let Some(code) = error.rdkafka_error_code() {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            // "All brokers are down" follows every reason and explains none.
            if code != RDKafkaErrorCode::AllBrokersDown || heard.is_none() {
                *heard = Some(Heard { at: Instant::now(), code, reason: reason.to_owned() });
            }
        }
    }
}

impl ConsumerContext for Context {}

/// A producer that can be discarded anywhere. librdkafka's own end takes a moment, so a thread waits for it.
pub(super) struct Producer(Option<FutureProducer<Context>>);

impl Producer {
    pub(super) fn new(config: &rdkafka::ClientConfig, context: &Context) -> Result<Producer, Error> {
        let producer =
            FutureProducer::from_config_and_context(config, context.clone()).map_err(|error| unusable(&error))?;
        Ok(Producer(Some(producer)))
    }

    /// The producer itself, cheaply cloned. The clone must not outlive a call.
    pub(super) fn get(&self) -> Option<FutureProducer<Context>> {
        self.0.clone()
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        if let Some(producer) = self.0.take() {
            std::thread::spawn(move || {
                producer.purge(PurgeConfig::default().queue().inflight());
                drop(producer);
            });
        }
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Producer")
    }
}

/// Asks the cluster about itself and publishes nothing.
#[derive(Clone)]
pub(super) struct Client {
    context: Context,
    asking: Arc<Producer>,
    admin: Arc<AdminClient<Context>>,
}

impl Client {
    pub(super) fn new(settings: &Settings, context: &Context) -> Result<Client, Error> {
        let asking = Arc::new(Producer::new(&settings.client(), context)?);
        let admin = AdminClient::from_config_and_context(&settings.client(), context.clone());
        Ok(Client { context: context.clone(), asking, admin: Arc::new(admin.map_err(|error| unusable(&error))?) })
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn admin(&self) -> &AdminClient<Context> {
        &self.admin
    }

    /// The ids of the cluster's brokers.
    pub(super) async fn brokers(&self, timeout: Duration) -> Result<Vec<i32>, Error> {
        let asking = self.asking.get().ok_or_else(closed)?;
        let asked = blocking(move || {
            let metadata = asking.client().fetch_metadata(None, timeout)?;
            Ok(metadata.brokers().iter().map(|broker| broker.id()).collect())
        });
        asked.await.map_err(|error| {
            let reason = explain(&error, &self.context);
            match self.context.heard() {
                Some((RDKafkaErrorCode::Authentication, _)) => Error::Refused(reason),
                Some((RDKafkaErrorCode::SSL, _)) => Error::Refused(reason),
                _ => Error::Unavailable(reason),
            }
        })
    }

    /// How many partitions a topic has, or the code that the broker gives instead.
    pub(super) async fn partitions(
        &self,
        topic: &str,
        timeout: Duration,
    ) -> Result<Result<usize, RDKafkaErrorCode>, KafkaError> {
        let asking = self.asking.get().ok_or(KafkaError::Canceled)?;
        let name = topic.to_owned();
        blocking(move || {
            let metadata = asking.client().fetch_metadata(Some(&name), timeout)?;
            let topic = metadata.topics().iter().find(|topic| topic.name() == name);
            Ok(match topic.map(|topic| (topic.error(), topic.partitions().len())) {
                Some((None, partitions)) if partitions > 0 => Ok(partitions),
                Some((Some(error), _)) => Err(RDKafkaErrorCode::from(error)),
                _ => Err(RDKafkaErrorCode::UnknownTopicOrPartition),
            })
        })
        .await
    }

    /// One entry of a topic's or broker's configuration, where the broker lets it be read.
    pub(super) async fn setting(&self, of: ResourceSpecifier<'_>, name: &str, timeout: Duration) -> Option<String> {
        let options = AdminOptions::new().request_timeout(Some(timeout));
        let resources = self.admin.describe_configs(&[of], &options).await.ok()?;
        let resource = resources.into_iter().next()?.ok()?;
        resource.get(name)?.value.clone()
    }

    /// Refuses a transaction timeout that the brokers would refuse later, with the reason.
    pub(super) async fn require_transaction_timeout(&self, settings: &Settings, brokers: &[i32]) -> Result<(), Error> {
        let Some(broker) = brokers.first() else { return Ok(()) };
        let name = "transaction.max.timeout.ms";
        let limit = self.setting(ResourceSpecifier::Broker(*broker), name, settings.timeout()).await;
        // A broker that does not show its settings refuses by itself when a lane is taken.
        let Some(limit) = limit.and_then(|limit| limit.parse::<u128>().ok()) else { return Ok(()) };
        if settings.transaction_timeout().as_millis() > limit {
            return Err(Error::Refused(transaction_timeout_too_long(settings, Some(limit))));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.context.bootstrap)
    }
}

/// What to say when the transaction timeout is above the broker's limit.
pub(super) fn transaction_timeout_too_long(settings: &Settings, limit_ms: Option<u128>) -> String {
    let limit = limit_ms.map(|limit| format!(" of {limit}")).unwrap_or_default();
    format!(
        "transaction_timeout_ms={} is above the broker's transaction.max.timeout.ms{limit}: lower it in the sink's \
         URL, or raise the broker's",
        settings.transaction_timeout().as_millis()
    )
}

/// Runs a call of librdkafka's that waits, away from the runtime's own threads.
pub(super) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, KafkaError> + Send + 'static,
) -> Result<T, KafkaError> {
    tokio::task::spawn_blocking(call).await.unwrap_or(Err(KafkaError::Canceled))
}

/// librdkafka does not take the settings. The value is left out: it may be a password.
fn unusable(error: &KafkaError) -> Error {
    match error {
        KafkaError::ClientConfig(_, reason, key, _) => Error::Url(format!("{key}: {reason}")),
        other => Error::Url(other.to_string()),
    }
}

fn closed() -> Error {
    Error::Unavailable("the sink is closed".to_owned())
}
