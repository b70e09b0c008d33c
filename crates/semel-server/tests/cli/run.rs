//! `semel run`.

use std::time::{Duration, Instant};

use semel_testkit::process::Service;

use crate::harness::{Home, SEMEL, Sandbox, on_both_stores, semel};

on_both_stores!(an_unmigrated_database_is_refused, expired_keys_are_reaped_and_counted);

async fn an_unmigrated_database_is_refused(home: Home) {
    let stderr = semel(&["run", "--database-url", &home.url()]).failed_with(1);
    assert!(stderr.contains("semel migrate"), "{stderr}");
}

async fn expired_keys_are_reaped_and_counted(home: Home) {
    let mut sandbox = Sandbox::start(&home).await;
    sandbox.open_account("alice").await;
    for key in ["one", "two", "three"] {
        assert_eq!(sandbox.charge(key).await.status(), 201);
    }
    assert!(sandbox.service.terminate().await.success());
    // They expire only now: the sandbox has a reaper of its own, which must not get at them first.
    expire_all(&home).await;

    let url = home.url();
    let arguments = [
        "run",
        "--roles",
        "reaper",
        "--metrics-listen",
        "127.0.0.1:0",
        "--reaper-every",
        "10ms",
        "--database-url",
        &url,
    ];
    let mut reaper = Service::spawn(SEMEL, &arguments, &[]).await;
    reaped(&reaper, |count| count == 3).await;
    assert!(reaper.terminate().await.success());
    assert_eq!(semel(&["keys", "list", "--json", "--database-url", &url]).succeeded().trim(), "[]");
}

async fn expire_all(home: &Home) {
    match home {
        Home::Postgres(database) => {
            let expire =
                "UPDATE semel.keys SET created_at = now() - interval '2 h', expires_at = now() - interval '1 h'";
            assert_eq!(database.connect().await.execute(expire, &[]).await.unwrap(), 3);
        }
        Home::Sqlite(file) => {
            let connection = semel_sqlite::rusqlite::Connection::open(file.path()).unwrap();
            assert_eq!(connection.execute("UPDATE semel_keys SET created_at = 1, expires_at = 2", []).unwrap(), 3);
        }
    }
}

/// Waits until the counter of reaped keys is as wanted.
async fn reaped(service: &Service, wanted: impl Fn(u64) -> bool) {
    let gives_up = Instant::now() + Duration::from_secs(60);
    loop {
        let metrics = reqwest::get(service.url("/metrics")).await.unwrap().text().await.unwrap();
        let count = metrics.lines().find_map(|line| line.strip_prefix("semel_keys_reaped_total ")).unwrap();
        if wanted(count.parse().unwrap()) {
            return;
        }
        assert!(Instant::now() < gives_up, "{metrics}");
    }
}

#[tokio::test]
async fn a_signal_does_not_wait_for_a_long_sweep() {
    let home = Home::postgres().await;
    let url = home.url();
    semel(&["migrate", "--database-url", &url]).succeeded();
    let Home::Postgres(database) = &home else { unreachable!() };
    let client = database.connect().await;
    let insert = "INSERT INTO semel.keys
            (tenant, operation, key, execution, fingerprint, state, status, headers, body, created_at, expires_at)
        SELECT 'a', 'b', n::text, gen_random_uuid(), decode(repeat('00', 33), 'hex'), 'completed', 201, '', '',
            now() - interval '2 h', now() - interval '1 h'
        FROM generate_series(1, 50000) AS n";
    client.batch_execute(insert).await.unwrap();
    let arguments = ["run", "--metrics-listen", "127.0.0.1:0", "--reaper-batch", "1", "--database-url", &url];
    let mut reaper = Service::spawn(SEMEL, &arguments, &[]).await;
    reaped(&reaper, |count| count > 0).await;
    assert!(reaper.terminate().await.success());
    let left: i64 = client.query_one("SELECT count(*) FROM semel.keys", &[]).await.unwrap().get(0);
    assert!((1..50_000).contains(&left), "{left} keys are left");
}

#[test]
fn an_unknown_role_is_refused_by_name() {
    let stderr = semel(&["run", "--roles", "reaper,gardener"]).failed_with(2);
    assert!(stderr.contains("unknown role \"gardener\"; the roles are: reaper, relay, completer"), "{stderr}");
}

#[test]
fn a_missing_file_is_refused_and_not_created() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nothing.db");
    let stderr = semel(&["run", "--database-url", &format!("sqlite:{}", path.display())]).failed_with(1);
    assert!(stderr.contains("semel migrate") && stderr.contains("nothing.db"), "{stderr}");
    assert!(!path.exists());
}

#[test]
fn an_unreachable_database_is_told_within_the_connect_timeout_and_without_its_password() {
    // Nothing answers from this block of addresses, which is reserved for documentation, so that the timeout decides.
    for url in ["postgres://u:hunter2@192.0.2.1:5432/d", "postgres://u:hunter2@127.0.0.1:1/d"] {
        for command in [["run"].as_slice(), &["keys", "list"], &["migrate"], &["sandbox", "--listen", "127.0.0.1:0"]] {
            let started = Instant::now();
            let settings = ["--database-url", url, "--postgres-connect-timeout", "300ms"];
            let stderr = semel(&[command, &settings].concat()).failed_with(1);
            assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
            assert!(stderr.contains("database postgres://u@"), "{stderr}");
            assert!(stderr.contains("cannot be reached"), "{stderr}");
            assert!(!stderr.contains("hunter2"), "{stderr}");
        }
    }
}
