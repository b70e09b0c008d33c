//! What a `kafka:` URL says, and what librdkafka is told.

use std::fmt;
use std::time::Duration;

use rdkafka::ClientConfig;

use crate::Error;
use crate::url::SinkUrl;

/// The most bytes of records that are sent as one batch. A broker judges the size of the batch, not of the record.
pub(super) const BATCH_BYTES: usize = 1_000_000;

/// The most lanes a sink can have.
const MAX_LANES: u64 = 4096;

/// How records are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// At least once, in order.
    Idempotent,
    /// Together with the lane's position.
    Transactional,
}

/// A checked URL.
#[derive(Clone)]
pub(super) struct Settings {
    bootstrap: String,
    mode: Mode,
    timeout: Duration,
    transaction_timeout: Duration,
    lanes: u16,
    prefix: String,
    client: ClientConfig,
}

impl Settings {
    pub(super) fn parse(text: &str) -> Result<Settings, Error> {
        let (bootstrap, first_only) = split_hosts(text)?;
        let mut url = SinkUrl::parse(&first_only)?;
        if !matches!(url.path(), "") {
            return Err(Error::Url("a path means nothing here: topics come with the events".to_owned()));
        }
        let mode = match url.text("mode").as_deref() {
            None | Some("idempotent") => Mode::Idempotent,
            Some("transactional") => Mode::Transactional,
            Some(other) => {
                return Err(Error::Url(format!("`mode={other}` must be `idempotent` or `transactional`")));
            }
        };
        if let Some(other) = url.text("acks").filter(|acks| acks != "all") {
            return Err(Error::Url(format!("`acks={other}` must be `all`: fewer could lose what was acknowledged")));
        }
        let transaction_timeout = match url.number("transaction_timeout_ms")?.unwrap_or(60_000) {
            milliseconds @ 1000..=2_147_483_647 => Duration::from_millis(milliseconds),
            other => {
                return Err(Error::Url(format!(
                    "`transaction_timeout_ms={other}` must be between 1000 and 2147483647"
                )));
            }
        };
        let lanes = match url.number("lanes")?.unwrap_or(64) {
            lanes @ 1..=MAX_LANES => u16::try_from(lanes).unwrap_or(u16::MAX),
            other => return Err(Error::Url(format!("`lanes={other}` must be between 1 and {MAX_LANES}"))),
        };
        let prefix = url.text("prefix").unwrap_or_else(|| "semel".to_owned());
        if !is_name(&prefix) || prefix.len() > 60 {
            return Err(Error::Url("`prefix` must be 1 to 60 letters, digits, dots, dashes or underscores".to_owned()));
        }
        let client = client(&mut url, &bootstrap)?;
        let timeout = url.timeout()?;
        url.finish()?;
        Ok(Settings { bootstrap, mode, timeout, transaction_timeout, lanes, prefix, client })
    }

    /// The brokers asked first.
    pub(super) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn transaction_timeout(&self) -> Duration {
        self.transaction_timeout
    }

    pub(super) fn lanes(&self) -> u16 {
        self.lanes
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// For a client that publishes nothing.
    pub(super) fn client(&self) -> ClientConfig {
        self.client.clone()
    }

    /// For a producer without transactions. It never drops a record by age: whoever publishes decides when to give up,
    /// and discards the producer.
    pub(super) fn producer(&self) -> ClientConfig {
        let mut config = self.any_producer();
        config.set("message.timeout.ms", "0").set("enable.gapless.guarantee", "true");
        config
    }

    /// For the one producer of a lane. librdkafka bounds a record's age by the transaction's; a record that grows too
    /// old fails the transaction, so none is dropped alone.
    pub(super) fn transactional_producer(&self, transactional_id: &str) -> ClientConfig {
        let mut config = self.any_producer();
        config
            .set("transactional.id", transactional_id)
            // Offsets that are added while the coordinator still ends the transaction before are refused and sent again
            // after this pause, which grows with each further one: of every transaction, if they follow each other.
            .set("retry.backoff.ms", "5")
            .set("transaction.timeout.ms", self.transaction_timeout.as_millis().to_string());
        config
    }

    /// For reading positions back.
    pub(super) fn consumer(&self) -> ClientConfig {
        let mut config = self.client();
        config
            .set("group.id", format!("{}-positions", self.prefix))
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "earliest")
            // Whoever reads to the end is told about it only when a fetch comes back empty.
            .set("fetch.wait.max.ms", "10")
            .set("isolation.level", "read_committed");
        config
    }

