//! One contestant, on a database of its own.

use std::sync::Arc;

use anyhow::{Result, bail};
use semel::{Scope, Semel};
use semel_bench::contest;
use semel_bench::drive::{Driven, Load, drive};
use semel_bench::processor::Used;
use semel_bench::report::Round;
use semel_bench::stage::{Database, Stage, session};
use semel_postgres::{Options, Postgres, Statements};
use semel_testkit::pgbouncer::{Bouncer, Mode};

use crate::case::{Contestant, Way};
use crate::charge::Charge;
use crate::{bare, ours};

const COUNTED: &str = include_str!("sql/counted.sql");
const SERVER: &str = include_str!("sql/server.sql");
const ROWS: &str = include_str!("sql/rows.sql");

/// A contestant and its database, over all rounds.
#[derive(Debug)]
pub(crate) struct Contest<'a> {
    pub(crate) contestant: Contestant,
    stage: &'a Stage,
    database: Database,
    bouncer: Option<Bouncer>,
    /// How many operations it has run so far.
    operations: u64,
}

/// Where the server stands.
#[derive(Debug, Clone, Copy)]
struct Server {
    log_bytes: i64,
    log_records: i64,
    full_pages: i64,
    transactions: i64,
}

/// What one operation leaves on the server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anatomy {
    pub(crate) row_versions: f64,
    pub(crate) transaction_ids: f64,
    pub(crate) log_records: f64,
    pub(crate) log_bytes: f64,
    pub(crate) full_pages: f64,
}

impl contest::Contest for Contest<'_> {
    fn name(&self) -> String {
        self.contestant.to_string()
    }

    /// Measures one round. Everything that was counted has to be in the database, once.
    async fn round(&mut self, load: Load) -> Result<Round> {
        let store = self.store(load.clients).await?;
        let (admin, postmaster) = (Arc::new(self.stage.admin().await?), self.stage.postmaster);
        let read = || {
            let admin = Arc::clone(&admin);
            async move {
                let row = admin.query_one("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint", &[]).await?;
                anyhow::Ok((row.try_get::<_, i64>(0)?, Used::now(postmaster)))
            }
        };
        let driven = self.run(&store, load, read).await?;
        self.check(&store).await?;
        let ((log_before, used_before), (log_after, used_after)) = (driven.before, driven.after);
        Ok(Round {
            per_second: driven.per_second,
            latency: driven.latency,
            processor: used_after.since(used_before, driven.operations),
            log_bytes: Some((log_after - log_before) as f64 / driven.operations as f64),
        })
    }
}

