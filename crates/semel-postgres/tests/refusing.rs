//! A refused run takes its effect back by ending its transaction, and stores its answer in another one. Who waits for
//! the key, or asks for it in between, gets one answer all the same.
#![allow(clippy::unwrap_used, missing_docs)]

use std::cell::Cell;
use std::time::Duration;

use semel::once::Error as OnceError;
use semel::{Ask, Claim, Error, Fingerprint, Key, Outcome, Reply, Scope, Semel, Store};
use semel_postgres::tokio_postgres::types::ToSql;
use semel_postgres::tokio_postgres::{Client, Transaction};
use semel_postgres::{Isolation, Options, Postgres, Tx};
use semel_testkit::database::TempDatabase;
use semel_testkit::poll::until;
use uuid::Uuid;

/// How many wait for an advisory lock in this database.
const WAITING: &str = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                       WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted";

/// A key that is run, and refused.
struct Lab {
    database: TempDatabase,
    semel: Semel<Postgres>,
    ask: Ask,
    /// Its tenant, its operation, and itself.
    names: [String; 3],
    runs: Cell<u32>,
}

impl Lab {
    async fn open(options: Options) -> Lab {
        let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
        let store = Postgres::open(&database.url(), options).unwrap();
        database.connect().await.batch_execute("CREATE TABLE effects (label text NOT NULL)").await.unwrap();
        let (scope, key) = (Scope::new("tenänt", "charge").unwrap(), Key::random());
        let names = [scope.tenant().to_owned(), scope.operation().to_owned(), key.to_string()];
        let ask = Ask::new(&scope, &key, &Fingerprint::of_bytes(b"x"));
        Lab { database, semel: Semel::new(store), ask, names, runs: Cell::new(0) }
    }

    async fn once(&self, effect: impl AsyncFn(&mut Tx) -> Result<Reply, Error>) -> Result<Outcome, OnceError<Error>> {
        self.semel.once(&self.ask.scope, &self.ask.key, &self.ask.fingerprint, effect).await
    }

    /// Runs work that has its effect, and is refused once so many wait for its key.
    async fn refused(&self, waiting: i64) -> Result<Outcome, OnceError<Error>> {
        let client = self.database.connect().await;
        let effect = async |tx: &mut Tx| {
            tx.execute("INSERT INTO effects (label) VALUES ('x')", &[]).await?;
            self.runs.set(self.runs.get() + 1);
            are_waiting(&client, waiting).await;
            Ok(Reply::new(402, "refused").unwrap())
        };
        self.once(effect).await
    }

    /// Waits for the key while the work runs, by this function, until the rollback hands its lock over.
    async fn wait<'a>(&self, client: &'a mut Client, lock: &str) -> Transaction<'a> {
        until("the work runs", async || self.runs.get() > 0).await;
        let transaction = client.transaction().await.unwrap();
        let [tenant, operation, key] = self.params();
        let lock = format!("SELECT {lock}(semel.lock_id($1, $2, $3))");
        transaction.execute(&lock, &[tenant, operation, key]).await.unwrap();
        transaction
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 3] {
        self.names.each_ref().map(|name| name as &(dyn ToSql + Sync))
    }

    async fn effects(&self) -> i64 {
        let client = self.database.connect().await;
        client.query_one("SELECT count(*) FROM effects", &[]).await.unwrap().get(0)
    }
}

async fn are_waiting(client: &Client, count: i64) {
    until("they wait", async || client.query_one(WAITING, &[]).await.unwrap().get::<_, i64>(0) == count).await;
}

fn at(isolation: Isolation) -> Options {
    Options { isolation, ..Options::default() }
}

/// I2, I3: the rollback lets everybody through who waited for the run's end, and the run gets its key back after them.
#[tokio::test]
async fn a_refused_run_gets_its_key_back_from_those_who_waited_for_it() {
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        let lab = Lab::open(at(isolation)).await;
        // As `Store::claim` waits, and no quicker: until the run is in the queue itself.
        let waiting = async || {
            let mut client = lab.database.connect().await;
            let watching = lab.database.connect().await;
            let transaction = lab.wait(&mut client, "pg_advisory_xact_lock_shared").await;
            are_waiting(&watching, 1).await;
            transaction.rollback().await.unwrap();
        };
        let (outcome, ..) = tokio::join!(lab.refused(3), waiting(), waiting(), waiting());
        assert!(matches!(outcome, Ok(Outcome::Fresh(_))), "{outcome:?}");
        assert_eq!((lab.runs.get(), lab.effects().await), (1, 0));
        let again = lab.semel.store().claim(&lab.ask).await.unwrap();
        assert!(matches!(&again, Claim::Replay(stored) if stored.status == 402), "{again:?}");
    }
}

