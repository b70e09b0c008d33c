//! The processes of the demo, the file that they share, and what stands between them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use semel_sqlite::{Options, Sqlite};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;
use uuid::Uuid;

use super::client::{Note, Payments};
use super::count::Figures;
use super::forwarder::Forwarder;
use super::process::{Process, Program};
use crate::shutdown::Shutdown;

/// How often a file is looked at that something is awaited in, and for how long nothing may change there.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(20);

/// How many processes were killed.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Kills {
    pub server: u32,
    pub relay: u32,
    pub consumer: u32,
}

/// A payments service, a relay and a consumer, each in a process of its own, on one SQLite file.
#[derive(Debug)]
pub(super) struct Stage {
    server: Option<Process>,
    relay: Option<Process>,
    consumer: Option<Process>,
    program: Program,
    secret: String,
    /// Where the server is, for clients: it moves when it is started again.
    address: watch::Sender<SocketAddr>,
    pub forwarder: Forwarder,
    pub kills: Kills,
    folder: TempDir,
}

impl Stage {
    /// A temporary folder, and nothing in it yet.
    pub(super) async fn set(stop: Shutdown) -> Result<Stage> {
        let folder = tempfile::Builder::new().prefix("semel-demo-").tempdir().context("cannot make a folder")?;
        let path = std::env::current_exe().context("cannot find this program")?;
        // Letters and digits of a UUID in base64 have no character that means something in a URL.
        let secret = BASE64_STANDARD.encode(&Uuid::new_v4().simple().to_string()[..24]);
        Ok(Stage {
            server: None,
            relay: None,
            consumer: None,
            program: Program { path, folder: folder.path().to_owned() },
            secret: format!("whsec_{secret}"),
            address: watch::Sender::new((Ipv4Addr::LOCALHOST, 0).into()),
            forwarder: Forwarder::start(stop).await?,
            kills: Kills::default(),
            folder,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file.
    pub(super) fn database(&self) -> PathBuf {
        self.folder().join("demo.db")
    }

    /// The service, wherever it is.
    pub(super) fn payments(&self) -> Payments {
        Payments::new(self.address.subscribe())
    }

    /// Opens the file beside the processes that use it.
    pub(super) async fn open(&self) -> Result<Sqlite> {
        Sqlite::open(self.database(), Options::default()).await.context("cannot open the demo's file")
    }

    /// Starts the payments service, whose events wait for somebody to relay them.
    pub(super) async fn start_server(&mut self) -> Result<()> {
        let url = self.url();
        let arguments = ["sandbox", "--listen", "127.0.0.1:0", "--sandbox-consume", "false", "--database-url", &url];
        let server = Process::start(&self.program, "server", &arguments, &[]).await?;
        self.address.send_replace(server.address());
        self.server = Some(server);
        Ok(())
    }

    /// Starts the consumer, and tells the forwarder where it is.
    pub(super) async fn start_consumer(&mut self) -> Result<()> {
        let (url, source) = (self.url(), format!("http://127.0.0.1:0/events?secret={}", self.secret));
        let arguments = ["consume", "--consumer", "payments", "--database-url", &url];
        let consumer = Process::start(&self.program, "consumer", &arguments, &[("SEMEL_SOURCE", &source)]).await?;
        self.forwarder.forward_to(Some(consumer.address()));
        self.consumer = Some(consumer);
        Ok(())
    }

    /// Starts the relay. After a kill it publishes nothing until the lease of the one before it is over.
    pub(super) async fn start_relay(&mut self) -> Result<()> {
        let (url, address) = (self.url(), self.forwarder.address());
        let sink = format!("http://{address}/events?semel_secret={}&semel_allow_loopback=true", self.secret);
        let arguments = ["run", "--roles", "relay", "--metrics-listen", "127.0.0.1:0", "--database-url", &url];
        let environment = [
            ("SEMEL_SINK", sink.as_str()),
            ("SEMEL_RELAY_LEASE", "2s"),
            ("SEMEL_PUBLISH_BACKOFF_MIN", "20ms"),
            ("SEMEL_PUBLISH_BACKOFF_MAX", "200ms"),
        ];
        self.relay = Some(Process::start(&self.program, "relay", &arguments, &environment).await?);
        Ok(())
    }

    /// SIGKILL to the payments service.
    pub(super) async fn kill_server(&mut self) -> Result<()> {
        self.kills.server += 1;
        self.server.take().context("the server does not run")?.kill().await
    }

    /// SIGKILL to the relay.
    pub(super) async fn kill_relay(&mut self) -> Result<()> {
        self.kills.relay += 1;
        self.relay.take().context("the relay does not run")?.kill().await
    }

    /// SIGKILL to the consumer. Until it is started again the relay finds nobody there.
    pub(super) async fn kill_consumer(&mut self) -> Result<()> {
        self.kills.consumer += 1;
        self.forwarder.forward_to(None);
        self.consumer.take().context("the consumer does not run")?.kill().await
    }

    /// Waits until a question about the file is answered with yes.
    pub(super) async fn until(&self, store: &Sqlite, what: &str, sql: &str) -> Result<()> {
        let gives_up = Instant::now() + PATIENCE;
        while !store.read(|file| file.query_row(sql, (), |row| row.get::<_, bool>(0))).await? {
            if Instant::now() >= gives_up {
                bail!("{what}: it did not happen within {PATIENCE:?}");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Waits until the consumer has applied everything, or nothing has moved for a while: then counting tells what is
    /// missing. `moved` is told how much is there and how much is applied.
    pub(super) async fn settle(&self, store: &Sqlite, moved: impl Fn(u32, u32)) -> Result<()> {
        let sql = include_str!("../../sql/demo_settled.sql");
        let (mut last, mut since) = ((0, 0), Instant::now());
        loop {
            let now: (u32, u32) =
                store.read(|file| file.query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?)))).await?;
            if now != last {
                (last, since) = (now, Instant::now());
                moved(now.0, now.1);
            }
            if now.1 >= now.0 || since.elapsed() >= PATIENCE {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Writes into the file what clients and forwarder have noted, and counts.
    pub(super) async fn count(&self, store: &Sqlite, notes: &[Note]) -> Result<Figures> {
        let intents: Vec<_> = notes
            .iter()
            .map(|note| json!([note.number, note.attempts, note.replays, note.charges.first(), note.charges.len()]))
            .collect();
        let deliveries: Vec<_> =
            self.forwarder.deliveries().into_iter().map(|(event, times)| json!([event, times])).collect();
        let (intents, deliveries) = (json!(intents).to_string(), json!(deliveries).to_string());
        let mut tx = store.begin().await?;
        tx.execute_batch(include_str!("../../sql/demo_notes.sql")).await?;
        tx.execute(
            "INSERT INTO demo_intents SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
             FROM json_each(?1)",
            (intents,),
        )
        .await?;
        tx.execute("INSERT INTO demo_deliveries SELECT value ->> 0, value ->> 1 FROM json_each(?1)", (deliveries,))
            .await?;
        tx.commit().await?;
        Ok(store.read(Figures::count).await?)
    }

    /// Ends the processes, each in good order.
    pub(super) async fn end(&mut self) -> Result<()> {
        for process in [self.relay.take(), self.consumer.take(), self.server.take()].into_iter().flatten() {
            process.end().await?;
        }
        Ok(())
    }

    /// Kills what still runs. The folder goes too, unless it is to be kept.
    pub(super) async fn clear(mut self, keep: bool) -> Result<()> {
        for process in [self.relay.take(), self.consumer.take(), self.server.take()].into_iter().flatten() {
            process.kill().await?;
        }
        self.folder.disable_cleanup(keep);
        Ok(())
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.database().display())
    }
}
