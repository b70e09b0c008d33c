//! What flows do on PostgreSQL alone: functions that any language calls, row locks, isolation levels, and bounds.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::HashSet;
use std::time::Duration;

use semel::event::EventId;
use semel::flow::{
    Attempt, Change, FlowState, FlowStore, Job, Journal, Kept, Kind, MAX_JOBS, MAX_KEPT_BYTES, Settled, Start, State,
};
use semel::operator::Audit;
use semel::{
    Ask, Claim, Completion, Error, Execution, Fingerprint, Key, Lease, LeaseTerms, OnExpiry, Scope, Store, Stored,
    Tx as _,
};
use semel_postgres::tokio_postgres::Client;
use semel_postgres::{Isolation, Options, Postgres, Statements};
use semel_testkit::counts::rounds;
use semel_testkit::database::TempDatabase;
use semel_testkit::poll::until;
use semel_testkit::proxy::{Fault, FaultProxy};
use uuid::Uuid;

const STAGE: &str = "SELECT semel.stage('shop', 'mail', convert_to('{\"to\":\"a\"}', 'UTF8'))";

/// How many sessions of this database wait for a lock.
const WAITING: &str = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
                       WHERE a.datname = current_database() AND NOT l.granted";

struct Shop {
    database: TempDatabase,
    store: Postgres,
}

impl Shop {
    async fn open() -> Shop {
        let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
        let store = Postgres::open(&database.url(), Options::default()).unwrap();
        Shop { database, store }
    }

    async fn begins(&self, key: &Key) -> Journal {
        match self.asks(key).await {
            Claim::Fresh(journal) => journal,
            other => panic!("a new key gave {other:?}"),
        }
    }

    async fn asks(&self, key: &Key) -> Claim<Journal, Stored> {
        self.store.begin_flow(&ask(key), &terms(), &start()).await.unwrap()
    }

    /// Lets every lease end.
    async fn abandons(&self) {
        let age = "UPDATE semel.keys SET lease_expires_at = lease_expires_at - interval '31 seconds'";
        self.database.connect().await.batch_execute(age).await.unwrap();
    }

    async fn number(&self, sql: &str) -> i64 {
        self.database.connect().await.query_one(sql, &[]).await.unwrap().get(0)
    }

