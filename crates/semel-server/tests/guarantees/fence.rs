//! A leased worker is stopped for longer than its lease, or killed between its steps.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use semel::failpoint::BEFORE_COMPLETION;
use semel_testkit::control::Control;
use semel_testkit::process::Service;

use crate::world::{Database, PATIENCE, client};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_past_its_lease_is_refused_by_the_fence_on_postgres() {
    stopped_past_its_lease(&Database::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_past_its_lease_is_refused_by_the_fence_on_sqlite() {
    stopped_past_its_lease(&Database::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_between_its_steps_is_taken_over_on_postgres() {
    killed_between_its_steps(&Database::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_between_its_steps_is_taken_over_on_sqlite() {
    killed_between_its_steps(&Database::sqlite()).await;
}

async fn stopped_past_its_lease(database: &Database) {
    let mut control = Control::listen().await;
    let stopped = worker(database, &control).await;
    let other = Service::spawn(leased(), &[&database.url()], &[]).await;
    let url = stopped.url("/jobs");
    let late = tokio::spawn(async move { job(&url).await });
    let parked = control.reached(BEFORE_COMPLETION, PATIENCE).await;
    stopped.stop().await;

    let (status, replayed) = until_answered(&other).await;
    assert_eq!((status, replayed), (200, false), "the work is taken over once the lease is over");

    stopped.cont();
    parked.release().await;
    let (status, _) = late.await.unwrap();
    assert_eq!(status, 409, "the late worker is refused");
    assert_eq!(until_answered(&other).await, (200, true));
    assert_eq!(steps(database).await, ["reserved", "delivered"], "no step ran twice");
}

async fn killed_between_its_steps(database: &Database) {
    let mut control = Control::listen().await;
    let mut doomed = worker(database, &control).await;
    let url = doomed.url("/jobs");
    let unanswered = tokio::spawn(async move { client().post(url).header("Idempotency-Key", "k").send().await });
    control.reached(BEFORE_COMPLETION, PATIENCE).await;
    doomed.kill9().await;
    assert!(unanswered.await.unwrap().is_err());

    let successor = Service::spawn(leased(), &[&database.url()], &[]).await;
    assert_eq!(until_answered(&successor).await, (200, false));
    assert_eq!(steps(database).await, ["reserved", "delivered"], "no step ran twice");
}

async fn worker(database: &Database, control: &Control) -> Service {
    let (armed, address) = (format!("{BEFORE_COMPLETION}=1*return"), control.address().to_string());
    let environment = [("FAILPOINTS", armed.as_str()), ("SEMEL_FAILPOINT_CONTROL", &address)];
    Service::spawn(leased(), &[&database.url()], &environment).await
}

async fn job(url: &str) -> (u16, bool) {
    let response = client().post(url).header("Idempotency-Key", "k").send().await.unwrap();
    (response.status().as_u16(), response.headers().contains_key("idempotent-replayed"))
}

async fn until_answered(service: &Service) -> (u16, bool) {
    let gives_up = Instant::now() + PATIENCE;
    loop {
        let answer = job(&service.url("/jobs")).await;
        if answer.0 != 409 {
            return answer;
        }
        assert!(Instant::now() < gives_up, "the lease never ended");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn steps(database: &Database) -> Vec<String> {
    match database {
        Database::Postgres(database) => {
            let rows = database.connect().await.query("SELECT step FROM jobs", &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        }
        Database::Sqlite(file) => {
            let connection = semel_sqlite::rusqlite::Connection::open(file.path()).unwrap();
            let mut steps = connection.prepare("SELECT step FROM jobs").unwrap();
            steps.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
        }
    }
}

/// The example `leased`, which a run of all tests has built already.
fn leased() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--package", "semel-server", "--example", "leased", "--features", "failpoints"]);
    build.arg("--target-dir").arg(profile.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "{build:?} failed");
    profile.join("examples/leased")
}
