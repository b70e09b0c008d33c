//! The private pooler is in transaction mode, where a statement prepared by name does not survive.
#![allow(clippy::unwrap_used, missing_docs)]

use semel_testkit::database::{TempDatabase, connect};
use semel_testkit::pgbouncer::Bouncer;

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

async fn session_of(client: &tokio_postgres::Client) -> String {
    let messages = client.simple_query("SELECT pg_backend_pid()").await.unwrap();
    let row = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    row.unwrap().to_owned()
}
