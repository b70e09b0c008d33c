//! What the outbox does on PostgreSQL alone: transaction ids, snapshots, locks, slots, and other clusters.
#![allow(clippy::unwrap_used, missing_docs)]

mod emitting;
mod overlapping;
mod refusing;
mod restoring;
mod rotating;
mod ticking;

use std::time::Duration;

use semel::operator::Audit;
use semel::outbox::{Cursor, LaneState, PageLimit, Written};
use semel::sink::Lane;
use semel::{Event, Join, Outbox};
use semel_postgres::{Options, Postgres};
use semel_testkit::database::TempDatabase;
use tokio_postgres::{Client, Transaction};

const ALL: PageLimit = PageLimit { events: 1_000, bytes: 64 << 20 };
const LEASE: Duration = Duration::from_secs(60);

struct Shop {
    database: TempDatabase,
    store: Postgres,
}

impl Shop {
    async fn open() -> Shop {
        Shop::on(TempDatabase::create().await).await
    }

    async fn on(database: TempDatabase) -> Shop {
        let store = Postgres::open(&database.url(), Options::default()).unwrap();
        store.migrate().await.unwrap();
        Shop { database, store }
    }

    /// Emits one event per key, in a transaction of its own.
    async fn emit(&self, keys: &[&str]) {
        let mut client = self.database.connect().await;
        let mut transaction = client.transaction().await.unwrap();
        emit(&mut transaction, keys).await;
        transaction.commit().await.unwrap();
    }

    /// Everything after a cursor, which moves along.
    async fn read(&self, after: &mut Cursor, limit: PageLimit) -> Vec<Written> {
        let (mut found, lanes) = (Vec::new(), Lane::all().collect::<Vec<_>>());
        while let Some(page) = self.store.page(*after, &lanes, limit).await.unwrap() {
            assert!(page.upto > *after, "a page always reaches further");
            *after = page.upto;
            found.extend(page.events);
        }
        found
    }

    /// Publishes everything there is, as a relay of its own would, and returns the keys.
    async fn publish(&self) -> Vec<String> {
        let relay = self.store.join_relays("test", LEASE).await.unwrap();
        let lanes = self.store.take_lanes(relay.id, 64).await.unwrap();
        assert_eq!(lanes.len(), 64, "nobody else relays");
        let mut cursor = lanes.iter().map(|lane| lane.cursor).min().unwrap();
        let found = self.read(&mut cursor, ALL).await;
        let lanes: Vec<LaneState> = lanes.into_iter().map(|lane| LaneState { cursor, ..lane }).collect();
        self.store.leave_lanes(relay.id, &lanes).await.unwrap();
        self.store.leave_relays(relay.id).await.unwrap();
        keys(&found)
    }

    async fn number(&self, sql: &str) -> i64 {
        self.database.connect().await.query_one(sql, &[]).await.unwrap().get(0)
    }
}

fn event(key: &str) -> Event {
    Event::new("topic", key, "test.happened", &key).unwrap()
}

async fn emit(transaction: &mut Transaction<'_>, keys: &[&str]) {
    let events: Vec<Event> = keys.iter().map(|key| event(key)).collect();
    Join::<Postgres>::emit(transaction, &events).await.unwrap();
}

fn keys(events: &[Written]) -> Vec<String> {
    events.iter().map(|written| written.event.ordering_key.clone()).collect()
}

fn audit() -> Audit {
    Audit { actor: "tester".to_owned(), reason: "because".to_owned() }
}

/// Runs one statement and returns its only value as text.
async fn text(client: &Client, sql: &str) -> String {
    client.query_one(sql, &[]).await.unwrap().get(0)
}
