//! What the URL of something that reads from Kafka says.

use std::time::Duration;

use ::url::form_urlencoded;
use rdkafka::ClientConfig;

use crate::Error;
use crate::kafka::settings::{Settings, is_name};

/// What every client of a cluster may be told, and [`Settings`] reads.
pub(in crate::kafka) const CLIENT: [&str; 4] = ["tls", "ca", "sasl", "timeout_ms"];

/// What only sources have.
const OWN: [&str; 4] = ["topic", "instance", "session_timeout_ms", "redelivery"];

/// After how long the group takes a member that was killed for dead.
pub(in crate::kafka) const SESSION: Duration = Duration::from_secs(10);

/// A checked URL.
#[derive(Debug, Clone)]
pub(super) struct Address {
    pub(super) settings: Settings,
    pub(super) topics: Vec<String>,
    /// What an operator says where the broker does not tell.
    pub(super) redelivery: Option<Duration>,
    instance: Option<String>,
    session: Duration,
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Address, Error> {
        let (rest, own) = split(text, &OWN, &CLIENT)?;
        let settings = Settings::parse(&rest)?;
        let mut topics: Vec<String> = Vec::new();
        let (mut instance, mut session, mut redelivery) = (None, SESSION, None);
        for (name, value) in own {
            match name.as_str() {
                "topic" if !is_name(&value) => {
                    return Err(Error::Url(format!("`topic={value}` cannot be the name of a topic")));
                }
                "topic" if topics.contains(&value) => {
                    return Err(Error::Url(format!("`topic={value}` is given twice")));
                }
                "topic" => topics.push(value),
                "instance" if !is_name(&value) => {
                    return Err(Error::Url(
                        "`instance` must be letters, digits, dots, dashes or underscores".to_owned(),
                    ));
                }
                "instance" => instance = Some(value),
                "session_timeout_ms" => {
                    session = match value.parse() {
                        Ok(milliseconds @ 1000..=300_000) => Duration::from_millis(milliseconds),
                        _ => {
                            let bounds = "must be a whole number between 1000 and 300000";
                            return Err(Error::Url(format!("`session_timeout_ms={value}` {bounds}")));
                        }
                    };
                }
                _ => match humantime::parse_duration(&value) {
                    Ok(duration) if !duration.is_zero() => redelivery = Some(duration),
                    _ => return Err(Error::Url(format!("`redelivery={value}` must be a duration, such as `7d`"))),
                },
            }
        }
        if topics.is_empty() {
            return Err(Error::Url("it names no topic: add `topic=NAME`, several times for several".to_owned()));
        }
        Ok(Address { settings, topics, redelivery, instance, session })
    }

    /// For the group's consumer.
    pub(super) fn consumer(&self, group: &str) -> ClientConfig {
        let mut config = group_consumer(&self.settings, group, self.instance.as_deref(), self.session);
        config
            .set("partition.assignment.strategy", "cooperative-sticky")
            // Little is fetched ahead: what waits here is fetched again after a pause.
            .set("queued.min.messages", "1000")
            .set("queued.max.messages.kbytes", "8192");
        config
    }
}

/// What every consumer of a group has here: it sees committed records only, and nothing is committed behind its back.
pub(in crate::kafka) fn group_consumer(
    settings: &Settings,
    group: &str,
    instance: Option<&str>,
    session: Duration,
) -> ClientConfig {
    let mut config = settings.client();
    config
        .set("group.id", group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("isolation.level", "read_committed")
        .set("auto.offset.reset", "earliest")
        .set("session.timeout.ms", session.as_millis().to_string())
        .set("heartbeat.interval.ms", (session.as_millis() / 3).clamp(300, 3000).to_string())
        // A fetch that waits for records holds up whoever wants to read elsewhere.
        .set("fetch.wait.max.ms", "100");
    if let Some(instance) = instance {
        config.set("group.instance.id", instance);
    }
    config
}

/// Takes the parameters named in `own` out of a URL, in their order, and leaves those named in `passed`. Any other is
/// refused by its name.
pub(in crate::kafka) fn split(
    text: &str,
    own: &[&str],
    passed: &[&str],
) -> Result<(String, Vec<(String, String)>), Error> {
    let text = text.split_once('#').map_or(text, |(before, _)| before);
    let Some((base, query)) = text.split_once('?') else { return Ok((text.to_owned(), Vec::new())) };
    let mut taken: Vec<(String, String)> = Vec::new();
    let mut left = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if own.contains(&&*name) {
            let repeated = name != "topic" && taken.iter().any(|(known, _)| *known == *name);
            if repeated {
                return Err(Error::Url(format!("the parameter `{name}` is given twice")));
            }
            taken.push((name.into_owned(), value.into_owned()));
        } else if passed.contains(&&*name) {
            left.append_pair(&name, &value);
        } else {
            let known = own.iter().chain(passed).copied().collect::<Vec<_>>().join(", ");
            return Err(Error::Url(format!("nothing here has a parameter `{name}`; there are: {known}")));
        }
    }
    Ok((format!("{base}?{}", left.finish()), taken))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn several_topics_and_a_password_are_read() {
        let url = "kafka://me:p%40ss@one:1,two/?topic=a&timeout_ms=5000&topic=b.c&redelivery=4d&instance=x-1";
        let address = Address::parse(url).unwrap();
        assert_eq!(address.topics, ["a", "b.c"]);
        assert_eq!(address.settings.bootstrap(), "one:1,two:9092");
        assert_eq!(address.settings.timeout(), Duration::from_secs(5));
        assert_eq!(address.redelivery, Some(Duration::from_secs(4 * 24 * 60 * 60)));
        let consumer = address.consumer("receipts");
        assert_eq!(consumer.get("sasl.password"), Some("p@ss"));
        assert_eq!(consumer.get("group.instance.id"), Some("x-1"));
        assert_eq!(consumer.get("isolation.level"), Some("read_committed"));
        assert_eq!(consumer.get("enable.auto.commit"), Some("false"));
    }

    #[test]
    fn what_means_nothing_is_refused_by_name_and_no_error_holds_the_password() {
        for (parameters, word) in [
            ("", "topic"),
            ("?topic=a&topic=a", "twice"),
            ("?topic=a/b", "topic"),
            ("?topic=a&mode=transactional", "mode"),
            ("?topic=a&redelivery=long", "redelivery"),
            ("?topic=a&session_timeout_ms=1", "session_timeout_ms"),
            ("?topic=a&session_timeout_ms=300001", "session_timeout_ms"),
            ("?topic=a&instance=a&instance=b", "instance"),
            ("?topic=a&tls=maybe", "tls"),
        ] {
            let error = Address::parse(&format!("kafka://u:hidden@h:1/{parameters}")).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
            assert!(!format!("{error} {error:?}").contains("hidden"), "{error:?}");
        }
        let address = Address::parse("kafka://u:hidden@h:1/?topic=a").unwrap();
        assert!(!format!("{address:?}").contains("hidden"));
    }
}
