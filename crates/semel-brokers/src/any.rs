//! A sink by its URL.

use semel::Sink;
use semel::sink::{self, Guarantee, Lane, Outgoing, Position};

use crate::Error;

/// The schemes that exist, with the feature that brings each.
const SCHEMES: [(&str, &str); 9] = [
    ("nats", "nats"),
    ("amqp", "rabbitmq"),
    ("amqps", "rabbitmq"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("kafka", "kafka"),
    ("http", "http"),
    ("https", "http"),
    ("stdout", "stdout"),
];

/// Any of the sinks that this build has.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnySink {
    /// A webhook.
    #[cfg(feature = "http")]
    Http(Box<crate::http::HttpSink>),
    /// Apache Kafka.
    #[cfg(feature = "kafka")]
    Kafka(Box<crate::kafka::Kafka>),
    /// NATS JetStream.
    #[cfg(feature = "nats")]
    Nats(crate::nats::Nats),
    /// RabbitMQ.
    #[cfg(feature = "rabbitmq")]
    RabbitMq(crate::rabbitmq::RabbitMq),
    /// Redis Streams.
    #[cfg(feature = "redis")]
    Redis(crate::redis::Redis),
    /// Standard output.
    #[cfg(feature = "stdout")]
    Stdout(crate::stdout::StdoutSink),
}

/// Connects to the broker that `url` names. It must be reachable now: what a sink guarantees may depend on what the
/// broker says. Later losses of the connection are the sink's to repair.
///
/// `installation` names the database whose events these are, the same on every start; a transactional sink fences by
/// it.
pub async fn connect(url: &str, installation: &str) -> Result<AnySink, Error> {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase()).unwrap_or_default();
    #[cfg(not(feature = "kafka"))]
    let _ = installation;
    match scheme.as_str() {
        #[cfg(feature = "http")]
        "http" | "https" => Ok(AnySink::Http(Box::new(crate::http::HttpSink::from_url(url)?))),
        #[cfg(feature = "kafka")]
        "kafka" => Ok(AnySink::Kafka(Box::new(crate::kafka::Kafka::connect(url, installation).await?))),
        #[cfg(feature = "nats")]
        "nats" => Ok(AnySink::Nats(crate::nats::Nats::connect(url).await?)),
        #[cfg(feature = "rabbitmq")]
        "amqp" | "amqps" => Ok(AnySink::RabbitMq(crate::rabbitmq::RabbitMq::connect(url).await?)),
        #[cfg(feature = "redis")]
        "redis" | "rediss" => Ok(AnySink::Redis(crate::redis::Redis::connect(url).await?)),
        #[cfg(feature = "stdout")]
        "stdout" if url.len() > "stdout:".len() => Err(Error::Url("nothing follows the colon of `stdout:`".to_owned())),
        #[cfg(feature = "stdout")]
        "stdout" => match crate::stdout::StdoutSink::new() {
            Ok(sink) => Ok(AnySink::Stdout(sink)),
            Err(error) => Err(Error::Unavailable(format!("standard output: {error}"))),
        },
        _ => Err(match SCHEMES.iter().find(|(known, _)| *known == scheme) {
            Some((_, feature)) => Error::NotBuilt { scheme, feature },
            None => {
                let known: Vec<&str> = SCHEMES.iter().map(|(scheme, _)| *scheme).collect();
                Error::Url(format!("it must begin with one of: {}", known.join(":, ") + ":"))
            }
        }),
    }
}

/// Calls the sink inside, whichever it is.
macro_rules! forward {
    ($any:expr, $sink:ident => $call:expr) => {
        match *$any {
            #[cfg(feature = "http")]
            AnySink::Http(ref $sink) => $call,
            #[cfg(feature = "kafka")]
            AnySink::Kafka(ref $sink) => $call,
            #[cfg(feature = "nats")]
            AnySink::Nats(ref $sink) => $call,
            #[cfg(feature = "rabbitmq")]
            AnySink::RabbitMq(ref $sink) => $call,
            #[cfg(feature = "redis")]
            AnySink::Redis(ref $sink) => $call,
            #[cfg(feature = "stdout")]
            AnySink::Stdout(ref $sink) => $call,
        }
    };
}

#[cfg_attr(
    not(any(
        feature = "http",
        feature = "kafka",
        feature = "nats",
        feature = "rabbitmq",
        feature = "redis",
        feature = "stdout"
    )),
    allow(unused_variables)
)]
impl Sink for AnySink {
    fn guarantee(&self) -> Guarantee {
        forward!(self, sink => sink.guarantee())
    }

    fn fills_gaps(&self) -> bool {
        forward!(self, sink => sink.fills_gaps())
    }

    async fn take_lane(&self, lane: Lane) -> Result<Option<Position>, sink::Error> {
        forward!(self, sink => sink.take_lane(lane).await)
    }

    async fn publish(&self, lane: Lane, batch: &[Outgoing], position: &Position) -> Vec<Result<(), sink::Error>> {
        forward!(self, sink => sink.publish(lane, batch, position).await)
    }

    async fn close(&self) {
        forward!(self, sink => sink.close().await)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::connect;

    #[tokio::test]
    async fn an_unknown_scheme_is_refused_with_those_there_are() {
        for url in ["sqs://u:hidden@h/", "no colon hidden", "nats//u:hidden@h"] {
            let error = connect(url, "test").await.unwrap_err().to_string();
            assert!(error.contains("amqp:, ") && error.contains("stdout:"), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[cfg(not(feature = "kafka"))]
    #[tokio::test]
    async fn a_broker_that_was_not_built_in_names_its_feature() {
        let error = connect("kafka://localhost:9092/", "test").await.unwrap_err().to_string();
        assert!(error.contains("feature `kafka`"), "{error}");
    }
}