    fn any_producer(&self) -> ClientConfig {
        let mut config = self.client();
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("max.in.flight.requests.per.connection", "5")
            .set("partitioner", "murmur2_random")
            .set("linger.ms", "1")
            .set("batch.size", BATCH_BYTES.to_string())
            // The topic's own limit is what counts, and is read from the broker; this one must only not be lower.
            .set("message.max.bytes", "16777216");
        config
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kafka://{} ({:?})", self.bootstrap, self.mode)
    }
}

/// Whether Kafka takes it as a topic's name.
pub(super) fn is_name(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=249).contains(&text.len()) && text.chars().all(legal) && text != "." && text != ".."
}

/// Takes the list of hosts out, which other URLs do not have, and leaves one with the first host only.
fn split_hosts(text: &str) -> Result<(String, String), Error> {
    let rest = text.strip_prefix("kafka://").ok_or_else(|| Error::Url("it must start with `kafka://`".to_owned()))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    let mut bootstrap = Vec::new();
    for host in hosts.split(',') {
        let checked = SinkUrl::parse(&format!("kafka://{host}"))?;
        bootstrap.push(checked.authority(9092));
    }
    let first = bootstrap.first().cloned().unwrap_or_default();
    let slash = if tail.starts_with('/') { "" } else { "/" };
    Ok((bootstrap.join(","), format!("kafka://{user}{first}{slash}{tail}")))
}

fn client(url: &mut SinkUrl, bootstrap: &str) -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("client.id", "semel")
        .set("reconnect.backoff.max.ms", "1000")
        .set("topic.metadata.refresh.interval.ms", "60000");
    let tls = url.flag("tls")?;
    match url.text("ca") {
        Some(_) if !tls => return Err(Error::Url("`ca` needs `tls=true`".to_owned())),
        Some(file) => {
            config.set("ssl.ca.location", file);
        }
        None => {}
    }
    let (user, password) = url.credentials()?;
    let mechanism = url.text("sasl");
    let protocol = match (&user, tls) {
        (None, false) => "plaintext",
        (None, true) => "ssl",
        (Some(_), false) => "sasl_plaintext",
        (Some(_), true) => "sasl_ssl",
    };
    let scram = mechanism.as_deref().is_some_and(|mechanism| mechanism.starts_with("SCRAM"));
    if (tls || scram) && cfg!(not(feature = "kafka-tls")) {
        return Err(Error::Url(
            "TLS and SCRAM are not in this build: build it with the feature `kafka-tls`".to_owned(),
        ));
    }
    config.set("security.protocol", protocol);
    match (user, mechanism) {
        (None, None) => {}
        (None, Some(_)) => return Err(Error::Url("`sasl` needs a user name and a password".to_owned())),
        (Some(user), mechanism) => {
            let mechanism = mechanism.unwrap_or_else(|| "PLAIN".to_owned());
            if !matches!(mechanism.as_str(), "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512") {
                return Err(Error::Url(format!("`sasl={mechanism}` must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")));
            }
            config.set("sasl.mechanism", mechanism);
            config.set("sasl.username", user).set("sasl.password", password.unwrap_or_default());
        }
    }
    Ok(config)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn several_brokers_and_a_password_are_read() {
        let settings =
            Settings::parse("kafka://me:p%40ss@one:1,two,[::1]:3/?mode=transactional&transaction_timeout_ms=5000")
                .unwrap();
        assert_eq!(settings.bootstrap(), "one:1,two:9092,[::1]:3");
        assert_eq!(settings.mode(), Mode::Transactional);
        assert_eq!(settings.client().get("sasl.password"), Some("p@ss"));
        assert_eq!(settings.client().get("security.protocol"), Some("sasl_plaintext"));
    }

    #[test]
    fn what_would_weaken_a_promise_is_refused() {
        for parameters in ["acks=1", "mode=fast", "transaction_timeout_ms=0", "lanes=0", "sasl=PLAIN", "retries=1"] {
            let error = Settings::parse(&format!("kafka://h:1/?{parameters}")).unwrap_err().to_string();
            let name = parameters.split('=').next().unwrap();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn no_error_and_no_debug_output_holds_the_password() {
        for url in
            ["kafka://u:hidden@h:99999/", "kafka://u:hidden@h/?acks=0", "kafka://u:hidden@h,/", "kafka://u:hidden@h/t"]
        {
            let error = Settings::parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hidden"), "{error:?}");
        }
        assert!(!format!("{:?}", Settings::parse("kafka://u:hidden@h/").unwrap()).contains("hidden"));
    }
}