    async fn staged(&self) -> HashSet<String> {
        let sql = "SELECT key FROM semel.flows WHERE flow = 'mail'";
        let rows = self.database.connect().await.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

fn ask(key: &Key) -> Ask {
    Ask::new(&Scope::new("shop", "POST /orders").unwrap(), key, &Fingerprint::of_bytes(b"x"))
}

fn terms() -> LeaseTerms {
    LeaseTerms {
        lease_for: Duration::from_secs(30),
        holder: "test".to_owned(),
        on_expiry: OnExpiry::Resume,
        retain: Duration::from_secs(24 * 60 * 60),
    }
}

fn start() -> Start {
    Start { flow: "order".to_owned(), input: kept(b"{}") }
}

fn kept(bytes: &[u8]) -> Kept {
    Kept { bytes: bytes.to_vec().into(), sealed_by: None }
}

fn done(step: &str) -> Settled {
    Settled { step: step.to_owned(), kind: Kind::Commit, state: State::Done, result: kept(b"1") }
}

fn completion(execution: Execution) -> Completion {
    let stored = Stored { execution, status: 201, headers: "".into(), body: "".into(), sealed_by: None };
    Completion { stored, keep_effect: true, failed: false, retain: Duration::from_secs(60) }
}

fn job() -> Job {
    Job::new("shop", "mail", "hello").unwrap()
}

fn keys(run: Execution, jobs: u32) -> HashSet<String> {
    (0..jobs).map(|ordinal| Job::key(run, ordinal).to_string()).collect()
}

fn steps(journal: &Journal) -> Vec<&str> {
    journal.entries.iter().map(|entry| entry.step.as_str()).collect()
}

/// The first five arguments of every function that a worker calls.
fn fence(lease: &Lease) -> String {
    let (scope, key) = (lease.scope(), lease.key());
    format!("'{}', '{}', '{key}', '{}', {}", scope.tenant(), scope.operation(), lease.execution, lease.epoch)
}

/// Runs one statement and returns its only value as text.
async fn text(client: &Client, sql: &str) -> String {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn sql_and_rust_derive_the_same_keys_of_jobs() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    for ordinal in [0, 1, 99, 256] {
        let run = Execution::mint();
        let number = i32::try_from(ordinal).unwrap();
        let row = client.query_one("SELECT semel.job_key($1, $2)", &[&run.as_uuid(), &number]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), Job::key(run, ordinal).to_string());
    }
}

#[tokio::test]
async fn plain_sql_stages_under_its_claim_and_counts_on() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    client.batch_execute(&format!("BEGIN; {STAGE}; ROLLBACK; BEGIN")).await.unwrap();
    assert_eq!(shop.staged().await.len(), 0, "what was rolled back is not there");
    let claim = "SELECT execution::text FROM semel.claim('shop', 'orders.create', 'k-1', semel.fingerprint('x'))";
    let run = Execution::from(text(&client, claim).await.parse::<Uuid>().unwrap());
    let mut told = vec![text(&client, STAGE).await];
    // What was staged in a savepoint goes with it, and so does the count.
    client.batch_execute(&format!("SAVEPOINT s; {STAGE}; ROLLBACK TO SAVEPOINT s")).await.unwrap();
    told.push(text(&client, STAGE).await);
    assert_eq!(shop.staged().await.len(), 0, "not before the commit");
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(told, [Job::key(run, 0).to_string(), Job::key(run, 1).to_string()]);
    assert_eq!(shop.staged().await, keys(run, 2));

    let input = b"{\"to\":\"a\"}";
    for journal in shop.store.take_flows("mail", &terms(), 10).await.unwrap() {
        assert_eq!((&journal.input, journal.lease.epoch), (&kept(input), 2));
        assert_eq!(journal.lease.ask.fingerprint, Fingerprint::of_bytes(input));
        assert_eq!(*journal.lease.scope(), Scope::new("shop", "mail").unwrap());
    }
    // Without a claim the transaction has a run of its own, and the next transaction another one.
    client.batch_execute(&format!("BEGIN; {STAGE}; {STAGE}; COMMIT; {STAGE}")).await.unwrap();
    assert_eq!(shop.staged().await.len(), 5);
}

/// A statement of the work may call the functions; what the work stages and emits then counts on.
#[tokio::test]
async fn what_sql_and_rust_stage_in_one_transaction_has_different_keys() {
    let shop = Shop::open().await;
    let mut expected = HashSet::new();
    for statements in [Statements::Named, Statements::Unnamed] {
        let options = Options { statements, ..Options::default() };
        let store = Postgres::connect(&shop.database.url(), options).await.unwrap();
        let Claim::Fresh(mut tx) = store.claim(&ask(&Key::random())).await.unwrap() else { panic!("the key is new") };
        expected.extend(keys(tx.execution(), 3));
        tx.execute(STAGE, &[]).await.unwrap();
        tx.stage(job());
        tx.stage(job());
        let completion = completion(tx.execution());
        tx.complete(&completion).await.unwrap();
        assert_eq!(shop.staged().await, expected);

        // In a step both derive from its name, and so do events.
        let journal = shop.begins(&Key::random()).await;
        let run = journal.lease.execution.named_step("reserve");
        expected.extend(keys(run, 2));
        let mut tx = store.begin_step(&journal.lease, "reserve").await.unwrap();
        tx.execute(STAGE, &[]).await.unwrap();
        let emit = "SELECT semel.emit('orders', 'one', 'order.made', '{}')";
        let event: Uuid = tx.query_one(emit, &[]).await.unwrap().get(0);
        assert_eq!(EventId::from(event), EventId::derive(run, 0));
        tx.stage(job());
        tx.record(&done("reserve")).await.unwrap();
        assert_eq!(shop.staged().await, expected);
    }
}

