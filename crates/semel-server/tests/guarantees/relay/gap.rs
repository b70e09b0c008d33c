//! Sequence numbers are taken in one order and committed in another.

use std::collections::HashSet;

use semel::EventId;
use semel_postgres::Postgres;
use semel_postgres::tokio_postgres::Client;
use semel_sqlite::Sqlite;
use semel_testkit::collector::{Collector, Lines};
use semel_testkit::counts::rounds;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::dice::Dice;
use super::load::Load;
use super::stage::{Stage, Writer};

/// How many groups of transactions are open at once, and how many in each.
const GROUPS: u64 = 3;
const OPEN: usize = 6;

/// How many rounds of its group a transaction is held open for, again and again.
const HELD_ROUNDS: u32 = 15;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_commit_in_another_order_than_they_were_numbered_are_neither_lost_nor_overtaken() {
    let events = rounds(5_000, 100_000);
    let stage = Stage::<Postgres>::set(Collector::Lines(Lines::create())).await;
    let mut plan = stage.plan();
    // The control shall miss what it misses because of its cursor, not because it was tidied away.
    plan.keep_ms = 3_600_000;
    plan.lease_ms = 60_000;
    let mut relay = plan.start().await;
    let naive = Naive::start(stage.home.connect().await);
    let mut load = Load::flood(&stage.writer);
    let mut groups = JoinSet::new();
    // A group writes eleven events a round.
    let group_rounds = events / 2 / 11 / u32::try_from(GROUPS).unwrap();
    for number in 0..GROUPS {
        let mut sessions = Vec::new();
        for _ in 0..=OPEN {
            sessions.push(stage.home.connect().await);
        }
        let group = Group { number, sessions, writer: stage.writer.clone(), dice: Dice::new(100 + number) };
        groups.spawn(group.work(group_rounds));
    }
    groups.join_all().await;
    load.reaches(u64::from(events / 2)).await;
    load.end().await;

    let tally = stage.checked("in the end").await;
    assert!(tally.events >= events as usize * 9 / 10, "{tally:?}");
    assert_eq!(tally.duplicates, 0, "nobody was killed");
    assert!(relay.terminate().await.success());

    let seen = naive.end().await;
    let missed = stage.collector.arrived().await.iter().filter(|event| !seen.contains(&event.id)).count();
    assert!(missed > 0, "a relay that remembers the highest number would have lost none: this test shows nothing");
    eprintln!("{} events; a relay that remembers the highest number lost {missed} of them", tally.events);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_many_writers_to_one_file_are_neither_lost_nor_overtaken() {
    let stage = Stage::<Sqlite>::set(Collector::Lines(Lines::create())).await;
    let mut plan = stage.plan();
    // Writers that are in haste may keep a relay in another process from the file for a while.
    plan.lease_ms = 60_000;
    let mut relay = plan.start().await;
    let mut load = Load::flood(&stage.writer);
    load.reaches(rounds(2_000, 100_000).into()).await;
    load.end().await;
    assert_eq!(stage.checked("in the end").await.duplicates, 0, "nobody was killed");
    assert!(relay.terminate().await.success());
}

/// Transactions that are opened, numbered and committed in orders of their own, one of them held over many rounds.
struct Group {
    number: u64,
    sessions: Vec<Client>,
    writer: Writer<Postgres>,
    dice: Dice,
}

impl Group {
    async fn work(mut self, rounds: u32) {
        let held_key = format!("held-{}", self.number);
        let mut held = Vec::new();
        for round in 0..rounds {
            if round % HELD_ROUNDS == 0 {
                self.commit(OPEN, &held).await;
                held = self.open(OPEN, &held_key).await;
            }
            let mut order: Vec<usize> = (0..OPEN).collect();
            self.dice.shuffle(&mut order);
            let mut open = Vec::new();
            for session in order {
                // A key of the group's own for each, so that one that waits to be committed holds up no other.
                let key = format!("group-{}-{session}", self.number);
                open.push((session, self.open(session, &key).await));
            }
            self.dice.shuffle(&mut open);
            for (session, written) in open {
                self.commit(session, &written).await;
            }
        }
        self.commit(OPEN, &held).await;
    }

    /// Opens a transaction and emits within savepoints, some of which are rolled back and some of which are nested.
    async fn open(&mut self, session: usize, key: &str) -> Vec<(String, u64)> {
        let session = &self.sessions[session];
        let run = async |sql: &str| session.batch_execute(sql).await.unwrap();
        run("BEGIN; SAVEPOINT refused").await;
        emit(session, &self.writer, key).await;
        run("ROLLBACK TO refused; SAVEPOINT kept").await;
        let first = emit(session, &self.writer, key).await;
        run(if self.dice.below(2) == 0 { "RELEASE kept; SAVEPOINT later" } else { "SAVEPOINT nested" }).await;
        let second = if self.dice.below(6) > 0 { emit(session, &self.writer, key).await } else { first };
        vec![(key.to_owned(), first), (key.to_owned(), second)]
    }

    async fn commit(&self, session: usize, written: &[(String, u64)]) {
        if !written.is_empty() {
            self.sessions[session].batch_execute("COMMIT").await.unwrap();
            written.iter().for_each(|(key, n)| self.writer.note(key, *n));
        }
    }
}

/// Counts the key's row up and emits what it counts, in plain SQL.
async fn emit(session: &Client, writer: &Writer<Postgres>, key: &str) -> u64 {
    let count = "INSERT INTO counters AS c VALUES ($1, 1) ON CONFLICT (key) DO UPDATE SET n = c.n + 1 RETURNING n";
    let n = session.query_one(count, &[&key]).await.unwrap().get::<_, i64>(0).cast_unsigned();
    let event = writer.event(key, n);
    let emit = "SELECT semel.emit($1, $2, $3, $4)";
    let payload = event.payload.as_ref();
    session.query_one(emit, &[&event.topic, &key, &event.event_type, &payload]).await.unwrap();
    n
}

/// The control: a relay that remembers the highest number it has seen.
struct Naive {
    polling: JoinHandle<HashSet<String>>,
    ending: watch::Sender<bool>,
}

impl Naive {
    fn start(session: Client) -> Naive {
        let (ending, ended) = watch::channel(false);
        let polling = tokio::spawn(async move {
            let (mut last, mut seen) = (0_i64, HashSet::new());
            loop {
                let last_look = *ended.borrow();
                let rows = "SELECT seq, id FROM semel.events WHERE seq > $1 ORDER BY seq";
                for row in session.query(rows, &[&last]).await.unwrap() {
                    last = row.get(0);
                    seen.insert(EventId::from(row.get::<_, uuid::Uuid>(1)).to_string());
                }
                if last_look {
                    return seen;
                }
                tokio::task::yield_now().await;
            }
        });
        Naive { polling, ending }
    }

    /// Looks a last time, and says what it has seen.
    async fn end(self) -> HashSet<String> {
        self.ending.send_replace(true);
        self.polling.await.unwrap()
    }
}
