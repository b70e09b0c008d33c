//! `semel demo`: the whole of it, live, with kills, and counted.

mod client;
mod count;
mod forwarder;
mod load;
mod process;
mod progress;
mod scenes;
mod stage;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, value_parser};
use serde_json::json;

use super::{Done, print};
use crate::shutdown::Shutdown;
use client::Intent;
use count::{Figures, SQL};
use progress::Progress;
use stage::Stage;

pub(crate) use process::die_with;

const AFTER_HELP: &str = "\
Starts a payments service, a relay and a consumer, each in a process of its own, on one SQLite file in a temporary
folder, and has them do their work while it kills them:

  1  a client sends one charge three times
  2  the relay is killed between publishing an event and noting it
  3  the consumer is killed between its effect and the acknowledgement
  4  clients that retry in a hurry, with kill -9 of the service, and of relay and consumer, along the way

At the end it counts, from the file and from what the clients noted, and prints the SQL that it counted with. Exit code
1 if anything was lost or happened twice; the folder is kept then.

Examples:
  semel demo
  semel demo --keep
  semel demo --json | jq .figures";

/// The settings that are given as flags: none.
pub(crate) static NO_SETTINGS: BTreeMap<&'static str, String> = BTreeMap::new();

/// The most intents (I12).
const MOST: i64 = 1_000_000;

/// How often something is looked at that is awaited, and for how long it is.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(30);

/// Show it live: retries, redeliveries and kill -9, and count what came of it
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// How many intents the last scene has
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=MOST))]
    intents: u32,

    /// Keep the folder with the file, the processes' logs and the SQL
    #[arg(long)]
    keep: bool,

    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Plays all scenes and counts. Whatever ends it, the processes that it started end too.
pub(crate) async fn run(arguments: &Arguments) -> Result<Done> {
    let started = Instant::now();
    let stop = Shutdown::on_signals()?;
    let mut stage = Stage::set(stop.clone()).await?;
    let progress = Progress::new();
    let played = tokio::select! {
        played = play(&mut stage, arguments.intents, &progress) => played,
        () = stop.requested() => Err(anyhow::anyhow!("stopped before the end; nothing was counted")),
    };
    let kept = arguments.keep || played.as_ref().is_ok_and(|figures| !figures.wrong().is_empty());
    if kept {
        std::fs::write(stage.folder().join("count.sql"), SQL)?;
    }
    let reported = match &played {
        Ok(figures) => report(&stage, figures, started.elapsed(), kept, arguments.json),
        Err(_) => Ok(()),
    };
    stage.clear(kept).await?;
    reported?;
    let wrong = played?.wrong();
    if !wrong.is_empty() {
        bail!("it does not add up: {}", wrong.join("; "));
    }
    Ok(Done::Completed)
}

/// All scenes, on a stage that is empty.
async fn play(stage: &mut Stage, intents: u32, progress: &Progress) -> Result<Figures> {
    progress.fact(&format!("a payments service, a relay and a consumer on {}", stage.database().display()));
    stage.start_server().await?;
    stage.start_consumer().await?;
    stage.start_relay().await?;
    let store = stage.open().await?;
    scenes::prepare(stage).await?;

    let mut notes = vec![scenes::retried(stage, &store, Intent(1), progress).await?];
    // Its events are out of the way before others are waited for.
    stage.settle(&store, |_, _| ()).await?;
    notes.push(scenes::relay_killed(stage, &store, Intent(2), progress).await?);
    notes.push(scenes::consumer_killed(stage, &store, Intent(3), progress).await?);
    notes.extend(load::run(stage, 4, 3 + intents, progress).await?);
    stage.settle(&store, |all, applied| progress.bar(applied, all, "events applied")).await?;
    stage.end().await?;
    progress.fact("all processes have ended; counting");
    stage.count(&store, &notes).await
}

/// The figures to stdout, and how to count again.
fn report(stage: &Stage, figures: &Figures, took: Duration, kept: bool, as_json: bool) -> Result<()> {
    let kills = stage.kills;
    if as_json {
        let report = json!({
            "adds_up": figures.wrong().is_empty(),
            "figures": figures.to_json(),
            "kills": {"server": kills.server, "relay": kills.relay, "consumer": kills.consumer},
            "seconds": (took.as_secs_f64() * 10.0).round() / 10.0,
            "folder": kept.then(|| stage.folder().display().to_string()),
            "sql": SQL,
        });
        return print(&format!("{report:#}\n"));
    }
    let again = match kept {
        true => format!("sqlite3 {} < {}", stage.database().display(), stage.folder().join("count.sql").display()),
        false => "`semel demo --keep` keeps the file, to count for yourself:".to_owned(),
    };
    print(&format!(
        "\n{}\nkill -9: {} of the service, {} of the relay, {} of the consumer; {:.1} s in all\n\n{again}\n\n{SQL}",
        figures.table(),
        kills.server,
        kills.relay,
        kills.consumer,
        took.as_secs_f64()
    ))
}