/// I7: whoever wants the flow is told at once, and the worker that was late but not too late keeps it.
#[tokio::test]
async fn nobody_waits_for_a_late_worker_that_is_in_its_transaction() {
    let (shop, key) = (Shop::open().await, Key::random());
    let late = shop.begins(&key).await;
    shop.abandons().await;
    let tx = shop.store.begin_step(&late.lease, "reserve").await.unwrap();
    let asked = async {
        assert_eq!(shop.store.take_flows("order", &terms(), 10).await.unwrap(), Vec::new());
        assert!(matches!(shop.asks(&key).await, Claim::InFlight { .. }));
    };
    tokio::time::timeout(Duration::from_secs(20), asked).await.expect("somebody waited for the worker");
    tx.record(&done("reserve")).await.unwrap();
    // The lease runs on from the step's end.
    assert_eq!(shop.store.take_flows("order", &terms(), 10).await.unwrap(), Vec::new());
    let Claim::InFlight { retry_after } = shop.asks(&key).await else { panic!("the lease runs") };
    assert!(retry_after > Duration::from_secs(20), "{retry_after:?}");
    assert_eq!(steps(&shop.store.read_flow(&late.lease).await.unwrap()), ["reserve"]);
}

/// Somebody whose change of the key is not committed yet, for whatever reason, keeps no client waiting.
#[tokio::test]
async fn nobody_waits_for_whoever_changes_the_key() {
    let (shop, key) = (Shop::open().await, Key::random());
    shop.begins(&key).await;
    let mut client = shop.database.connect().await;
    let changing = client.transaction().await.unwrap();
    changing.execute("UPDATE semel.keys SET holder = 'another'", &[]).await.unwrap();
    let asked = tokio::time::timeout(Duration::from_secs(20), shop.asks(&key)).await.expect("it waited for the change");
    assert!(matches!(asked, Claim::InFlight { .. }), "{asked:?}");
    changing.rollback().await.unwrap();
}

/// A commit whose acknowledgement was lost may still be on its way: who reads waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_journal_is_read_once_nothing_of_its_lease_is_under_way() {
    let shop = Shop::open().await;
    let journal = shop.begins(&Key::random()).await;
    let tx = shop.store.begin_step(&journal.lease, "reserve").await.unwrap();
    let (store, lease) = (shop.store.clone(), journal.lease.clone());
    let reading = tokio::spawn(async move { store.read_flow(&lease).await.unwrap() });
    let client = shop.database.connect().await;
    until("the reader waits", async || client.query_one(WAITING, &[]).await.unwrap().get::<_, i64>(0) > 0).await;
    tx.record(&done("reserve")).await.unwrap();
    assert_eq!(steps(&reading.await.unwrap()), ["reserve"]);
}

/// What a step has done when its flow is cancelled is committed with its record, and undone with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_waits_for_a_step_that_is_under_way() {
    let shop = Shop::open().await;
    let lease = shop.begins(&Key::random()).await.lease;
    let tx = shop.store.begin_step(&lease, "reserve").await.unwrap();
    let (store, run) = (shop.store.clone(), lease.execution);
    let not_wanted = Audit { actor: "tester".to_owned(), reason: "not wanted".to_owned() };
    let cancelling = tokio::spawn(async move { store.cancel_flow(run, &not_wanted, false).await.unwrap() });
    let client = shop.database.connect().await;
    until("the operator waits", async || client.query_one(WAITING, &[]).await.unwrap().get::<_, i64>(0) > 0).await;
    tx.record(&done("reserve")).await.unwrap();
    assert!(matches!(cancelling.await.unwrap(), Change::Made(_)));
    let journal = shop.store.read_flow(&lease).await.unwrap();
    assert_eq!((steps(&journal), journal.cancelled), (vec!["reserve"], true));
}