/// I2, I3: whoever takes the key in between decides, and the refused run answers what that one stored.
#[tokio::test]
async fn a_refused_run_that_was_overtaken_answers_what_the_other_one_stored() {
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        let lab = Lab::open(at(isolation)).await;
        let overtaking = async {
            let mut client = lab.database.connect().await;
            let transaction = lab.wait(&mut client, "pg_advisory_xact_lock").await;
            let ([tenant, operation, key], fingerprint) = (lab.params(), lab.ask.fingerprint.as_bytes().as_slice());
            let claim = "SELECT outcome, execution FROM semel.claim($1, $2, $3, $4, false)";
            let claim = transaction.query_one(claim, &[tenant, operation, key, &fingerprint]).await.unwrap();
            assert_eq!(claim.get::<_, &str>(0), "fresh");
            let complete = "SELECT semel.complete($1, $2, $3, $4, $5, NULL, 201, '', 'overtaken')";
            let params = [tenant, operation, key, &fingerprint, &claim.get::<_, Uuid>(1)];
            transaction.execute(complete, &params).await.unwrap();
            transaction.commit().await.unwrap();
        };
        let (outcome, ()) = tokio::join!(lab.refused(1), overtaking);
        assert_eq!(outcome.unwrap(), Outcome::Replayed(Reply::new(201, "overtaken").unwrap()));
        assert_eq!((lab.runs.get(), lab.effects().await), (1, 0));
    }
}

/// I12: somebody who holds the key's lock for ever holds up a refused run until its deadline, and no longer.
#[tokio::test]
async fn a_refused_run_waits_for_its_key_no_longer_than_its_deadline() {
    let lab = Lab::open(Options { deadline: Duration::from_secs(5), ..Options::default() }).await;
    let mut client = lab.database.connect().await;
    let (outcome, holding) = tokio::join!(lab.refused(1), lab.wait(&mut client, "pg_advisory_xact_lock"));
    assert!(matches!(outcome, Err(OnceError::InFlight { .. })), "{outcome:?}");
    assert_eq!((lab.runs.get(), lab.effects().await), (1, 0));
    holding.rollback().await.unwrap();
    assert!(matches!(lab.refused(0).await, Ok(Outcome::Fresh(_))));
}

/// I1: an effect that the work has committed by itself cannot be taken back, so no refusal is stored over it.
#[tokio::test]
async fn a_run_that_ended_its_transaction_by_itself_cannot_be_refused() {
    let lab = Lab::open(Options::default()).await;
    for end in ["COMMIT", "ROLLBACK"] {
        let effect = async |tx: &mut Tx| {
            tx.execute("INSERT INTO effects (label) VALUES ('x')", &[]).await?;
            tx.execute(end, &[]).await?;
            Ok(Reply::new(402, "refused").unwrap())
        };
        let outcome = lab.once(effect).await;
        assert!(matches!(outcome, Err(OnceError::Store(Error::Statement(_)))), "{outcome:?}");
        assert!(matches!(lab.semel.store().claim(&lab.ask).await.unwrap(), Claim::Fresh(_)), "after {end}");
    }
}

/// A claim from Rust and one from SQL exclude each other, whatever alphabet their names have.
#[tokio::test]
async fn sql_and_rust_lock_the_same_key() {
    let lab = Lab::open(Options::default()).await;
    let held = lab.semel.store().claim(&lab.ask).await.unwrap();
    assert!(matches!(held, Claim::Fresh(_)));
    let client = lab.database.connect().await;
    let ([tenant, operation, key], fingerprint) = (lab.params(), lab.ask.fingerprint.as_bytes().as_slice());
    let claim = "SELECT outcome FROM semel.claim($1, $2, $3, $4)";
    let outcome = async |key| {
        let row = client.query_one(claim, &[tenant, operation, key, &fingerprint]).await.unwrap();
        row.get::<_, String>(0)
    };
    assert_eq!(outcome(key).await, "in_flight");
    assert_eq!(outcome(&"another").await, "fresh");
    let free = "SELECT pg_try_advisory_xact_lock(semel.lock_id($1, $2, $3))";
    assert!(!client.query_one(free, &[tenant, operation, key]).await.unwrap().get::<_, bool>(0));
}
