//! A relay is stopped, or cut off from its database, for longer than its lease, and comes back.

use semel::failpoint::{RELAY_NOTING, RELAY_PUBLISHED, RELAY_TAKEN_OVER};
use semel::outbox::{Cursor, LANES};
use semel::sink::Lane;
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::collector::{Collector, Receiver};
use semel_testkit::control::Control;
use semel_testkit::counts::rounds;
use semel_testkit::poll::{PATIENCE, until};
use semel_testkit::process::Service;
use semel_testkit::proxy::FaultProxy;

use super::load::Load;
use super::process::{Plan, metric};
use super::stage::{Counting, Stage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_stopped_past_its_lease_changes_nothing_on_postgres() {
    stopped_past_its_lease::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_stopped_past_its_lease_changes_nothing_on_sqlite() {
    stopped_past_its_lease::<Sqlite>().await;
}

async fn stopped_past_its_lease<S: Counting>() {
    let stage = Stage::<S>::set(Collector::Http(Receiver::start().await)).await;
    for round in 0..rounds(2, 20) {
        let mut control = Control::listen().await;
        let mut stopped = keeping(&stage).armed(RELAY_PUBLISHED, round % 7, &control).start().await;
        let mut load = Load::start(&stage.writer);
        let parked = control.reached(RELAY_PUBLISHED, PATIENCE).await;
        stopped.stop_while(|| S::is_free(&stage.home)).await;

        let mut other = keeping(&stage).start().await;
        stage.divided(&[LANES.into()]).await;
        let reached = load.written();
        load.reaches(reached + 20).await;
        load.end().await;
        let before = stage.checked("taken over").await;
        assert!(before.duplicates > 0, "what the stopped one had published and not noted came again");
        let positions = positions(&stage).await;

        stopped.cont();
        parked.release().await;
        refused(&stopped).await;
        // What it had in hand is gone with its membership; the positions are the other's.
        assert!(positions_hold(&stage, &positions).await);
        stage.checked("back again").await;
        assert!(stopped.terminate().await.success());
        assert!(other.terminate().await.success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_stopped_before_it_notes_is_refused_by_postgres() {
    stopped_before_it_notes::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_stopped_before_it_notes_is_refused_by_sqlite() {
    stopped_before_it_notes::<Sqlite>().await;
}

/// The late positions are ahead of what is stored, and their write does reach the store: whoever took the lanes has not
/// moved yet. Nothing but the fence keeps them out.
async fn stopped_before_it_notes<S: Counting>() {
    let stage = Stage::<S>::set(Collector::Http(Receiver::start().await)).await;
    for round in 0..rounds(2, 20) {
        let mut control = Control::listen().await;
        let mut stopped = keeping(&stage).armed(RELAY_NOTING, 1 + round % 5, &control).start().await;
        let mut load = Load::start(&stage.writer);
        let noting = control.reached(RELAY_NOTING, PATIENCE).await;
        stopped.stop_while(|| S::is_free(&stage.home)).await;
        let mut other = keeping(&stage).armed(RELAY_TAKEN_OVER, 0, &control).start().await;
        let taking = control.reached(RELAY_TAKEN_OVER, PATIENCE).await;
        let before = positions(&stage).await;

        stopped.cont();
        noting.release().await;
        until("the late write has its answer, and the relay is out", async || {
            let output = stopped.output();
            let answered = output.contains("the store has refused the relay's positions");
            answered && output.contains("the relay has lost its lanes and joins anew")
        })
        .await;
        assert_eq!(positions(&stage).await, before, "a position was written by a relay that has no lanes");

        taking.release().await;
        let reached = load.written();
        load.reaches(reached + 20).await;
        load.end().await;
        let tally = stage.checked("refused").await;
        assert!(tally.duplicates > 0, "what the stopped one had published and not noted came again");
        assert!(stopped.terminate().await.success());
        assert!(other.terminate().await.success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_that_was_on_its_way_when_the_lease_ran_out_is_refused() {
    let stage = Stage::<Postgres>::set(Collector::Http(Receiver::start().await)).await;
    let proxy = FaultProxy::start(stage.home.server_address()).unwrap();
    let mut control = Control::listen().await;
    let plan = keeping(&stage).on_database(stage.home.url_on_port(proxy.port()));
    let mut cut_off = plan.armed(RELAY_PUBLISHED, 3, &control).start().await;
    let mut load = Load::start(&stage.writer);
    let parked = control.reached(RELAY_PUBLISHED, PATIENCE).await;
    // From here on it publishes, and what it writes to the database is under way and does not arrive.
    proxy.stall(true);
    parked.release().await;

    let mut other = keeping(&stage).start().await;
    stage.divided(&[LANES.into()]).await;
    let reached = load.written();
    load.reaches(reached + 20).await;
    load.end().await;
    stage.checked("taken over").await;
    let positions = positions(&stage).await;

    proxy.stall(false);
    refused(&cut_off).await;
    assert!(positions_hold(&stage, &positions).await);
    stage.checked("back again").await;
    assert!(cut_off.terminate().await.success());
    assert!(other.terminate().await.success());
}

/// A relay that keeps what it has published: a lane of which nothing is left has no history to read its position from.
fn keeping<S: Counting>(stage: &Stage<S>) -> Plan {
    let mut plan = stage.plan();
    plan.keep_ms = 3_600_000;
    plan
}

/// Waits until the relay has found out that its lanes are another's, and has joined anew.
async fn refused(relay: &Service) {
    until("the late relay is out", async || {
        let fenced = metric(relay, "semel_fenced_writes_total").await > 0.0;
        let lost = relay.output().contains("the relay has lost its lanes and joins anew");
        (fenced || relay.output().contains("Lapsed")) && lost
    })
    .await;
}

/// Where each lane stands.
async fn positions<S: Counting>(stage: &Stage<S>) -> Vec<(Lane, Cursor)> {
    let mut lanes: Vec<_> =
        stage.store.history().await.unwrap().into_iter().map(|lane| (lane.from.lane, lane.upto)).collect();
    lanes.sort();
    lanes
}

/// Whether no lane stands before where it stood.
async fn positions_hold<S: Counting>(stage: &Stage<S>, before: &[(Lane, Cursor)]) -> bool {
    let now = positions(stage).await;
    assert_eq!(before.len(), now.len(), "the history of a lane is gone: {before:?}, {now:?}");
    before.iter().zip(&now).all(|((lane, before), (same, now))| lane == same && now >= before)
}