/// Above READ COMMITTED, a worker that waited for a cancellation has a snapshot from before it. It is told to begin
/// again, and does not end the flow behind the operator's back.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_is_seen_by_a_worker_that_waited_for_it() {
    let shop = Shop::open().await;
    let options = Options { isolation: Isolation::Serializable, ..Options::default() };
    let store = Postgres::open(&shop.database.url(), options).unwrap();
    let lease = shop.begins(&Key::random()).await.lease;
    let mut operator = shop.database.connect().await;
    let cancelling = operator.transaction().await.unwrap();
    let cancel = format!("SELECT semel.cancel_flow('{}', 'tester', 'not wanted')", lease.execution);
    cancelling.batch_execute(&cancel).await.unwrap();
    let (worker, late) = (store.clone(), lease.clone());
    let beginning = tokio::spawn(async move { worker.begin_step(&late, "finish").await.map(drop) });
    let client = shop.database.connect().await;
    until("the worker waits", async || client.query_one(WAITING, &[]).await.unwrap().get::<_, i64>(0) > 0).await;
    cancelling.commit().await.unwrap();
    let waited = beginning.await.unwrap();
    assert!(matches!(waited, Err(Error::Conflict(_))), "{waited:?}");
    let tx = store.begin_step(&lease, "finish").await.unwrap();
    let ended = tx.complete(&completion(lease.execution)).await;
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    assert_eq!(shop.number("SELECT count(*) FROM semel.keys WHERE state = 'in_progress'").await, 1);
}

/// I8: the call leaves after the count is had, so it is given its time from then on, however long the count waited.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_waited_to_be_counted_leaves_afterwards() {
    let shop = Shop::open().await;
    let journal = shop.begins(&Key::random()).await;
    let tx = shop.store.begin_step(&journal.lease, "reserve").await.unwrap();
    let (store, lease) = (shop.store.clone(), journal.lease.clone());
    let attempt = Attempt { step: "charge", provider: "psp", key: "derived", number: 1, opened: Duration::ZERO };
    let counting = tokio::spawn(async move { store.count_attempt(&lease, &attempt).await.unwrap() });
    let client = shop.database.connect().await;
    until("the count waits", async || client.query_one(WAITING, &[]).await.unwrap().get::<_, i64>(0) > 0).await;
    let waited = text(&client, "SELECT clock_timestamp()::text").await;
    tx.record(&done("reserve")).await.unwrap();
    counting.await.unwrap();
    let later = format!("SELECT (min(attempted_at) > '{waited}')::text FROM semel.flow_steps WHERE step = 'charge'");
    assert_eq!(text(&client, &later).await, "true");
}

/// Whoever takes flows of one name does not read those of another, however many wait.
#[tokio::test]
async fn a_takeover_does_not_read_the_backlog_of_other_flows() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    for _ in 0..20 {
        client.batch_execute(&format!("{STAGE} FROM generate_series(1, {MAX_JOBS})")).await.unwrap();
    }
    shop.begins(&Key::random()).await;
    shop.abandons().await;
    client.batch_execute("ANALYZE semel.keys").await.unwrap();
    let read = async || {
        client.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
        let sql = "SELECT (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relid = 'semel.keys'::regclass)
                          + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relid = 'semel.keys'::regclass)";
        text(&client, &format!("SELECT ({sql})::text")).await.parse::<u64>().unwrap()
    };
    let before = read().await;
    let take = "SELECT count(*)::text FROM semel.take_flows('order', 'test', '30 s', '1 day', true, 10)";
    assert_eq!(text(&client, take).await, "1");
    let one = read().await - before;
    assert!(one < 50, "taking one flow over read {one} keys");
    // The control: what does wait is read.
    assert_eq!(text(&client, &take.replace("'order'", "'mail'").replace(", 10)", ", 1000)")).await, "1000");
    assert!(read().await - before >= 1000);
}

