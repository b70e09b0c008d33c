//! Many expired keys are deleted while requests go on.

use semel_testkit::counts::rounds;
use semel_testkit::database::TempDatabase;

use crate::world::{AMOUNT, Database, Sandbox, charge};

const FILL_POSTGRES: &str = "
    INSERT INTO semel.keys (tenant, operation, key, execution, fingerprint, state, status, headers, body, created_at,
                            expires_at)
    SELECT 'a', 'POST /charges', 'old-' || n, gen_random_uuid(), semel.fingerprint('old'), 'completed', 201, '', '',
           now() - interval '2 days', now() - interval '1 day'
    FROM generate_series(1, $1) n";

const FILL_SQLITE: &str = "
    WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
    INSERT INTO semel_keys (tenant, operation, key, execution, fingerprint, state, status, headers, body, created_at,
                            expires_at)
    SELECT 'a', 'POST /charges', 'old-' || n, randomblob(16), randomblob(33), 'completed', 201, x'', x'', 1, 2 FROM n";

#[tokio::test(flavor = "multi_thread")]
async fn reaping_expired_keys_under_load_blocks_no_claim_on_postgres() {
    let database = TempDatabase::create().await;
    let quiet = [("SEMEL_REAPER_EVERY", "1h")];
    let mut sandbox = Sandbox::start(&database.url(), &quiet).await;
    sandbox.open_account("alice").await;
    sandbox.service.terminate().await;
    let client = database.connect().await;
    client.execute(FILL_POSTGRES, &[&expired()]).await.unwrap();
    let left = async || {
        let row = client.query_one("SELECT count(*) FROM semel.keys WHERE expires_at < now()", &[]).await.unwrap();
        row.get::<_, i64>(0)
    };
    reap_under_load(&Database::Postgres(database), left).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reaping_expired_keys_under_load_blocks_no_claim_on_sqlite() {
    let database = Database::sqlite();
    let quiet = [("SEMEL_REAPER_EVERY", "1h")];
    let mut sandbox = Sandbox::start(&database.url(), &quiet).await;
    sandbox.open_account("alice").await;
    sandbox.service.terminate().await;
    let Database::Sqlite(file) = &database else { unreachable!("it is on SQLite") };
    let connection = semel_sqlite::rusqlite::Connection::open(file.path()).unwrap();
    connection.execute(FILL_SQLITE, [expired()]).unwrap();
    let left = async || {
        connection.query_row("SELECT count(*) FROM semel_keys WHERE expires_at <= 2", [], |row| row.get(0)).unwrap()
    };
    reap_under_load(&database, left).await;
}

fn expired() -> i32 {
    i32::try_from(rounds(20_000, 200_000)).unwrap()
}

/// Clients go on charging, with new keys and with expired ones, until the last expired key is gone. A claim that waited
/// for the reaper would run into the client's or the transaction's deadline and be answered something else.
async fn reap_under_load(database: &Database, left: impl AsyncFn() -> i64) {
    let before = left().await;
    let settings =
        [("SEMEL_REAPER_EVERY", "20ms"), ("SEMEL_REAPER_BATCH", "500"), ("SEMEL_TRANSACTION_DEADLINE", "5s")];
    let sandbox = Sandbox::start(&database.url(), &settings).await;
    let (done, watching) = tokio::sync::watch::channel(false);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..8_u64 {
        let (client, url, watching) = (sandbox.client.clone(), sandbox.service.url("/charges"), watching.clone());
        clients.spawn(async move {
            let mut charged = 0;
            while !*watching.borrow() {
                for key in [format!("new-{number}-{charged}"), format!("old-{}", charged * 8 + number + 1)] {
                    let answer = charge(&client, &url, "demo-a1", &key, "alice").await.unwrap();
                    assert_eq!((answer.status, answer.replayed), (201, false), "{key}: {answer:?}");
                }
                charged += 1;
            }
            charged * 2
        });
    }
    while left().await > 0 {
        assert!(clients.try_join_next().is_none(), "no client gives up while keys are reaped");
        tokio::task::yield_now().await;
    }
    done.send_replace(true);
    let charged: u64 = clients.join_all().await.into_iter().sum();
    assert!(before > 0 && charged > 0, "there was something to reap and somebody to block");
    assert_eq!(sandbox.balance("alice").await, charged * AMOUNT);
}
