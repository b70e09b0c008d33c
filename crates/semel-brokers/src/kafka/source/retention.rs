//! For how long a topic's records can come again.

use std::time::Duration;

use rdkafka::admin::{AdminOptions, ConfigResource, ResourceSpecifier};
use semel::source::{Error, Redelivery};

use super::address::Address;
use crate::kafka::context::Client;
use crate::kafka::failure::explain;

/// The longest over all topics. What the brokers do not say, or keep without end, the URL may say instead.
pub(super) async fn redelivery(client: &Client, address: &Address) -> Result<Redelivery, Error> {
    let check = check_interval(client, address).await?;
    let mut longest: Option<(Duration, String)> = None;
    for topic in &address.topics {
        let kept = match describe(client, ResourceSpecifier::Topic(topic), address).await? {
            Ok(settings) => kept(topic, |name| value(&settings, name), check),
            Err(reason) => Kept::Unknown(format!("the settings of the topic `{topic}` cannot be read: {reason}")),
        };
        match (kept, address.redelivery) {
            (Kept::For(duration, because), _) => {
                if longest.as_ref().is_none_or(|(longest, _)| *longest < duration) {
                    longest = Some((duration, because));
                }
            }
            (Kept::Always(because) | Kept::Unknown(because), Some(said)) => {
                if longest.as_ref().is_none_or(|(longest, _)| *longest < said) {
                    let said_words = humantime::format_duration(said);
                    longest = Some((said, format!("{because}, and the source's URL says redelivery={said_words}")));
                }
            }
            (Kept::Always(because), None) => return Ok(Redelivery::Unlimited { because }),
            (Kept::Unknown(because), None) => {
                let advice = "say redelivery=DURATION in the source's URL";
                return Err(Error::Refused(format!("{because}: {advice}").into()));
            }
        }
    }
    let (longest, because) = longest.unwrap_or_default();
    Ok(Redelivery::Within { longest, because })
}

/// For how long a topic's records are kept.
#[derive(Debug, PartialEq, Eq)]
enum Kept {
    For(Duration, String),
    Always(String),
    Unknown(String),
}

/// A record goes when the whole segment that it is in is older than the retention, at the next check, and can be read
/// until the files are deleted. Its segment is written to until it rolls.
fn kept(topic: &str, setting: impl Fn(&str) -> Option<String>, check: Duration) -> Kept {
    let policy = setting("cleanup.policy").unwrap_or_else(|| "delete".to_owned());
    if !policy.split(',').any(|policy| policy.trim() == "delete") {
        return Kept::Always(format!("the topic `{topic}` has cleanup.policy {policy}"));
    }
    let number = |name: &str| setting(name).and_then(|text| text.parse::<i64>().ok());
    let Some(retention) = number("retention.ms") else {
        return Kept::Unknown(format!("the topic `{topic}` does not tell its retention.ms"));
    };
    if retention < 0 {
        return Kept::Always(format!("the topic `{topic}` has retention.ms {retention}"));
    }
    let day = 24 * 60 * 60 * 1000;
    let parts = [
        ("retention.ms", retention),
        // Kafka's own defaults, for brokers that do not tell.
        ("segment.ms", number("segment.ms").unwrap_or(7 * day)),
        ("log.retention.check.interval.ms", i64::try_from(check.as_millis()).unwrap_or(i64::MAX)),
        ("file.delete.delay.ms", number("file.delete.delay.ms").unwrap_or(60_000)),
    ];
    let parts = parts.map(|(name, milliseconds)| (name, Duration::from_millis(milliseconds.max(0).unsigned_abs())));
    let longest = parts.iter().fold(Duration::ZERO, |sum, (_, part)| sum.saturating_add(*part));
    let words = parts.map(|(name, part)| format!("{name} {}", humantime::format_duration(part)));
    Kept::For(longest, format!("topic `{topic}`: {}", words.join(" + ")))
}

/// How often brokers look for what they may delete: the slowest counts.
async fn check_interval(client: &Client, address: &Address) -> Result<Duration, Error> {
    let brokers = client.brokers(address.settings.timeout()).await.map_err(|error| Error::Unavailable(error.into()))?;
    let mut slowest = Duration::ZERO;
    for broker in brokers {
        let said = match describe(client, ResourceSpecifier::Broker(broker), address).await? {
            Ok(settings) => value(&settings, "log.retention.check.interval.ms").and_then(|text| text.parse().ok()),
            Err(_) => None,
        };
        // Kafka's own default, for brokers that do not tell.
        slowest = slowest.max(said.map_or(Duration::from_secs(300), Duration::from_millis));
    }
    Ok(slowest)
}

/// The settings of a topic or broker, or why they are not told.
async fn describe(
    client: &Client,
    of: ResourceSpecifier<'_>,
    address: &Address,
) -> Result<Result<ConfigResource, String>, Error> {
    let options = AdminOptions::new().request_timeout(Some(address.settings.timeout()));
    let described = client.admin().describe_configs(&[of], &options).await;
    let described = described.map_err(|error| Error::Unavailable(explain(&error, client.context()).into()))?;
    Ok(match described.into_iter().next() {
        Some(Ok(settings)) => Ok(settings),
        Some(Err(code)) => Err(code.to_string()),
        None => Err("the broker does not answer for it".to_owned()),
    })
}

fn value(settings: &ConfigResource, name: &str) -> Option<String> {
    settings.get(name)?.value.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: Duration = Duration::from_secs(300);

    fn topic(settings: &'static [(&'static str, &'static str)]) -> Kept {
        let find = |name: &str| settings.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        kept("t", find, CHECK)
    }

    #[test]
    fn retention_segment_check_and_deletion_add_up() {
        let kept = topic(&[
            ("cleanup.policy", "compact,delete"),
            ("retention.ms", "3600000"),
            ("segment.ms", "600000"),
            ("file.delete.delay.ms", "60000"),
        ]);
        let Kept::For(longest, because) = kept else { panic!("{kept:?}") };
        assert_eq!(longest, Duration::from_secs(3600 + 600 + 300 + 60));
        assert_eq!(
            because,
            "topic `t`: retention.ms 1h + segment.ms 10m + log.retention.check.interval.ms 5m + file.delete.delay.ms 1m"
        );
    }

    #[test]
    fn what_is_never_deleted_comes_again_without_end() {
        assert!(matches!(topic(&[("cleanup.policy", "compact"), ("retention.ms", "1")]), Kept::Always(_)));
        assert!(matches!(topic(&[("cleanup.policy", "delete"), ("retention.ms", "-1")]), Kept::Always(_)));
        assert!(matches!(topic(&[("cleanup.policy", "delete")]), Kept::Unknown(_)));
    }
}