/// Jobs that wait do not lie where the reaper looks first.
#[tokio::test]
async fn a_backlog_of_jobs_is_out_of_the_reapers_way() {
    let shop = Shop::open().await;
    shop.database.connect().await.batch_execute(STAGE).await.unwrap();
    let near = "SELECT count(*) FROM semel.keys WHERE expires_at < now() + interval '99 years'";
    assert_eq!(shop.number(near).await, 0);
    let taken = shop.store.take_flows("mail", &terms(), 10).await.unwrap();
    assert_eq!((taken.len(), shop.number(near).await), (1, 1), "its worker says how long it is kept");
}

/// I12: what goes in one commit is bounded, also where each key has a gigabyte behind it.
#[tokio::test]
async fn few_flows_are_reaped_in_one_commit_and_all_of_them_in_the_end() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    client.batch_execute(&format!("{STAGE} FROM generate_series(1, 45)")).await.unwrap();
    let end = "UPDATE semel.keys SET state = 'completed', status = 200, headers = '', body = '',
                      lease_expires_at = NULL, created_at = created_at - interval '2 days',
                      expires_at = now() - interval '1 day' + random() * interval '1 hour'";
    client.batch_execute(end).await.unwrap();
    assert_eq!(text(&client, "SELECT semel.reap(1000)::text").await, "20");
    assert_eq!(shop.number("SELECT count(*) FROM semel.flows").await, 25);
    // Plain keys that expired before the last of them go along.
    let plain = "INSERT INTO semel.keys (tenant, operation, key, execution, fingerprint, state, status, headers, body,
                                         created_at, expires_at)
                 SELECT 'shop', 'charge', n, gen_random_uuid(), semel.fingerprint('x'), 'completed', 201, '', '',
                        now() - interval '3 days', now() - interval '2 days' FROM generate_series(1, 30) n";
    client.batch_execute(plain).await.unwrap();
    assert_eq!(text(&client, "SELECT semel.reap(1000)::text").await, "50");
    client.batch_execute(plain).await.unwrap();
    assert_eq!(shop.store.reap(32).await.unwrap(), 32, "no more than asked for");
    assert_eq!(shop.store.reap(1000).await.unwrap(), 3);
    assert_eq!(shop.number("SELECT count(*) FROM semel.keys").await + shop.staged().await.len() as i64, 0);
}

/// Steps of flows that have nothing to do with each other do not fail each other where all is SERIALIZABLE. Each
/// records two here, so that each reads before the other writes.
#[tokio::test]
async fn serializable_steps_of_two_flows_do_not_conflict() {
    let shop = Shop::open().await;
    let mut workers = Vec::new();
    for _ in 0..2 {
        let (client, journal) = (shop.database.connect().await, shop.begins(&Key::random()).await);
        client.batch_execute("BEGIN ISOLATION LEVEL SERIALIZABLE").await.unwrap();
        workers.push((client, journal));
    }
    for step in ["reserve", "deliver"] {
        for (client, journal) in &workers {
            let fence = fence(&journal.lease);
            let end = "'commit', 'done', '1', NULL, '30 s', '1 day'";
            client.batch_execute(&format!("SELECT semel.record_step({fence}, '{step}', {end})")).await.unwrap();
        }
    }
    for (client, journal) in &workers {
        client.batch_execute("COMMIT").await.unwrap();
        assert_eq!(steps(&shop.store.read_flow(&journal.lease).await.unwrap()), ["reserve", "deliver"]);
    }
}

