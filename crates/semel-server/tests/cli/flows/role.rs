//! The role `completer` of `semel run`.

use std::time::Instant;

use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::process::Service;

use super::stage::{self, Flows, PATIENCE};
use crate::consumer::{execute, metric};
use crate::harness::{Home, SEMEL, on_both_stores};

on_both_stores!(flows_that_nobody_takes_are_counted_and_named_until_somebody_does);

async fn flows_that_nobody_takes_are_counted_and_named_until_somebody_does(home: Home) {
    let prepared = Flows::prepare(&home).await;
    let an_hour_ago = match &home {
        Home::Sqlite(_) => "UPDATE semel_keys SET lease_expires_at = lease_expires_at - 3600000 WHERE key = 'due'",
        Home::Postgres(_) => {
            "UPDATE semel.keys SET lease_expires_at = lease_expires_at - interval '1 h' WHERE key = 'due'"
        }
    };
    execute(&home, an_hour_ago).await;
    let url = home.url();
    let arguments = ["run", "--roles", "completer", "--metrics-listen", "127.0.0.1:0", "--database-url", &url];
    let mut watcher = Service::spawn(SEMEL, &arguments, &[]).await;
    metric(&watcher, "semel_intents_unknown 3").await;
    metric(&watcher, "semel_flows_held 4").await;
    metric(&watcher, r#"semel_flows_due{flow="mail"} 1"#).await;
    let named = written(&watcher, "nobody takes them").await;
    assert!(named.contains(r#"flow="mail" count=1 oldest=1h"#), "{named}");

    match &home {
        Home::Sqlite(file) => {
            let store = Sqlite::open(file.path(), semel_sqlite::Options::default()).await.unwrap();
            stage::take(&store, "mail", &prepared.due).await;
        }
        Home::Postgres(database) => {
            let store = Postgres::connect(&database.url(), semel_postgres::Options::default()).await.unwrap();
            stage::take(&store, "mail", &prepared.due).await;
        }
    }
    metric(&watcher, r#"semel_flows_due{flow="mail"} 0"#).await;
    let taken = written(&watcher, "do not wait any more").await;
    assert!(taken.contains(r#"flow="mail""#), "{taken}");
    // It only looks.
    metric(&watcher, "semel_intents_unknown 3").await;
    assert!(watcher.terminate().await.success());
}

/// Waits for the line of the log that has this text.
async fn written(service: &Service, text: &str) -> String {
    let gives_up = Instant::now() + PATIENCE;
    loop {
        let output = service.output();
        if let Some(line) = output.lines().find(|line| line.contains(text)) {
            return line.to_owned();
        }
        assert!(Instant::now() < gives_up, "{text:?} was not written:\n{output}");
        tokio::task::yield_now().await;
    }
}
