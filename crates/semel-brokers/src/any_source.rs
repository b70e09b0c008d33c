//! A source by its URL.

use std::time::Duration;

use semel::source::{self, Received, Recognition, Redelivery, Source};

use crate::{Error, Subscription};

/// The schemes that exist, with the feature that brings each.
const SCHEMES: [(&str, &str); 7] = [
    ("nats", "nats"),
    ("amqp", "rabbitmq"),
    ("amqps", "rabbitmq"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("kafka", "kafka"),
    ("http", "http"),
];

/// Opens the source that `url` names, for this subscription. Its broker must be reachable now; later losses of the
/// connection are the source's to repair.
pub async fn open(url: &str, subscription: &Subscription) -> Result<AnySource, Error> {
    let scheme = url.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase()).unwrap_or_default();
    if subscription.recognition == Recognition::Offset && scheme != "kafka" {
        return Err(Error::Refused("only messages of Kafka can be recognised by their offsets".to_owned()));
    }
    match scheme.as_str() {
        #[cfg(feature = "http")]
        "http" => Ok(AnySource::Http(Box::new(crate::http::HttpSource::open(url, subscription).await?))),
        #[cfg(feature = "kafka")]
        "kafka" => Ok(AnySource::Kafka(Box::new(crate::kafka::KafkaSource::open(url, subscription).await?))),
        #[cfg(feature = "nats")]
        "nats" => Ok(AnySource::Nats(Box::new(crate::nats::NatsSource::open(url, subscription).await?))),
        #[cfg(feature = "rabbitmq")]
        "amqp" | "amqps" => {
            Ok(AnySource::RabbitMq(Box::new(crate::rabbitmq::RabbitMqSource::open(url, subscription).await?)))
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" => Ok(AnySource::Redis(Box::new(crate::redis::RedisSource::open(url, subscription).await?))),
        _ => Err(match SCHEMES.iter().find(|(known, _)| *known == scheme) {
            Some((_, feature)) => Error::NotBuilt { scheme, feature },
            None => {
                let known: Vec<&str> = SCHEMES.iter().map(|(scheme, _)| *scheme).collect();
                Error::Url(format!("a source's must begin with one of: {}", known.join(":, ") + ":"))
            }
        }),
    }
}

/// Makes the two enums, and forwards each call to the source inside.
macro_rules! any_source {
    ($($feature:literal $name:ident($source:ty), $what:literal;)*) => {
        /// Any of the sources that this build has.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum AnySource {
            $(
                #[doc = $what]
                #[cfg(feature = $feature)]
                $name(Box<$source>),
            )*
        }

        /// What acknowledges a message of an [`AnySource`].
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum AnyReceipt {
            $(
                #[doc = $what]
                #[cfg(feature = $feature)]
                $name(<$source as Source>::Receipt),
            )*
        }

        #[allow(unused_variables, unreachable_patterns, reason = "a build may have one source, or none")]
        impl Source for AnySource {
            type Receipt = AnyReceipt;

            async fn receive(&self, most: usize) -> Result<Vec<Received<AnyReceipt>>, source::Error> {
                match *self {
                    $(
                        #[cfg(feature = $feature)]
                        AnySource::$name(ref source) => {
                            let received = source.receive(most).await?;
                            Ok(received.into_iter().map(|it| wrapped(it, AnyReceipt::$name)).collect())
                        }
                    )*
                }
            }

            async fn acknowledge(&self, receipts: &[&AnyReceipt]) -> Result<(), source::Error> {
                any_source!(@answer acknowledge, self, receipts, $($feature $name),*)
            }

            async fn give_back(&self, receipts: &[&AnyReceipt]) -> Result<(), source::Error> {
                any_source!(@answer give_back, self, receipts, $($feature $name),*)
            }

            async fn prolong(&self, receipts: &[&AnyReceipt]) -> Result<(), source::Error> {
                any_source!(@answer prolong, self, receipts, $($feature $name),*)
            }

            fn prolong_every(&self) -> Option<Duration> {
                match *self {
                    $(
                        #[cfg(feature = $feature)]
                        AnySource::$name(ref source) => source.prolong_every(),
                    )*
                }
            }

            async fn redelivery(&self) -> Result<Redelivery, source::Error> {
                match *self {
                    $(
                        #[cfg(feature = $feature)]
                        AnySource::$name(ref source) => source.redelivery().await,
                    )*
                }
            }

            async fn close(&self) {
                match *self {
                    $(
                        #[cfg(feature = $feature)]
                        AnySource::$name(ref source) => source.close().await,
                    )*
                }
            }
        }
    };
    (@answer $call:ident, $any:expr, $receipts:expr, $($feature:literal $name:ident),*) => {
        match *$any {
            $(
                #[cfg(feature = $feature)]
                AnySource::$name(ref source) => {
                    // They are its own: nobody else handed any out.
                    let own = $receipts.iter().filter_map(|receipt| match receipt {
                        AnyReceipt::$name(receipt) => Some(receipt),
                        _ => None,
                    });
                    source.$call(&own.collect::<Vec<_>>()).await
                }
            )*
        }
    };
}

any_source! {
    "http" Http(crate::http::HttpSource), "Webhooks.";
    "kafka" Kafka(crate::kafka::KafkaSource), "Apache Kafka.";
    "nats" Nats(crate::nats::NatsSource), "NATS JetStream.";
    "rabbitmq" RabbitMq(crate::rabbitmq::RabbitMqSource), "RabbitMQ.";
    "redis" Redis(crate::redis::RedisSource), "Redis Streams.";
}

/// The same message, with its receipt as one of any source.
#[cfg(any(feature = "http", feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "redis"))]
fn wrapped<R>(received: Received<R>, any: impl FnOnce(R) -> AnyReceipt) -> Received<AnyReceipt> {
    Received { message: received.message, unusable: received.unusable, receipt: any(received.receipt) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_scheme_is_refused_with_those_there_are() {
        for url in ["sqs://u:hidden@h/", "no colon hidden", "https://u:hidden@h/"] {
            let error = open(url, &Subscription::new("test")).await.unwrap_err().to_string();
            assert!(error.contains("amqp:, ") && error.contains("http:"), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[tokio::test]
    async fn only_kafka_has_offsets() {
        let subscription = Subscription { recognition: Recognition::Offset, ..Subscription::new("test") };
        let error = open("nats://127.0.0.1:1/?stream=s", &subscription).await.unwrap_err().to_string();
        assert!(error.contains("Kafka"), "{error}");
    }
}