/// A step that came in between is seen by whoever runs again; only the step's own record takes it for its end.
#[tokio::test]
async fn a_step_that_is_there_already_is_a_conflict() {
    let shop = Shop::open().await;
    let journal = shop.begins(&Key::random()).await;
    shop.store.begin_step(&journal.lease, "reserve").await.unwrap().record(&done("reserve")).await.unwrap();
    let again = "INSERT INTO semel.flow_steps (execution, step, ordinal, kind, state, result, recorded_at)
                 VALUES ($1, 'reserve', 7, 'sleep', 'done', '', now())";
    let mut tx = shop.store.begin().await.unwrap();
    let conflict = tx.execute(again, &[&journal.lease.execution.as_uuid()]).await;
    assert!(matches!(conflict, Err(Error::Conflict(_))), "{conflict:?}");
    tx.rollback().await;
    let again = shop.store.begin_step(&journal.lease, "reserve").await.unwrap().record(&done("reserve")).await;
    assert!(matches!(again, Err(Error::Raced)), "{again:?}");
}

/// An operator whose change was committed unheard is not told that nothing happened.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_commit_is_not_answered_is_ambiguous() {
    let shop = Shop::open().await;
    let journal = shop.begins(&Key::random()).await;
    shop.store.park_flow(&journal.lease, Duration::from_secs(3600), None).await.unwrap();
    let proxy = FaultProxy::start(shop.database.server_address()).unwrap();
    let url = format!("{}?sslmode=disable", shop.database.url_on_port(proxy.port()));
    let store = Postgres::connect(&url, Options::default()).await.unwrap();
    proxy.arm(Fault::DropCommitAcknowledgement);
    let audit = Audit { actor: "tester".to_owned(), reason: "now".to_owned() };
    let changed = store.retry_flow(journal.lease.execution, &audit, false).await;
    assert!(matches!(changed, Err(Error::Ambiguous(_))), "{changed:?}");
    let shown = shop.store.show_flow(journal.lease.execution).await.unwrap().unwrap();
    assert_eq!((shown.record.state, shown.changes.len()), (FlowState::Due, 1), "it was made all the same");
}

/// I7: over handles that share nothing but the database.
#[tokio::test(flavor = "multi_thread")]
async fn two_takers_never_get_one_flow() {
    let shop = Shop::open().await;
    let batches = rounds(2, 20);
    for _ in 0..batches {
        let stage = "SELECT semel.stage('shop', 'mail', '{}') FROM generate_series(1, 50)";
        shop.database.connect().await.batch_execute(stage).await.unwrap();
    }
    let mut takers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = Postgres::connect(&shop.database.url(), Options::default()).await.unwrap();
        takers.spawn(async move {
            let mut mine: Vec<Journal> = Vec::new();
            loop {
                let taken = store.take_flows("mail", &terms(), 3).await.unwrap();
                if taken.is_empty() {
                    return mine;
                }
                mine.extend(taken);
            }
        });
    }
    let mut all: Vec<Journal> = takers.join_all().await.into_iter().flatten().collect();
    // Whoever found nothing may have passed over what another one had locked.
    all.extend(shop.store.take_flows("mail", &terms(), 1000).await.unwrap());
    let distinct: HashSet<Execution> = all.iter().map(|journal| journal.lease.execution).collect();
    let expected = usize::try_from(batches).unwrap() * 50;
    assert_eq!((all.len(), distinct.len()), (expected, expected));
    assert!(all.iter().all(|journal| journal.lease.epoch == 2));
}

