//! `semel outbox replay`.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use semel::Sink;
use semel::relay::{Replay, Replayed, replay};
use serde_json::json;

use crate::commands::change::{Consent, confirmed};
use crate::commands::text::{facts, time};
use crate::commands::{Done, Usage, print};
use crate::config::flags::Flags;
use crate::config::setting::{DATABASE, REPLAY};
use crate::config::{Config, SinkUrl, Wanted};
use crate::database::{Database, with_store};
use crate::relay::connect;

const AFTER_HELP: &str = "\
Every event that was published and is still kept (replay_window) goes out once more with the id and the sequence number
it had, in order per ordering key; events that wait, are held or were skipped do not. Consumers that remember what they
applied pass over it. The relay may run meanwhile. A replay that fails or is cut off may simply be started again.

TIME is RFC 3339, such as 2026-11-15T09:00:00Z, or a duration such as 90m, counted back from now.

Examples:
  semel outbox replay --sink nats://new-broker:4222/?stream=EVENTS --since 90m --dry-run
  semel outbox replay --sink stdout: --from 2026-11-15T09:00:00Z --to 2026-11-15T10:00:00Z --topic charges --yes";

/// Publish again what was published before
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Only events emitted at or after this
    #[arg(long, value_name = "TIME", visible_alias = "since", value_parser = instant)]
    from: Option<i64>,

    /// Only events emitted before this
    #[arg(long, value_name = "TIME", value_parser = instant)]
    to: Option<i64>,

    /// Only events of this topic
    #[arg(long)]
    topic: Option<String>,

    /// Only events of this ordering key
    #[arg(long)]
    key: Option<String>,

    #[command(flatten)]
    consent: Consent,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) settings: Flags<{ DATABASE | REPLAY }>,
}

/// Publishes history again. Nothing is changed in the database; what was published before a failure or a crash stays
/// published, and starting again publishes it once more.
pub(crate) async fn run(config: &Config, arguments: &Arguments) -> Result<Done> {
    let asks = arguments.consent.asks()?;
    let dry_run = arguments.consent.dry_run;
    let url = config.relay.sink.as_ref().ok_or_else(|| Usage("give the sink with --sink or SEMEL_SINK".to_owned()))?;
    ensure!(
        !matches!((arguments.from, arguments.to), (Some(from), Some(to)) if from >= to),
        Usage("--from must be before --to".to_owned())
    );
    let database = Database::open_migrated(config).await?;
    // Under a name of its own it cannot get in the way of the relay, whatever the sink does with the name.
    let installation = format!("{}-replay", database.installation().await?);
    let connected = connect(url, Wanted::AtLeastOnce, &installation).await?;
    let sink = connected.map_err(|reason| anyhow!("the sink {url} cannot be reached: {reason}"))?;
    let publish = async |dry_run| {
        let what = Replay {
            source: config.relay.settings.source.clone(),
            from_ms: arguments.from,
            to_ms: arguments.to,
            topic: arguments.topic.clone(),
            ordering_key: arguments.key.clone(),
            page: config.relay.settings.page,
            dry_run,
        };
        let note = |so_far: Replayed| tracing::debug!(read = so_far.read, published = so_far.published, "replaying");
        with_store!(&database, store => replay(store, &sink, &what, note).await).context("the replay has stopped")
    };
    if asks {
        let planned = publish(true).await?;
        if !confirmed(&format!("{}\nPublish them again?", to_text(arguments, url, planned)))? {
            return Ok(Done::Refused);
        }
    }
    let replayed = publish(dry_run).await?;
    sink.close().await;
    let report = if arguments.json {
        let done = json!({ "replayed": !dry_run, "dry_run": dry_run, "events": replayed.published,
            "read": replayed.read, "sink": url.to_string() });
        format!("{done:#}\n")
    } else if dry_run {
        format!("would replay (nothing was published):\n{}", to_text(arguments, url, replayed))
    } else {
        format!("replayed:\n{}", to_text(arguments, url, replayed))
    };
    // Where stdout is for events, nothing else goes there.
    if url.is_stdout() && !dry_run {
        eprint!("{report}");
    } else {
        print(&report)?;
    }
    Ok(Done::Completed)
}

fn to_text(arguments: &Arguments, sink: &SinkUrl, replayed: Replayed) -> String {
    let mut told = vec![("sink", sink.to_string())];
    told.extend(arguments.from.map(|from| ("from", time(from))));
    told.extend(arguments.to.map(|to| ("to", time(to))));
    told.extend(arguments.topic.clone().map(|topic| ("topic", topic)));
    told.extend(arguments.key.clone().map(|key| ("ordering key", key)));
    told.push(("events", format!("{} of {} that are kept", replayed.published, replayed.read)));
    facts(&told)
}

/// A point in time, in milliseconds since the Unix epoch.
fn instant(text: &str) -> Result<i64, String> {
    let moment = match humantime::parse_duration(text) {
        Ok(ago) => SystemTime::now().checked_sub(ago),
        Err(_) => humantime::parse_rfc3339_weak(text).ok(),
    };
    let since_epoch = moment.and_then(|moment| moment.duration_since(UNIX_EPOCH).ok());
    let ms = since_epoch.and_then(|elapsed| i64::try_from(elapsed.as_millis()).ok());
    ms.ok_or_else(|| "give a time such as 2026-11-15T09:00:00Z, or a duration such as 90m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_or_how_long_ago() {
        assert_eq!(instant("1970-01-01T00:00:01Z"), Ok(1000));
        assert_eq!(instant("2026-11-15 09:00:00"), instant("2026-11-15T09:00:00Z"));
        let hour_ago = instant("1h").unwrap();
        assert!(hour_ago < instant("59m").unwrap() && hour_ago > instant("61m").unwrap());
        for wrong in ["", "yesterday", "1960-01-01T00:00:00Z", "9999999999999y"] {
            assert!(instant(wrong).is_err(), "{wrong}");
        }
    }
}
