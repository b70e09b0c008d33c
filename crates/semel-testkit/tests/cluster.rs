//! The private cluster keeps what was committed, and says how to get PostgreSQL when there is none.
#![allow(clippy::unwrap_used, missing_docs)]

use semel_testkit::cluster::Cluster;
use semel_testkit::database::{TempDatabase, connect};

#[tokio::test]
async fn a_killed_cluster_restarts_on_its_port_with_what_was_committed() {
    let mut cluster = Cluster::temporary().unwrap();
    let url = cluster.url();
    let client = connect(&url).await;
    client.batch_execute("CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)").await.unwrap();

    let open = connect(&url).await;
    open.batch_execute("BEGIN; INSERT INTO kept VALUES (2)").await.unwrap();
    cluster.kill().unwrap();
    assert!(tokio_postgres::connect(&url, tokio_postgres::NoTls).await.is_err());
    assert!(open.batch_execute("COMMIT").await.is_err());

    cluster.restart().unwrap();
    assert_eq!(cluster.url(), url);
    let kept: i64 = connect(&url).await.query_one("SELECT sum(n) FROM kept", &[]).await.unwrap().get(0);
    assert_eq!(kept, 1);
}

#[tokio::test]
async fn the_cluster_is_durable_and_private() {
    let cluster = Cluster::temporary().unwrap();
    let client = connect(&cluster.url()).await;
    for (setting, wanted) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("max_connections", "200"),
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
    ] {
        let value: String = client.query_one(&format!("SHOW {setting}"), &[]).await.unwrap().get(0);
        assert_eq!(value, wanted, "{setting}");
    }
}

#[tokio::test]
async fn a_dropped_database_is_gone_even_with_a_session_open() {
    let database = TempDatabase::create().await;
    let session = database.connect().await;
    session.batch_execute("CREATE TABLE t (n int)").await.unwrap();
    let name = database.name().to_owned();
    drop(database);
    let server = connect(&semel_testkit::database::server_url()).await;
    let left: i64 =
        server.query_one("SELECT count(*) FROM pg_database WHERE datname = $1", &[&name]).await.unwrap().get(0);
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_failed_test_keeps_its_database() {
    let (send, receive) = std::sync::mpsc::channel();
    let failed = tokio::spawn(async move {
        let database = TempDatabase::create().await;
        send.send(database.url()).unwrap();
        panic!("this failure is on purpose");
    });
    assert!(failed.await.unwrap_err().is_panic());
    let url = receive.recv().unwrap();
    connect(&url).await.batch_execute("SELECT 1").await.unwrap();

    let name = url.rsplit('/').next().unwrap();
    let server = connect(&semel_testkit::database::server_url()).await;
    server.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
}