/// Above READ COMMITTED a takeover could miss what the last worker recorded a moment ago.
#[tokio::test]
async fn a_takeover_is_at_read_committed_whatever_the_database_prefers() {
    let (shop, key) = (Shop::open().await, Key::random());
    let prefer =
        format!("ALTER DATABASE {} SET default_transaction_isolation TO 'repeatable read'", shop.database.name());
    shop.database.connect().await.batch_execute(&prefer).await.unwrap();
    let store = Postgres::connect(&shop.database.url(), Options::default()).await.unwrap();
    let Claim::Fresh(first) = store.begin_flow(&ask(&key), &terms(), &start()).await.unwrap() else {
        panic!("the key is new");
    };
    store.begin_step(&first.lease, "reserve").await.unwrap().record(&done("reserve")).await.unwrap();
    shop.abandons().await;
    let abandoned = "SELECT outcome FROM semel.begin_flow('shop', 'POST /orders', $1, semel.fingerprint('x'), 'other',
                     '30 s', '1 day', true, gen_random_uuid(), 'order', '{}', NULL)";
    let client = shop.database.connect().await;
    let outcome: String = client.query_one(abandoned, &[&key.as_str()]).await.unwrap().get(0);
    assert_eq!(outcome, "abandoned");
    let Claim::Resume(second) = store.begin_flow(&ask(&key), &terms(), &start()).await.unwrap() else {
        panic!("it was abandoned");
    };
    assert_eq!((second.lease.epoch, steps(&second)), (2, vec!["reserve"]));
    shop.abandons().await;
    let third = store.take_flows("order", &terms(), 10).await.unwrap().remove(0);
    assert_eq!((third.lease.epoch, steps(&third)), (3, vec!["reserve"]));
    assert_eq!(steps(&store.read_flow(&third.lease).await.unwrap()), ["reserve"]);
}

/// A flow that was begun is finished, and by those who know it.
#[tokio::test]
async fn leased_work_that_is_no_flow_leaves_flows_alone() {
    let (shop, key) = (Shop::open().await, Key::random());
    let first = shop.begins(&key).await;
    shop.store.abandon(&first.lease).await.unwrap();
    assert_eq!(shop.number("SELECT count(*) FROM semel.flows").await, 1, "it is only released");
    for on_expiry in [OnExpiry::Resume, OnExpiry::Hold] {
        let leased = shop.store.lease(&ask(&key), &LeaseTerms { on_expiry, ..terms() }).await;
        assert!(matches!(leased, Err(Error::Settings(_))), "{leased:?}");
    }
    let Claim::Resume(second) = shop.asks(&key).await else { panic!("its lease has ended") };
    assert_eq!((second.lease.execution, second.lease.epoch), (first.lease.execution, 2));
}

/// Ids are numbered by the name that the transaction was begun with.
#[tokio::test]
async fn a_step_is_recorded_in_the_transaction_begun_for_it_and_in_no_other() {
    let shop = Shop::open().await;
    let journal = shop.begins(&Key::random()).await;
    let mut tx = shop.store.begin_step(&journal.lease, "reserve").await.unwrap();
    tx.stage(job());
    let refused = tx.record(&done("deliver")).await;
    assert!(matches!(refused, Err(Error::Settings(_))), "{refused:?}");
    let tx = shop.store.begin_fenced(&journal.lease).await.unwrap();
    let refused = tx.record(&done("reserve")).await;
    assert!(matches!(refused, Err(Error::Settings(_))), "{refused:?}");
    assert_eq!(shop.number("SELECT count(*) FROM semel.flow_steps").await, 0);
    assert_eq!(shop.staged().await.len(), 0);
}

/// Who asks for a flow to be undone does not have to wait until it has slept.
#[tokio::test]
async fn a_flow_that_was_cancelled_beside_its_worker_does_not_pause() {
    let shop = Shop::open().await;
    let (asleep, broken) = (shop.begins(&Key::random()).await, shop.begins(&Key::random()).await);
    let audit = Audit { actor: "tester".to_owned(), reason: "not wanted".to_owned() };
    let hour = Duration::from_secs(3600);
    for (journal, cause, then) in [(&asleep, None, FlowState::Due), (&broken, Some("away"), FlowState::Paused)] {
        shop.store.cancel_flow(journal.lease.execution, &audit, false).await.unwrap();
        shop.store.park_flow(&journal.lease, hour, cause).await.unwrap();
        let shown = shop.store.show_flow(journal.lease.execution).await.unwrap().unwrap();
        assert_eq!(shown.record.state, then, "{cause:?}");
    }
    let taken = shop.store.take_flows("order", &terms(), 10).await.unwrap();
    assert!(matches!(taken.as_slice(), [journal] if journal.cancelled), "{taken:?}");
}

