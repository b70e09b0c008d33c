//! `cargo xtask bench replay`: what a retry costs, beside a bare SELECT of the same row by its primary key.
//!
//! docs/internals/benchmarks.md says how to read the figures.

use std::fmt;

use anyhow::{Result, bail};
use clap::Parser;
use semel::{Fingerprint, Key, Outcome, Reply, Scope, Semel};
use semel_bench::contest::{Contest, Plan};
use semel_bench::drive::{Load, drive, scattered};
use semel_bench::machine::{interrupted, load_average};
use semel_bench::processor::Used;
use semel_bench::report::{Report, Round};
use semel_bench::stage::{Database, Stage, session};
use semel_postgres::{Options as PostgresOptions, Postgres, Tx};

const FILL: &str = include_str!("sql/fill.sql");
const BY_PRIMARY_KEY: &str = include_str!("sql/by_primary_key.sql");

/// How many ask at once. The target holds at 8.
const CLIENTS: [u64; 3] = [1, 8, 32];

/// How many keys have run.
const KEYS: u64 = 100_000;

/// How many of them are asked for again and again, as by clients that retry.
const RETRIED: u64 = 1_000;

/// The allocator of the `semel` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what it costs to replay a stored reply, beside a bare SELECT of the same row.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench replay", bin_name = "cargo xtask bench replay")]
struct Options {
    #[command(flatten)]
    plan: Plan,
}

/// Who asks, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contestant {
    /// A prepared SELECT, by the primary key.
    Select,
    /// `once` with a key that has run and that this process has replayed before, but for the first time.
    Replay,
    /// `once` with a key that has run, but not in this process, and that it has never been asked for.
    First,
    /// The same as `Replay` with another fingerprint.
    Mismatch,
}

const EVERYBODY: [Contestant; 4] = [Contestant::Select, Contestant::Replay, Contestant::First, Contestant::Mismatch];

struct Asking<'a> {
    contestant: Contestant,
    stage: &'a Stage,
    database: Database,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Options { plan } = Options::parse();
    let stage = Stage::start("").await?;
    let report = tokio::select! {
        report = measure(&plan, &stage) => report?,
        // The server ends with what is dropped here, not with a signal of ours.
        () = interrupted() => bail!("interrupted"),
    };
    report.publish(plan.json)
}

async fn measure(plan: &Plan, stage: &Stage) -> Result<Report> {
    let mut report = Report::new("replay", plan.quick);
    report.machine.push(format!("{}; {} ms per round", stage.described, plan.measured().as_millis()));
    let database = stage.database().await?;
    let client = session(&database.url).await?;
    client.execute(FILL, &[&KEYS.cast_signed(), &fingerprint().as_bytes().as_slice()]).await?;
    client.batch_execute("VACUUM ANALYZE semel.keys").await?;
    client.batch_execute("CHECKPOINT").await?;
    let wanted = plan.wanted(&EVERYBODY)?;
    let asking = |contestant| Asking { contestant, stage, database: database.clone() };
    let mut contests: Vec<Asking<'_>> = wanted.into_iter().map(asking).collect();
    for clients in plan.clients(&CLIENTS) {
        plan.measure(&mut report, &mut contests, (clients, clients == 8), async || Ok(())).await?;
        let [select, replay, first, mismatch] = EVERYBODY.map(|contestant| contestant.to_string());
        report.ratio(&replay, &select, clients, (clients == 8).then_some(0.8));
        report.ratio(&first, &select, clients, None);
        report.ratio(&mismatch, &select, clients, None);
    }
    report.machine.push(format!("load after: {}", load_average()));
    Ok(report)
}

impl Contest for Asking<'_> {
    fn name(&self) -> String {
        self.contestant.to_string()
    }

    async fn round(&mut self, load: Load) -> Result<Round> {
        let options = PostgresOptions { pool_size: usize::try_from(load.clients)?, ..PostgresOptions::default() };
        let store = Postgres::connect(&self.database.url, options).await?;
        let (contestant, postmaster) = (self.contestant, self.stage.postmaster);
        let operate = move |number: u64| {
            let key = if contestant == Contestant::First { number } else { scattered(number) % RETRIED };
            let store = store.clone();
            async move {
                if key >= KEYS {
                    bail!("every key has been asked for: measure for less long");
                }
                ask(contestant, store, format!("key-{key}")).await
            }
        };
        let driven = drive(load, || async { Ok(Used::now(postmaster)) }, operate).await?;
        Ok(Round {
            per_second: driven.per_second,
            latency: driven.latency,
            processor: driven.after.since(driven.before, driven.operations),
            log_bytes: None,
        })
    }
}

async fn ask(contestant: Contestant, store: Postgres, key: String) -> Result<()> {
    if contestant == Contestant::Select {
        let client = store.client().await?;
        let select = client.prepare_cached(BY_PRIMARY_KEY).await?;
        let row = client.query_one(&select, &[&"bench", &"charge", &key]).await?;
        let (status, body): (i16, &[u8]) = (row.try_get(0)?, row.try_get(2)?);
        if status != 201 || body.is_empty() {
            bail!("{key} has no reply");
        }
        return Ok(());
    }
    let asked = if contestant == Contestant::Mismatch { Fingerprint::of_bytes(b"another") } else { fingerprint() };
    let (scope, key) = (Scope::new("bench", "charge")?, Key::new(key)?);
    let effect = async move |_: &mut Tx| -> Result<Reply> { bail!("a key that had run was run again") };
    match (contestant, Semel::new(store).once(&scope, &key, &asked, effect).await) {
        (Contestant::Replay | Contestant::First, Ok(Outcome::Replayed(reply))) if reply.status() == 201 => Ok(()),
        (Contestant::Mismatch, Err(semel::once::Error::Mismatch)) => Ok(()),
        (_, other) => bail!("{key:?} was {other:?}"),
    }
}

fn fingerprint() -> Fingerprint {
    Fingerprint::of_bytes(b"charge")
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Contestant::Select => "SELECT by primary key",
            Contestant::Replay => "replay",
            Contestant::First => "replay, asked here for the first time",
            Contestant::Mismatch => "mismatch",
        })
    }
}
