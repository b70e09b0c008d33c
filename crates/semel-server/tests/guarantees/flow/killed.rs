//! The sandbox is killed at every point of the order flow, and what it left is finished without any client.

use std::time::{Duration, Instant};

use semel::failpoint;
use semel::flow::FlowState;
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::control::Control;
use semel_testkit::counts::rounds;
use semel_testkit::poll::PATIENCE;
use tokio::task::JoinSet;

use super::stage::{Flowing, LEASE, Stage};

/// The points that every order passes, and that its mail passes as well.
const OF_CALLS: [&str; 5] = [
    failpoint::FLOW_INTENDED,
    failpoint::FLOW_CALLED,
    failpoint::FLOW_SETTLED,
    failpoint::FLOW_FINISHING,
    failpoint::FLOW_FINISHED,
];

/// What a busy machine may add to two leases: the start of a process, and the work itself.
const ALLOWANCE: Duration = Duration::from_secs(10);

/// Where a process is killed.
#[derive(Debug, Clone, Copy)]
struct Kill {
    point: &'static str,
    /// How often the point is passed before.
    passed: u32,
    /// How many clients send an order at the same time.
    orders: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_every_point_every_order_on_postgres_is_finished_once_without_its_client() {
    // A commit whose acknowledgement is not read: the reservation's, and the booking's.
    let sent = [0, 1].map(|passed| Kill { point: failpoint::COMMIT_SENT, passed, orders: 1 });
    killed_at_every_point::<Postgres>(&sent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_every_point_every_order_on_sqlite_is_finished_once_without_its_client() {
    killed_at_every_point::<Sqlite>(&[]).await;
}

async fn killed_at_every_point<S: Flowing>(more: &[Kill]) {
    let stage = Stage::<S>::set(&[], &[]).await;
    let passed_by_all = failpoint::FLOW.iter().filter(|point| **point != failpoint::FLOW_UNWINDING);
    let orders = passed_by_all.map(|point| Kill { point, passed: 0, orders: 3 });
    // The only order has passed it, so it is the mail that comes to it.
    let mails = OF_CALLS.iter().map(|point| Kill { point, passed: 1, orders: 1 });
    let kills: Vec<Kill> = orders.chain(mails).chain(more.iter().copied()).collect();
    let mut finished = 0;
    for round in 0..rounds(1, 20) {
        for kill in &kills {
            finished = killed_at(&stage, *kill, round, finished).await;
        }
    }
}

/// Places orders, kills the sandbox where they have come to, and returns how many orders are finished ever since.
async fn killed_at<S: Flowing>(stage: &Stage<S>, kill: Kill, round: u32, finished: usize) -> usize {
    let Kill { point, passed, orders } = kill;
    let when = format!("killed at {point} after {passed}");
    let keys: Vec<String> = (0..orders).map(|order| format!("{point}-{passed}-{round}-{order}")).collect();
    let mut control = Control::listen().await;
    let mut doomed = stage.start_armed(point, passed, &control).await;
    let mut clients = JoinSet::new();
    for key in &keys {
        let placing = doomed.placing(key);
        clients.spawn(async move { placing.once().await });
    }
    let parked = control.reached(point, PATIENCE).await;
    doomed.service.kill9().await;
    let killed = Instant::now();
    drop(parked);
    // Whoever was answered before was answered well; the others are gone, and nobody asks again.
    for answer in clients.join_all().await.into_iter().flatten() {
        assert_eq!((answer.status, answer.replayed), (201, false), "{when}: {answer:?}");
    }

    let mut successor = stage.start().await;
    let orders = stage.all_finished().await;
    let took = killed.elapsed();
    assert!(took < 2 * LEASE + ALLOWANCE, "{when}: finished after {took:?}");
    let begun: Vec<&String> = keys.iter().filter(|key| orders.contains_key(*key)).collect();
    assert!(!begun.is_empty(), "{when}: an order that came to the point has begun");
    let mut finished = finished + begun.len();
    stage.once_each(&successor, finished, &when).await;

    // Only now do the clients come back.
    for key in &keys {
        let answer = successor.placing(key).until_answered().await;
        assert_eq!((answer.status, answer.replayed), (201, begun.contains(&key)), "{when}: {answer:?}");
    }
    finished += keys.len() - begun.len();
    stage.once_each(&successor, finished, &when).await;
    successor.service.terminate().await;
    finished
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_again_and_again_on_the_way_orders_on_postgres_are_finished_once() {
    killed_on_the_way::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_again_and_again_on_the_way_orders_on_sqlite_are_finished_once() {
    killed_on_the_way::<Sqlite>().await;
}

/// Whoever takes over is killed at the next point, until there is none left.
async fn killed_on_the_way<S: Flowing>() {
    let stage = Stage::<S>::set(&[], &[]).await;
    for round in 1..=rounds(1, 10) {
        let keys: Vec<String> = (0..2).map(|order| format!("{round}-{order}")).collect();
        for key in &keys {
            stage.kill_at(failpoint::FLOW_BEGUN, key).await;
        }
        for point in failpoint::FLOW {
            if ![failpoint::FLOW_BEGUN, failpoint::FLOW_UNWINDING].contains(point) {
                stage.kill_on_the_way(point).await;
            }
        }
        let mut last = stage.start().await;
        stage.until_all(&keys, FlowState::Completed).await;
        for key in &keys {
            let answer = last.placing(key).until_answered().await;
            assert_eq!((answer.status, answer.replayed), (201, true), "{answer:?}");
        }
        let orders = usize::try_from(round).unwrap() * keys.len();
        stage.once_each(&last, orders, "killed on the way").await;
        last.service.terminate().await;
    }
}
