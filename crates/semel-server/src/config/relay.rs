//! What was configured about publishing events.

use std::time::Duration;

use anyhow::{Result, ensure};
use semel::outbox::PageLimit;
use semel::relay::Settings;

use super::{HOUR, Layers, MILLISECOND, SinkUrl, Wanted, value};

/// The most bytes that may be read and not yet published, or read at once (I12).
const MAX_BYTES: usize = 1024 * 1024 * 1024;

/// The longest time that published events can be kept.
const MAX_WINDOW: Duration = Duration::from_secs(90 * 24 * 3600);

/// The longest name of a relay or source, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Where events go and how.
#[derive(Debug)]
pub(crate) struct RelayConfig {
    /// The sink, if events are published at all.
    pub sink: Option<SinkUrl>,
    /// The least that it must promise.
    pub guarantee: Wanted,
    /// How the relay works.
    pub settings: Settings,
}

impl RelayConfig {
    pub(super) fn read(layers: &Layers<'_>) -> Result<RelayConfig> {
        let duration = |name, from, to| layers.read(name, |text| value::duration(text, from..=to));
        let bytes = |name| Ok::<u64, anyhow::Error>(layers.read(name, |text| value::size(text, MAX_BYTES))? as u64);
        let settings = Settings {
            name: layers.read_if_given("relay.name", name)?.unwrap_or_else(own_name),
            source: layers.read("event_source", source)?,
            lease: duration("relay.lease", 100 * MILLISECOND, HOUR)?,
            page: PageLimit {
                events: layers.read("relay.page_events", |text| value::number(text, 1..=100_000))?,
                bytes: bytes("relay.page_bytes")?,
            },
            in_flight_bytes: bytes("relay.in_flight_bytes")?,
            poll_max: duration("relay.poll_max", MILLISECOND, HOUR)?,
            commit_interval: duration("relay.commit_interval", Duration::ZERO, HOUR)?,
            attempts: layers.read("publish_attempts", |text| value::number(text, 1..=1000))?,
            backoff_min: duration("publish_backoff_min", MILLISECOND, HOUR)?,
            backoff_max: duration("publish_backoff_max", MILLISECOND, 24 * HOUR)?,
            keep: duration("replay_window", Duration::ZERO, MAX_WINDOW)?,
            ..Settings::default()
        };
        ensure!(
            settings.backoff_min <= settings.backoff_max,
            "publish_backoff_min may be at most publish_backoff_max ({})",
            humantime::format_duration(settings.backoff_max)
        );
        ensure!(
            settings.page.bytes <= settings.in_flight_bytes,
            "relay.in_flight_bytes must be at least relay.page_bytes ({} bytes): a page is read as a whole",
            settings.page.bytes
        );
        Ok(RelayConfig {
            sink: layers.read_if_given("sink", SinkUrl::parse)?,
            guarantee: layers.read("sink_guarantee", |text| {
                let words = [Wanted::AtLeastOnce, Wanted::Deduplicated, Wanted::Transactional];
                value::word(text, &words.map(|wanted| (wanted.as_str(), wanted)))
            })?,
            settings,
        })
    }
}

/// Host and process, so that operators know which relay has which lanes.
fn own_name() -> String {
    format!("{}:{}", rustix::system::uname().nodename().to_string_lossy(), std::process::id())
}

fn name(text: &str) -> Result<String> {
    let fits = (1..=MAX_NAME_BYTES).contains(&text.len()) && !text.chars().any(char::is_control);
    ensure!(fits, "it does not fit");
    Ok(text.to_owned())
}

fn source(text: &str) -> Result<String> {
    let fits = (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    ensure!(fits, "it is no URI reference");
    Ok(text.to_owned())
}
