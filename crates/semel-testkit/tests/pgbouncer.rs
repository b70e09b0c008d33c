//! The private pooler is in transaction mode, where a statement prepared by name does not survive; it is looked after.
#![allow(clippy::unwrap_used, missing_docs)]

use semel_testkit::database::{TempDatabase, connect};
use semel_testkit::pgbouncer::Bouncer;
use semel_testkit::poll::until;
use tokio_postgres::NoTls;

#[tokio::test]
async fn the_pooler_gives_out_server_sessions_per_transaction() {
    let database = TempDatabase::create().await;
    let bouncer = Bouncer::start(&database.url()).unwrap();
    let one = connect(&bouncer.url_for(database.name())).await;
    let other = connect(&database.url_on_port(bouncer.port())).await;

    // While one client is inside a transaction its session is its own; between transactions both share one.
    one.batch_execute("BEGIN").await.unwrap();
    let held = session_of(&one).await;
    let second = session_of(&other).await;
    assert_ne!(held, second);
    one.batch_execute("COMMIT").await.unwrap();
    assert!([held, second].contains(&session_of(&other).await));

    let mode = connect(&bouncer.url_for("pgbouncer")).await.simple_query("SHOW CONFIG").await.unwrap();
    let mode = mode.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) if row.get("key") == Some("pool_mode") => row.get("value"),
        _ => None,
    });
    assert_eq!(mode, Some("transaction"));
}

#[tokio::test]
async fn a_pooler_that_ends_by_itself_is_started_again() {
    let database = TempDatabase::create().await;
    let bouncer = Bouncer::start(&database.url()).unwrap();
    let client = connect(&bouncer.url_for(database.name())).await;
    bouncer.kill().unwrap();
    until("its clients are cut off", async || client.is_closed()).await;
    let url = bouncer.url_for(database.name());
    until("it is back", async || match tokio_postgres::connect(&url, NoTls).await {
        Ok((client, connection)) => {
            tokio::spawn(connection);
            client.simple_query("SELECT 1").await.is_ok()
        }
        Err(_) => false,
    })
    .await;
}

async fn session_of(client: &tokio_postgres::Client) -> String {
    let messages = client.simple_query("SELECT pg_backend_pid()").await.unwrap();
    let row = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    row.unwrap().to_owned()
}
