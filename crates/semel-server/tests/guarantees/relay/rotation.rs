//! The outbox rotates while a transaction is held open.

use std::time::{Duration, Instant};

use semel::outbox::Outbox;
use semel_postgres::Postgres;
use semel_postgres::tokio_postgres::Client;
use semel_testkit::collector::{Collector, Receiver};
use semel_testkit::counts::rounds;
use semel_testkit::poll::until;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::load::Load;
use super::stage::{Counting, Stage};

/// Who waits for a table of the outbox, and whether it is one of the outbox's own, not a writer.
const WAITING: &str = "
    SELECT format('%s of %s by: %s', l.mode, l.relation::regclass, left(a.query, 200)),
           a.application_name IN ('relay', 'operator')
    FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a USING (pid)
    WHERE NOT l.granted AND l.locktype = 'relation' AND c.relnamespace = 'semel'::regnamespace
      AND a.datname = current_database()";

/// Rows that were changed or died in the tables that are only ever inserted into.
const CHANGED: &str = "
    SELECT coalesce(sum(n_tup_upd + n_tup_del + n_dead_tup), 0)::bigint, count(*) FROM pg_stat_user_tables
    WHERE schemaname = 'semel' AND relname ~ '^(events|ticks|positions)_[0-9]+$'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_beside_a_transaction_held_open_stalls_nobody_and_loses_nothing() {
    let stage = Stage::<Postgres>::set(Collector::Http(Receiver::start().await)).await;
    let mut plan = stage.plan().on_database(format!("{}?application_name=relay", stage.url));
    plan.lease_ms = 60_000;
    let mut relay = plan.start().await;
    let probe = Probe::start(&stage).await;
    let mut load = Load::without_refusals(&stage.writer);
    let switches = rounds(3, 30);
    rotated(&stage, &mut load, switches).await;
    let free = probe.p99();

    // It has written an event into the slot of now, and stays.
    let held = stage.home.connect().await;
    held.batch_execute("BEGIN; INSERT INTO counters VALUES ('held', 1)").await.unwrap();
    let event = stage.writer.event("held", 1);
    let emit = "SELECT semel.emit($1, 'held', $2, $3)";
    held.query_one(emit, &[&event.topic, &event.event_type, &event.payload.as_ref()]).await.unwrap();
    let pid: i32 = held.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    probe.reset();
    // What is written beside it stays until it has ended: there are slots for a few switches, and then one grows.
    rotated(&stage, &mut load, 3).await;
    load.reaches(load.written() + u64::from(rounds(500, 20_000))).await;
    let beside_held = probe.p99();
    // Who holds its slot is named, to operators and in the relay's log.
    let operator = Postgres::open(&format!("{}?application_name=operator", stage.url), Default::default()).unwrap();
    until("the session is named", async || {
        let blockers = operator.outbox_status().await.unwrap().blockers;
        blockers.iter().any(|blocker| blocker.pid == pid) && relay.output().contains(&format!("pid={pid}"))
    })
    .await;
    held.batch_execute("COMMIT").await.unwrap();
    stage.writer.note("held", 1);
    rotated(&stage, &mut load, switches).await;
    load.end().await;
    let (waits, own_waits) = probe.end().await;

    let tally = stage.checked("in the end").await;
    assert_eq!(tally.duplicates, 0);
    assert_eq!(waits, [""; 0], "no writer waits for a table of the outbox");
    let session = stage.home.connect().await;
    let row = session.query_one(CHANGED, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0, "nothing was updated or deleted and nothing died");
    assert!(row.get::<_, i64>(1) >= 9, "three tables of at least three slots");
    eprintln!(
        "{tally:?}; p99 of a transaction: {free:?} beside rotation, {beside_held:?} beside a held one too; the relay \
         was seen waiting {own_waits} times"
    );
    assert!(relay.terminate().await.success());
}

/// Waits until events go to another slot, this many times.
async fn rotated(stage: &Stage<Postgres>, load: &mut Load, times: u32) {
    let session = stage.home.connect().await;
    for _ in 0..times {
        let before = current_slot(&session).await;
        let reached = load.written();
        until("the outbox rotates", async || current_slot(&session).await != before).await;
        load.reaches(reached + 1).await;
    }
}

async fn current_slot(session: &Client) -> i64 {
    session.query_one("SELECT last_value FROM semel.current_slot", &[]).await.unwrap().get(0)
}

/// Looks who waits, and times transactions of its own.
struct Probe {
    watching: JoinHandle<(Vec<String>, usize)>,
    times: std::sync::Arc<std::sync::Mutex<Vec<Duration>>>,
    ending: watch::Sender<bool>,
}

impl Probe {
    async fn start<S: Counting<Home = semel_testkit::database::TempDatabase>>(stage: &Stage<S>) -> Probe {
        let (session, writer) = (stage.home.connect().await, stage.writer.clone());
        let (ending, ended) = watch::channel(false);
        let times = std::sync::Arc::<std::sync::Mutex<Vec<Duration>>>::default();
        let timed = std::sync::Arc::clone(&times);
        let watching = tokio::spawn(async move {
            let (mut waits, mut own_waits) = (Vec::new(), 0);
            while !*ended.borrow() {
                let waiting = session.query(WAITING, &[]).await.unwrap();
                let (own, others): (Vec<_>, Vec<_>) = waiting.iter().partition(|row| row.get::<_, bool>(1));
                own_waits += own.len();
                waits.extend(others.iter().map(|row| row.get::<_, String>(0)));
                let begun = Instant::now();
                writer.write(&["probed".to_owned()], false).await;
                timed.lock().unwrap().push(begun.elapsed());
            }
            (waits, own_waits)
        });
        Probe { watching, times, ending }
    }

    fn reset(&self) {
        self.times.lock().unwrap().clear();
    }

    fn p99(&self) -> Duration {
        let mut times = self.times.lock().unwrap().clone();
        times.sort();
        times[times.len() * 99 / 100]
    }

    /// Who was seen waiting, and how often the relay was.
    async fn end(self) -> (Vec<String>, usize) {
        self.ending.send_replace(true);
        self.watching.await.unwrap()
    }
}
