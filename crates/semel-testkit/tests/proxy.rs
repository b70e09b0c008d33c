//! The proxy breaks what it is told to break, and nothing else.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use semel_testkit::database::{TempDatabase, connect};
use semel_testkit::proxy::{Fault, FaultProxy};
use tokio_postgres::Client;

async fn table() -> (TempDatabase, FaultProxy, Client) {
    let database = TempDatabase::create().await;
    let proxy = FaultProxy::start(database.server_address()).unwrap();
    let direct = database.connect().await;
    direct.batch_execute("CREATE TABLE t (n int)").await.unwrap();
    (database, proxy, direct)
}

async fn rows(direct: &Client) -> i64 {
    direct.query_one("SELECT count(*) FROM t", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn an_unarmed_proxy_changes_nothing() {
    let (database, proxy, direct) = table().await;
    let client = connect(&database.url_on_port(proxy.port())).await;
    for n in 0..20_i32 {
        client.batch_execute("BEGIN").await.unwrap();
        client.execute("INSERT INTO t VALUES ($1)", &[&n]).await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
    }
    let big: String = client.query_one("SELECT repeat('x', 1000000)", &[]).await.unwrap().get(0);
    assert_eq!((big.len(), rows(&direct).await, proxy.cuts()), (1_000_000, 20, 0));
}

#[tokio::test]
async fn a_withheld_acknowledgement_leaves_the_effect_committed() {
    let (database, proxy, direct) = table().await;
    for round in 1..=10 {
        let client = connect(&database.url_on_port(proxy.port())).await;
        client.batch_execute("BEGIN; INSERT INTO t VALUES (1)").await.unwrap();
        proxy.arm(Fault::DropCommitAcknowledgement);
        assert!(client.batch_execute("COMMIT").await.is_err());
        assert_eq!((rows(&direct).await, proxy.cuts(), proxy.armed()), (round, u64::try_from(round).unwrap(), 0));
    }
}

#[tokio::test]
async fn a_session_cut_after_commit_never_sees_the_answer_and_the_server_reads_the_commit() {
    let (database, proxy, direct) = table().await;
    let client = connect(&database.url_on_port(proxy.port())).await;
    let session: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    proxy.arm(Fault::CutAfterCommitForwarded);
    // Only the COMMIT strikes: what goes before it in the same session is answered.
    client.batch_execute("BEGIN").await.unwrap();
    client.execute("INSERT INTO t VALUES ($1)", &[&1_i32]).await.unwrap();
    assert_eq!(proxy.cuts(), 0);
    assert!(client.batch_execute("COMMIT").await.is_err());
    assert_eq!(proxy.cuts(), 1);
    let ended = async {
        let running = "SELECT 1 FROM pg_stat_activity WHERE pid = $1";
        while direct.query_opt(running, &[&session]).await.unwrap().is_some() {}
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
    assert_eq!(rows(&direct).await, 1);
}

#[tokio::test]
async fn pipelined_statements_before_a_withheld_commit_are_answered() {
    let (database, proxy, direct) = table().await;
    let client = connect(&database.url_on_port(proxy.port())).await;
    client.batch_execute("BEGIN").await.unwrap();
    let insert = client.prepare("INSERT INTO t VALUES (1)").await.unwrap();
    proxy.arm(Fault::DropCommitAcknowledgement);
    let (inserted, committed) = tokio::join!(client.execute(&insert, &[]), client.batch_execute("COMMIT"));
    assert_eq!(inserted.unwrap(), 1);
    assert!(committed.is_err());
    assert_eq!(rows(&direct).await, 1);
}

#[tokio::test]
async fn a_commit_refused_by_a_deferred_constraint_is_an_answer_too() {
    let (database, proxy, direct) = table().await;
    direct.batch_execute("ALTER TABLE t ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED").await.unwrap();
    let client = connect(&database.url_on_port(proxy.port())).await;
    client.batch_execute("BEGIN; INSERT INTO t VALUES (1), (1)").await.unwrap();
    proxy.arm(Fault::DropCommitAcknowledgement);
    let refused = client.batch_execute("COMMIT").await.unwrap_err();
    assert!(refused.as_db_error().is_none(), "the server's own word was withheld: {refused}");
    assert_eq!((rows(&direct).await, proxy.cuts()), (0, 1));
}

#[tokio::test]
async fn a_refusing_proxy_cuts_old_sessions_and_turns_new_ones_away_until_told_otherwise() {
    let (database, proxy, _direct) = table().await;
    let url = database.url_on_port(proxy.port());
    let client = connect(&url).await;
    proxy.refuse(true);
    assert!(client.batch_execute("SELECT 1").await.is_err());
    assert!(tokio_postgres::connect(&url, tokio_postgres::NoTls).await.is_err());
    proxy.refuse(false);
    connect(&url).await.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_stalled_proxy_holds_everything_back_and_loses_nothing() {
    let (database, proxy, direct) = table().await;
    let client = connect(&database.url_on_port(proxy.port())).await;
    proxy.stall(true);
    let insert = client.batch_execute("INSERT INTO t VALUES (1)");
    tokio::pin!(insert);
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut insert).await.is_err());
    assert_eq!(rows(&direct).await, 0);
    proxy.stall(false);
    insert.await.unwrap();
    assert_eq!(rows(&direct).await, 1);
}

#[tokio::test]
async fn an_opaque_proxy_forwards_any_protocol() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = FaultProxy::start_opaque(listener.local_addr().unwrap()).unwrap();
    let mut client = tokio::net::TcpStream::connect(proxy.address()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    client.write_all(b"Q\0\0\0\x0bCOMMIT\0").await.unwrap();
    let mut seen = [0; 12];
    server.read_exact(&mut seen).await.unwrap();
    server.write_all(b"ok").await.unwrap();
    let mut answer = [0; 2];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"ok");
    proxy.cut_all();
    assert!(!matches!(client.read(&mut answer).await, Ok(n) if n > 0));
}
