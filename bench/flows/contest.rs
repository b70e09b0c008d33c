//! One contestant, on a database of its own or on fresh files.

use anyhow::{Result, ensure};
use semel_bench::contest;
use semel_bench::drive::{Driven, Load};
use semel_bench::report::Round;
use semel_bench::stage::{Database, Stage, session};

use crate::case::{Contestant, Peer, Store};
use crate::file::File;
use crate::peer::Task;
use crate::prepare::program;
use crate::reading::{Reading, Watch};
use crate::{postgres, sqlite};

const COUNTED: &str = include_str!("sql/postgres/counted.sql");
const ENDED_OURS: &str = include_str!("sql/postgres/ended_ours.sql");
const ENDED_PEERS: &str = include_str!("sql/postgres/ended_peers.sql");
const FILE_ENDED_OURS: &str = include_str!("sql/sqlite/ended_ours.sql");
const FILE_ENDED_PEERS: &str = include_str!("sql/sqlite/ended_peers.sql");

/// How many connections everybody has beside one for each client: for listeners, completers and dispatchers.
const BESIDE: usize = 4;

/// A contestant, over all rounds.
#[derive(Debug)]
pub(crate) struct Contest<'a> {
    contestant: Contestant,
    stage: &'a Stage,
    /// On SQLite each round has a file of its own instead.
    database: Option<Database>,
    /// How many flows have run on the database so far, and in how many rounds.
    flows: u64,
    rounds: u64,
    /// For each round, how many flows were measured and how many transactions each of them wrote in.
    transactions: Vec<(u64, f64)>,
}

impl contest::Contest for Contest<'_> {
    fn name(&self) -> String {
        self.contestant.to_string()
    }

    /// Measures one round. Each flow that was counted has to have done each of its steps, once.
    async fn round(&mut self, load: Load) -> Result<Round> {
        let driven = match self.database.clone() {
            Some(database) => self.on_database(&database, load).await?,
            None => self.on_file(load).await?,
        };
        let taken = driven.after.since(driven.before, driven.operations);
        self.transactions.extend(taken.transactions.map(|each| (driven.operations, each)));
        Ok(Round {
            per_second: driven.per_second,
            latency: driven.latency,
            processor: taken.processor,
            log_bytes: taken.log_bytes,
        })
    }
}

impl<'a> Contest<'a> {
    pub(crate) async fn new(stage: &'a Stage, contestant: Contestant) -> Result<Contest<'a>> {
        let database = match contestant.store() {
            Store::Postgres => Some(stage.database().await?),
            Store::Sqlite => None,
        };
        Ok(Contest { contestant, stage, database, flows: 0, rounds: 0, transactions: Vec::new() })
    }

    /// How many transactions wrote something for one flow, over all rounds.
    pub(crate) fn transactions(&self) -> Option<f64> {
        let flows: u64 = self.transactions.iter().map(|(flows, _)| flows).sum();
        let all: f64 = self.transactions.iter().map(|(flows, each)| *flows as f64 * each).sum();
        (flows > 0).then(|| all / flows as f64)
    }

    async fn on_database(&mut self, database: &Database, load: Load) -> Result<Driven<Reading>> {
        let watch = Watch::on(self.stage).await?;
        let (url, connections) = (database.url.clone(), usize::try_from(load.clients)? + BESIDE);
        // Clients count in strides, so that a round may leave numbers out: no two rounds share any.
        let first = self.rounds << 32;
        self.rounds += 1;
        let (driven, ended) = match self.contestant {
            Contestant::Semel { deferred, .. } => {
                let driven = postgres::measure(&url, (deferred, connections), first, load, &watch).await?;
                (driven, ENDED_OURS)
            }
            Contestant::Peer(peer) => {
                let transactions = peer == Peer::DbosPython { transactions: true };
                let task = Task::new(url, load, connections, first).transactions(transactions);
                (task.run(program(peer), load, &watch).await?, ENDED_PEERS)
            }
        };
        self.flows += driven.total;
        let client = session(&database.url).await?;
        let row = client.query_one(COUNTED, &[]).await?;
        let ended: i64 = client.query_one(ended, &[]).await?.try_get(0)?;
        self.check(self.flows, [row.try_get(0)?, row.try_get(1)?, ended].map(i64::unsigned_abs))?;
        Ok(driven)
    }

    async fn on_file(&self, load: Load) -> Result<Driven<Reading>> {
        let file = File::fresh(self.contestant.peer().is_none()).await?;
        let watch = Watch::without_server();
        let (driven, ended) = match self.contestant {
            Contestant::Semel { deferred, .. } => {
                (sqlite::measure(&file, deferred, load, &watch).await?, FILE_ENDED_OURS)
            }
            Contestant::Peer(peer) => {
                let connections = usize::try_from(load.clients)? + BESIDE;
                let task = Task::new(file.url(), load, connections, 0);
                (task.run(program(peer), load, &watch).await?, FILE_ENDED_PEERS)
            }
        };
        self.check(driven.total, file.counted(ended)?)?;
        Ok(driven)
    }

    fn check(&self, flows: u64, [lines, whole, ended]: [u64; 3]) -> Result<()> {
        ensure!(
            (lines, whole, ended) == (flows * 3, flows, flows),
            "{}: {flows} flows left {lines} lines; {whole} did each step once, and {ended} have ended",
            self.contestant
        );
        Ok(())
    }
}
