//! Every order is sent by several clients at once, again and again, while the provider fails at random.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::counts::rounds;
use serde_json::json;
use tokio::task::JoinSet;

use super::shop::{Placing, Shop};
use super::stage::{Flowing, Stage};

/// How many clients send the same order.
const CLIENTS: usize = 4;

/// How many orders are under way at once.
const AT_ONCE: usize = 12;

const SEED: u64 = 7;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_often_an_order_on_postgres_is_sent_it_is_charged_once() {
    sent_again_and_again::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_often_an_order_on_sqlite_is_sent_it_is_charged_once() {
    sent_again_and_again::<Sqlite>().await;
}

async fn sent_again_and_again<S: Flowing>() {
    // Nobody dies here, and a busy machine is not to look like it. Who follows the books is another test's concern.
    let settings = [("SEMEL_FLOW_LEASE", "30s"), ("SEMEL_SANDBOX_CONSUME", "false")];
    let stage = Stage::<S>::set(&[], &settings).await;
    let faults = json!({ "cut_after": 4, "error_after": 4, "cut_before": 2, "slow": 5, "refuse": 4 });
    stage.outside.fail_at_random("charge", SEED, &faults).await;
    let shops = Arc::new([stage.start().await, stage.start().await]);
    let orders = rounds(100, 5_000);
    let next = Arc::new(AtomicU32::new(0));
    let mut lines = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (shops, next) = (Arc::clone(&shops), Arc::clone(&next));
        lines.spawn(async move {
            loop {
                let order = next.fetch_add(1, Ordering::Relaxed);
                if order >= orders {
                    break;
                }
                sent_by_all(&*shops, &format!("order-{order}")).await;
            }
        });
    }
    lines.join_all().await;
    let orders = usize::try_from(orders).unwrap();
    stage.charged_once(&shops[0], orders, "sent again and again").await;
    let received = stage.outside.received("/charges").await;
    assert!(received > orders as u64, "no charge was sent a second time, so the provider did not fail");
    assert_eq!(stage.outside.keys().await, 2 * orders, "one key for each charge and each mail");
}

/// Sends an order from all clients at once, each until it is answered; all of them get the same.
async fn sent_by_all(shops: &[Shop], key: &str) {
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let placing: Placing = shops[client % shops.len()].placing(key).unreferred();
        clients.spawn(async move { placing.until_answered().await });
    }
    let answers = clients.join_all().await;
    let first = &answers[0];
    assert_eq!(first.status, 201, "{key}: {first:?}");
    assert!(answers.iter().all(|answer| (answer.status, &answer.body) == (201, &first.body)), "{answers:?}");
    assert!(answers.iter().filter(|answer| !answer.replayed).count() <= 1, "{answers:?}");
}
