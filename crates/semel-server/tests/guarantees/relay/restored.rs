//! A database is dumped in mid-backlog and restored into another cluster.

use std::collections::HashMap;
use std::process::Command;

use semel::failpoint::RELAY_PUBLISHED;
use semel::outbox::Outbox;
use semel_postgres::Postgres;
use semel_testkit::cluster::{Cluster, find_binaries};
use semel_testkit::collector::{Collector, Receiver, check};
use semel_testkit::control::Control;
use semel_testkit::database::TempDatabase;
use semel_testkit::poll::{PATIENCE, until};

use super::load::Load;
use super::stage::{Stage, Writer, first_occurrences};
use crate::world::SEMEL;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_backlog_is_published_once_rebased_and_not_before() {
    let stage = Stage::<Postgres>::set(Collector::Http(Receiver::start().await)).await;
    let mut control = Control::listen().await;
    let mut relay = stage.plan().armed(RELAY_PUBLISHED, 20, &control).start().await;
    let mut load = Load::start(&stage.writer);
    control.reached(RELAY_PUBLISHED, PATIENCE).await;
    relay.kill9().await;
    let reached = load.written();
    load.reaches(reached + 200).await;
    load.end().await;

    let cluster = Cluster::temporary().unwrap();
    let restored = TempDatabase::create_on(&cluster.url()).await;
    restore(&stage.url, &restored.url());
    let store = Postgres::open(&restored.url(), semel_postgres::Options::default()).unwrap();
    let backlog = store.backlog().await.unwrap().events;
    assert!(backlog >= 200, "{backlog}");
    let published = stage.collector.arrived().await.len();

    // Business goes on before anybody has looked.
    let mut writer = Writer::new(store.clone(), &stage.collector);
    writer.committed.clone_from(&stage.writer.committed);
    let mut load = Load::start(&writer);
    load.reaches(100).await;

    let run = ["run", "--roles", "relay", "--sink", &stage.collector.sink_url(), "--database-url", &restored.url()];
    let refused = Command::new(SEMEL).args(run).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("semel outbox rebase"), "{refused:?}");
    assert_eq!(stage.collector.arrived().await.len(), published, "nothing was sent");

    let rebase =
        ["outbox", "rebase", "--yes", "--actor", "tester", "--reason", "restored", "--database-url", &restored.url()];
    let mut rebased = None;
    // The dump holds the relay that was killed, whose lease has to run out first.
    until("the outbox is rebased", async || {
        let output = Command::new(SEMEL).args(rebase).output().unwrap();
        let done = output.status.success();
        rebased = Some(output);
        done || !String::from_utf8_lossy(&rebased.as_ref().unwrap().stderr).contains("lease")
    })
    .await;
    assert!(rebased.as_ref().unwrap().status.success(), "{rebased:?}");

    let mut relay = stage.plan().on_database(restored.url()).start().await;
    let reached = load.written();
    load.reaches(reached + 50).await;
    load.end().await;
    until("everything is published", async || store.backlog().await.unwrap().events == 0).await;
    let arrived = stage.collector.arrived().await;
    // What had been published and not noted comes again, with its id and another incarnation's sequence.
    let mut events = HashMap::new();
    for arrival in &arrived {
        let event = (arrival.ordering_key.as_str(), arrival.number());
        assert_eq!(*events.entry(arrival.id.as_str()).or_insert(event), event, "ids are stable");
    }
    check(&writer.committed(), &first_occurrences(&arrived)).unwrap();
    let incarnations: std::collections::BTreeSet<&str> = arrived.iter().map(|it| it.incarnation.as_str()).collect();
    assert_eq!(incarnations.len(), 2);
    assert!(relay.terminate().await.success());
}

/// Dumps one database and loads the dump into another.
fn restore(from: &str, to: &str) {
    let binaries = find_binaries().unwrap();
    let program = |name: &str| if binaries.join(name).exists() { binaries.join(name) } else { name.into() };
    let dump = Command::new(program("pg_dump")).args(["--no-owner", from]).output().unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), dump.stdout).unwrap();
    let mut load = Command::new(program("psql"));
    load.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", to, "-f"]).arg(file.path());
    let loaded = load.output().unwrap();
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
}