/// I12.
#[tokio::test]
async fn the_database_itself_refuses_jobs_that_are_out_of_bounds() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    let stage = |tenant: &str, flow: &str, input: &str, fingerprint: &str| {
        format!("SELECT semel.stage({tenant}, {flow}, {input}, {fingerprint})")
    };
    let large = format!("decode(repeat('00', {}), 'hex')", MAX_KEPT_BYTES + 41);
    for (bad, code) in [
        (stage("''", "'mail'", "'{}'", "NULL"), "23514"),
        (stage("repeat('t', 256)", "'mail'", "'{}'", "NULL"), "23514"),
        (stage("E'sh\\nop'", "'mail'", "'{}'", "NULL"), "23514"),
        (stage("'shop'", "''", "'{}'", "NULL"), "23514"),
        (stage("'shop'", "repeat('f', 101)", "'{}'", "NULL"), "23514"),
        (stage("'shop'", "'a mail'", "'{}'", "NULL"), "23514"),
        (stage("'shop'", "'mail'", &large, "NULL"), "23514"),
        (stage("'shop'", "'mail'", "'{}'", "'\\x01'"), "23514"),
        (stage("NULL", "'mail'", "'{}'", "NULL"), "23502"),
        (stage("'shop'", "'mail'", "NULL", "NULL"), "23502"),
        (format!("{STAGE} FROM generate_series(0, {MAX_JOBS})"), "SM008"),
    ] {
        let refused = client.batch_execute(&bad).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), code, "{bad}: {refused:?}");
    }
    assert_eq!(shop.number("SELECT count(*) FROM semel.keys").await, 0);
    client.batch_execute(&format!("{STAGE} FROM generate_series(1, {MAX_JOBS})")).await.unwrap();
    assert_eq!(shop.staged().await.len(), MAX_JOBS);
}

/// I12: steps of a flow, and attempts of a call.
#[tokio::test]
async fn the_database_itself_refuses_steps_that_are_out_of_bounds() {
    let shop = Shop::open().await;
    let client = shop.database.connect().await;
    let fence = fence(&shop.begins(&Key::random()).await.lease);
    let settle = |step: &str, kind: &str, state: &str| {
        format!("SELECT semel.settle_step({fence}, {step}, '{kind}', '{state}', '1', NULL)")
    };
    for bad in [
        settle("''", "sleep", "done"),
        settle("repeat('s', 87)", "sleep", "done"),
        settle("'a step'", "sleep", "done"),
        settle("'step'", "nap", "done"),
        settle("'step'", "sleep", "over"),
        settle("'step'", "sleep", "pending"),
    ] {
        let refused = client.batch_execute(&bad).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "23514", "{bad}: {refused:?}");
    }
    let count = |upto: u32| {
        format!(
            "DO $$ BEGIN FOR i IN 1..{upto} LOOP \
             PERFORM semel.count_attempt({fence}, 'charge', 'psp', 'derived', i, '0'); END LOOP; END $$"
        )
    };
    let fill = |steps: u32| {
        format!(
            "DO $$ BEGIN FOR i IN 1..{steps} LOOP \
             PERFORM semel.settle_step({fence}, 'step-' || i, 'sleep', 'done', '1', NULL); END LOOP; END $$"
        )
    };
    for (bad, good) in [(count(101), count(100)), (fill(1000), fill(999))] {
        let refused = client.batch_execute(&bad).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "23514", "{refused:?}");
        client.batch_execute(&good).await.unwrap();
    }
    assert_eq!(shop.number("SELECT count(*) FROM semel.flow_steps").await, 1000);
}
