//! One contestant: a service on a port and a database of its own, and clients who ask it.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use futures_util::future::try_join_all;
use semel_bench::contest;
use semel_bench::drive::{Load, drive, scattered};
use semel_bench::processor::Used;
use semel_bench::report::Round;
use semel_bench::stage::{Database, Stage};
use semel_postgres::{Options, Postgres};

use crate::app::App;
use crate::case::Contestant;
use crate::charge::Order;
use crate::client::Crowd;
use crate::schedule::Schedule;

const COUNTED: &str = include_str!("../keys/sql/counted.sql");

/// How many keys have been answered where replays are asked for.
const ANSWERED: u64 = 1024;

/// A contestant and its database, over all rounds.
#[derive(Debug)]
pub(crate) struct Contest<'a> {
    contestant: Contestant,
    /// How many requests per second are due; if `None`, each client asks again as soon as it is answered.
    pace: Option<f64>,
    stage: &'a Stage,
    database: Database,
    /// How many charges were made so far.
    charges: u64,
}

/// What the clients of one round ask for.
#[derive(Debug)]
struct Asking {
    crowd: Crowd,
    replays: bool,
    answered: Vec<Answered>,
    /// The number of the first new charge.
    first: u64,
    schedule: Option<Schedule>,
}

/// A charge that was made, and what was said of it.
#[derive(Debug)]
struct Answered {
    order: Order,
    body: Bytes,
}

impl contest::Contest for Contest<'_> {
    fn name(&self) -> String {
        let load = if self.pace.is_some() { ", half load" } else { "" };
        format!("{}{load}", self.contestant)
    }

    /// Measures one round. Everything that was answered has to be in the database, once.
    async fn round(&mut self, load: Load) -> Result<Round> {
        let options = Options { pool_size: usize::try_from(load.clients)?, ..Options::default() };
        let store = Postgres::connect(&self.database.url, options).await?;
        let app = App::serve(self.contestant.service, store.clone()).await?;
        let crowd = Crowd::connect(app.address, load.clients).await?;
        let answered = self.answer(&crowd).await?;

        let (admin, postmaster) = (Arc::new(self.stage.admin().await?), self.stage.postmaster);
        let read = || {
            let admin = Arc::clone(&admin);
            async move {
                let row = admin.query_one("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint", &[]).await?;
                anyhow::Ok((row.try_get::<_, i64>(0)?, Used::now(postmaster)))
            }
        };
        let (replays, first) = (self.contestant.replays, self.charges);
        let schedule = self.pace.map(|per_second| Schedule::start(per_second, load)).transpose()?;
        let asking = Arc::new(Asking { crowd, replays, answered, first, schedule });
        let operate = {
            let asking = Arc::clone(&asking);
            move |number: u64| {
                let asking = Arc::clone(&asking);
                async move { asking.ask(number).await }
            }
        };
        let driven = drive(load, read, operate).await?;
        if !replays {
            self.charges += driven.total;
        }
        self.check(&store).await?;
        let latency = match &asking.schedule {
            Some(schedule) => schedule.latency().await?,
            None => driven.latency,
        };
        let ((log_before, used_before), (log_after, used_after)) = (driven.before, driven.after);
        Ok(Round {
            per_second: driven.per_second,
            latency,
            processor: used_after.since(used_before, driven.operations),
            log_bytes: Some((log_after - log_before) as f64 / driven.operations as f64),
        })
    }
}

impl<'a> Contest<'a> {
    pub(crate) async fn new(stage: &'a Stage, contestant: Contestant, pace: Option<f64>) -> Result<Contest<'a>> {
        Ok(Contest { contestant, pace, stage, database: stage.database().await?, charges: 0 })
    }

    /// Has charges made that can be asked for again: as many as replays need, otherwise one, to see that whoever knows
    /// keys answers a retry as one.
    async fn answer(&mut self, crowd: &Crowd) -> Result<Vec<Answered>> {
        let count = if self.contestant.replays { ANSWERED } else { 1 };
        let numbers = self.charges..self.charges + count;
        let answered = try_join_all(numbers.map(|number| Answered::first(crowd, number))).await?;
        self.charges += count;
        if self.contestant != Contestant::BARE {
            answered[0].again(crowd, 0).await?;
        }
        Ok(answered)
    }

    async fn check(&self, store: &Postgres) -> Result<()> {
        let row = store.client().await?.query_one(COUNTED, &[]).await?;
        let counted = [0, 1, 2, 3].map(|column| row.try_get::<_, i64>(column).map(i64::unsigned_abs));
        let [Ok(lines), Ok(changes), Ok(keys), Ok(events)] = counted else { bail!("the tables cannot be counted") };
        let charges = self.charges;
        let (each_key, each_event) = self.contestant.leaves();
        ensure!(
            (lines, changes, keys, events) == (charges, charges, charges * each_key, charges * each_event),
            "{}: {charges} charges left {lines} lines, {changes} changes, {keys} keys and {events} events",
            self.contestant
        );
        Ok(())
    }
}

impl Asking {
    async fn ask(&self, number: u64) -> Result<()> {
        let due = match &self.schedule {
            Some(schedule) => Some((schedule, schedule.due(number).await?)),
            None => None,
        };
        if self.replays {
            let known = scattered(number) as usize % self.answered.len();
            self.answered[known].again(&self.crowd, number).await?;
        } else {
            let order = Order::numbered(self.first + number);
            self.crowd.send(number, order.request()?).await?.charged(false)?;
        }
        if let Some((schedule, due)) = due {
            schedule.answered(due);
        }
        Ok(())
    }
}

impl Answered {
    async fn first(crowd: &Crowd, number: u64) -> Result<Answered> {
        let order = Order::numbered(number);
        let answer = crowd.send(number, order.request()?).await?;
        answer.charged(false)?;
        Ok(Answered { order, body: answer.body })
    }

    /// Asks for it again, which is answered as before.
    async fn again(&self, crowd: &Crowd, number: u64) -> Result<()> {
        let answer = crowd.send(number, self.order.request()?).await?;
        answer.charged(true)?;
        ensure!(answer.body == self.body, "a retry was answered in another way than the first request");
        Ok(())
    }
}
