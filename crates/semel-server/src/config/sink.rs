//! Where events go, and how to name it without its secrets.

use std::fmt;

use anyhow::{Result, ensure};
use semel::sink::Guarantee;

/// The URL of a sink. Shown as scheme, host and port, whatever shows it: the rest may hold passwords and signing keys.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SinkUrl(String);

impl SinkUrl {
    /// Takes a URL. What it names is looked at when it is connected to.
    pub(crate) fn parse(text: &str) -> Result<SinkUrl> {
        ensure!(text.contains(':'), "it has no scheme");
        Ok(SinkUrl(text.to_owned()))
    }

    /// The URL with all its secrets, for whoever connects.
    pub(crate) fn with_secrets(&self) -> &str {
        &self.0
    }

    /// Whether events go to this process's standard output.
    pub(crate) fn is_stdout(&self) -> bool {
        self.0.to_ascii_lowercase().starts_with("stdout:")
    }
}

impl fmt::Display for SinkUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once(':').unwrap_or(("", ""));
        let Some(rest) = rest.strip_prefix("//") else { return write!(f, "{scheme}:") };
        let host = match rest.rsplit_once('@') {
            None => rest,
            // An unescaped `@` in a parameter leaves open which part is the host.
            Some((before, _)) if before.contains(['?', '#']) => "…",
            Some((_, host)) => host,
        };
        write!(f, "{scheme}://{}", host.split(['/', '?', '#']).next().unwrap_or_default())
    }
}

impl fmt::Debug for SinkUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The least that a sink must promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    AtLeastOnce,
    Deduplicated,
    Transactional,
}

impl Wanted {
    /// Whether a sink promises that much.
    pub(crate) fn met_by(self, guarantee: Guarantee) -> bool {
        Wanted::of(guarantee) >= self
    }

    /// Its name in the configuration.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Wanted::AtLeastOnce => "at-least-once",
            Wanted::Deduplicated => "deduplicated",
            Wanted::Transactional => "transactional",
        }
    }

    /// What a sink promises.
    pub(crate) fn of(guarantee: Guarantee) -> Wanted {
        match guarantee {
            Guarantee::AtLeastOnce => Wanted::AtLeastOnce,
            Guarantee::Deduplicated { .. } => Wanted::Deduplicated,
            Guarantee::Transactional => Wanted::Transactional,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_scheme_host_and_port_are_shown() {
        for (url, shown) in [
            ("nats://u:hunter2@h:4222/?stream=S", "nats://h:4222"),
            ("kafka://u:hunter2@a:9092,b:9092/?mode=transactional", "kafka://a:9092,b:9092"),
            ("https://h/hooks/hunter2?semel_secret=hunter2", "https://h"),
            ("https://h?semel_secret=a@hunter2", "https://…"),
            ("redis://u:p/w@hunter2@h", "redis://h"),
            ("redis://u:hunter2/x@h:1", "redis://h:1"),
            ("stdout:", "stdout:"),
            ("https:hunter2", "https:"),
        ] {
            let parsed = SinkUrl::parse(url).unwrap();
            assert_eq!((parsed.to_string(), format!("{parsed:?}")), (shown.to_owned(), shown.to_owned()), "{url}");
        }
        assert!(SinkUrl::parse("nats").is_err());
    }

    #[test]
    fn a_sink_meets_what_it_promises_and_less() {
        let window = Duration::from_secs(120);
        for (guarantee, met) in [
            (Guarantee::AtLeastOnce, [true, false, false]),
            (Guarantee::Deduplicated { window }, [true, true, false]),
            (Guarantee::Transactional, [true, true, true]),
        ] {
            let wanted = [Wanted::AtLeastOnce, Wanted::Deduplicated, Wanted::Transactional];
            assert_eq!(wanted.map(|wanted| wanted.met_by(guarantee)), met);
        }
    }
}