impl<'a> Contest<'a> {
    pub(crate) async fn new(stage: &'a Stage, contestant: Contestant) -> Result<Contest<'a>> {
        let database = stage.database().await?;
        let mode = match contestant.way() {
            Some(Way::Session) => Some(Mode::Session),
            Some(Way::Transaction) => Some(Mode::Transaction),
            Some(Way::Unnamed) | None => None,
        };
        let bouncer = mode.map(|mode| Bouncer::start_in(mode, &database.url)).transpose()?;
        Ok(Contest { contestant, stage, database, bouncer, operations: 0 })
    }

    async fn run<R, G>(&mut self, store: &Postgres, load: Load, read: impl Fn() -> G) -> Result<Driven<R>>
    where
        G: Future<Output = Result<R>>,
    {
        let (semel, scope) = (Semel::new(store.clone()), Scope::new("bench", "charge")?);
        let (store, contestant, first) = (store.clone(), self.contestant, self.operations);
        let operate = move |number: u64| {
            let (semel, scope, store) = (semel.clone(), scope.clone(), store.clone());
            operate(contestant, semel, scope, store, first + number)
        };
        let driven = drive(load, read, operate).await?;
        self.operations += driven.total;
        Ok(driven)
    }

    async fn store(&self, clients: u64) -> Result<Postgres> {
        let statements = match self.contestant.way() {
            Some(Way::Unnamed | Way::Transaction) => Statements::Unnamed,
            Some(Way::Session) | None => Statements::Named,
        };
        let options = Options { pool_size: usize::try_from(clients)?, statements, ..Options::default() };
        let url = self.bouncer.as_ref().map(|bouncer| bouncer.url_for(&self.database.name));
        Ok(Postgres::connect(url.as_ref().unwrap_or(&self.database.url), options).await?)
    }

    async fn check(&self, store: &Postgres) -> Result<()> {
        let row = store.client().await?.query_one(COUNTED, &[]).await?;
        let counted = [0, 1, 2, 3].map(|column| row.try_get::<_, i64>(column).map(i64::unsigned_abs));
        let [Ok(lines), Ok(changes), Ok(keys), Ok(events)] = counted else { bail!("the tables cannot be counted") };
        let operations = self.operations;
        let (each_key, each_event) = self.contestant.leaves();
        if (lines, changes, keys, events) != (operations, operations, operations * each_key, operations * each_event) {
            bail!(
                "{}: {operations} operations left {lines} lines, {changes} changes, {keys} keys and {events} events",
                self.contestant
            );
        }
        Ok(())
    }

    /// What one operation leaves, one after the other, on tables that are in use. As many are run first, so that pages
    /// are in the log since the last checkpoint.
    pub(crate) async fn look_into(&mut self, operations: u64) -> Result<Anatomy> {
        let admin = session(&self.database.url).await?;
        self.one_by_one(operations).await?;
        let rows_before = self.settled_rows(&admin).await?;
        let before = Server::read(&self.stage.admin().await?).await?;
        self.one_by_one(operations).await?;
        let rows = self.settled_rows(&admin).await? - rows_before;
        let after = Server::read(&self.stage.admin().await?).await?;
        let each = |after: i64, before: i64| (after - before) as f64 / operations as f64;
        Ok(Anatomy {
            row_versions: rows as f64 / operations as f64,
            transaction_ids: each(after.transactions, before.transactions),
            log_records: each(after.log_records, before.log_records),
            log_bytes: each(after.log_bytes, before.log_bytes),
            full_pages: each(after.full_pages, before.full_pages),
        })
    }

    async fn one_by_one(&mut self, operations: u64) -> Result<()> {
        let store = self.store(1).await?;
        let (semel, scope) = (Semel::new(store.clone()), Scope::new("bench", "charge")?);
        for number in self.operations..self.operations + operations {
            operate(self.contestant, semel.clone(), scope.clone(), store.clone(), number).await?;
        }
        // A session tells what it wrote at the latest when it is asked to.
        store.client().await?.batch_execute("SELECT pg_stat_force_next_flush()").await?;
        self.operations += operations;
        self.check(&store).await
    }

    async fn settled_rows(&self, admin: &semel_postgres::tokio_postgres::Client) -> Result<i64> {
        let mut rows: i64 = -1;
        loop {
            let now: i64 = admin.query_one(ROWS, &[]).await?.try_get(0)?;
            if now == rows {
                return Ok(rows);
            }
            rows = now;
            tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
        }
    }
}

async fn operate(
    contestant: Contestant,
    semel: Semel<Postgres>,
    scope: Scope,
    store: Postgres,
    number: u64,
) -> Result<()> {
    let charge = Charge::numbered(number);
    match contestant {
        Contestant::Bare | Contestant::BareBy(Way::Session) => bare::awaited(store, charge).await,
        Contestant::BareBy(Way::Unnamed | Way::Transaction) => bare::unnamed(store, charge).await,
        Contestant::OnceBy(_) => ours::awaited(semel, scope, charge, 1).await,
        Contestant::BarePipelined => bare::pipelined(store, charge).await,
        Contestant::ByHand => bare::by_hand(store, charge).await,
        Contestant::Once { events } => ours::awaited(semel, scope, charge, events).await,
        Contestant::OnceDeferred => ours::deferred(semel, scope, charge).await,
        Contestant::OneCall => bare::one_call(store, charge).await,
    }
}

impl Server {
    async fn read(admin: &semel_postgres::tokio_postgres::Client) -> Result<Server> {
        let row = admin.query_one(SERVER, &[]).await?;
        Ok(Server {
            log_bytes: row.try_get(0)?,
            log_records: row.try_get(1)?,
            full_pages: row.try_get(2)?,
            transactions: row.try_get(3)?,
        })
    }
}
