//! `semel consume`: the payments consumers against a broker.

use anyhow::{Context, Result, ensure};
use clap::Args;
use semel::source::Recognition;
use semel::{Semel, Settings};
use semel_payments::consumers;

use super::{Done, Usage, print};
use crate::config::Config;
use crate::config::flags::Flags;
use crate::config::setting::{CONSUME, DATABASE};
use crate::consume::{self, Plan};
use crate::database::{Database, with_store};
use crate::shutdown::Shutdown;
use crate::{metrics, serve};

const AFTER_HELP: &str = "\
The consumers are those of the reference payments service, with their tables in the configured database: `receipts`
makes a receipt for each charge, `balances` adds up each account's balance, `referrals` makes a transfer to the referrer
of each order, and `payments` does all three. What they make and the proof that they have seen a message are one commit,
and the message is acknowledged after it.

A message is recognised by its producer's id, kept for inbox.retention; or, where all are Semel's own events, by its
sequence, kept for ever in one row per lane; or, from Kafka, by its offset, kept for ever in one row per partition. A
retention that is shorter than the source may deliver a message again is refused.

A message that fails is tried inbox.attempts times and then set aside: see `semel inbox dead`. Several processes may run
the same consumer and share its messages. Give a source that holds secrets in SEMEL_SOURCE rather than as a flag. Kafka
needs a build with --features kafka.

Examples:
  semel consume --consumer payments --source http://127.0.0.1:7700/events
  semel consume --consumer receipts --source nats://broker:4222/?stream=EVENTS --by sequence
  semel consume --consumer balances --source kafka://broker:9092/?topic=accounts --by offset
  semel consume --consumer receipts --source amqp://broker:5672/?queue=charges --inbox-tier filter";

/// Consume the payments service's events, each once
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Which consumer: payments, receipts, balances or referrals
    #[arg(long, value_name = "NAME")]
    consumer: String,

    /// What messages are recognised by: id, sequence or offset
    #[arg(long, default_value = "id", value_parser = recognition)]
    by: Recognition,

    #[command(flatten)]
    pub settings: Flags<{ CONSUME | DATABASE }>,
}

/// Consumes until it is told to stop, lets what is being applied end, and gives the rest back. A crash at any point
/// leaves each message either applied and seen, or neither (I6).
pub(crate) async fn run(config: Config, arguments: &Arguments) -> Result<Done> {
    let consumer = arguments.consumer.clone();
    ensure!(consumers::NAMES.contains(&consumer.as_str()), Usage(consume::unknown(&consumer)));
    let Some(source) = config.consume.source.clone() else {
        return Err(Usage("give the source with --source, SEMEL_SOURCE or source in semel.toml".to_owned()).into());
    };
    let mut settings = config.consume.settings.clone();
    settings.recognition = arguments.by;
    let tier = match &config.consume.tier {
        None => None,
        Some(_) if arguments.by != Recognition::Id => {
            return Err(Usage("inbox.tier is for consumers that go by id: leave it out, or --by".to_owned()).into());
        }
        Some(tier) => Some(semel_brokers::open_tier(tier.with_secrets()).await.context("inbox.tier cannot be used")?),
    };
    let plan = Plan { consumer: consumer.clone(), source, settings, tier };

    let stop = Shutdown::on_signals()?;
    let database = Database::open_migrated(&config).await?;
    let recorder = metrics::start(&[], &[consumer], &[])?;
    let settings = Settings { deadline: config.transaction_deadline, ..Settings::default() };
    let consuming = with_store!(&database, store => {
        consume::start(Semel::with_settings(store.clone(), settings).await?, plan, stop.clone()).await?
    });
    if let Some(address) = consuming.address {
        print(&format!("semel consume receives at http://{address}\n"))?;
    }
    let served = match config.metrics_listen {
        None => None,
        Some(address) => {
            let listener = serve::bind(address, "metrics-listen").await?;
            print(&format!("semel consume listening on http://{}/metrics\n", listener.local_addr()?))?;
            let (router, stop) = (metrics::router(recorder), stop.clone());
            Some(tokio::spawn(serve::serve(listener, router, stop, config.transaction_deadline)))
        }
    };
    let consumed = consuming.task.await;
    // A consumer that refuses to run takes the rest along, so that whoever supervises the process sees it end.
    stop.request();
    if let Some(served) = served {
        served.await?;
    }
    tracing::info!("stopped");
    consumed?.map(|()| Done::Completed)
}

fn recognition(text: &str) -> Result<Recognition, String> {
    Recognition::named(text).ok_or_else(|| "messages are recognised by id, sequence or offset".to_owned())
}
