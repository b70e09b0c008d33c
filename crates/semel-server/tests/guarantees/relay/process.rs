//! A relay in a process of its own: this very program, told to be one.

use std::fs::OpenOptions;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusBuilder;
use semel::relay::{Relay, Settings};
use semel::{Outbox, failpoint};
use semel_brokers::stdout::StdoutSink;
use semel_brokers::{AnySink, Error, connect};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::control::{CONTROL_VARIABLE, Control};
use semel_testkit::process::Service;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use crate::world::client;

/// The variable that makes a relay of this program, as JSON.
const PLAN: &str = "TEST_RELAY_PLAN";
const BODY: &str = "relay::process::a_relay_of_its_own";

/// How long a relay that was killed keeps its lanes.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// What a relay is told. Times are short, so that what happens once a minute happens all the time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    database: String,
    sink: String,
    installation: String,
    pub(crate) lease_ms: u64,
    pub(crate) keep_ms: u64,
    pub(crate) attempts: u32,
    #[serde(skip)]
    environment: Vec<(&'static str, String)>,
}

impl Plan {
    pub(crate) fn new(database: &str, sink: &str, installation: &str) -> Plan {
        Plan {
            database: database.to_owned(),
            sink: sink.to_owned(),
            installation: installation.to_owned(),
            lease_ms: u64::try_from(LEASE.as_millis()).unwrap(),
            keep_ms: 0,
            attempts: 3,
            environment: Vec::new(),
        }
    }

    /// Has it reach its database by another URL.
    pub(crate) fn on_database(mut self, url: String) -> Plan {
        self.database = url;
        self
    }

    /// Stops it at `point`, once it has passed it `passed` times, and tells `control`.
    pub(crate) fn armed(mut self, point: &str, passed: u32, control: &Control) -> Plan {
        let armed = match passed {
            0 => format!("{point}=1*return"),
            passed => format!("{point}={passed}*off->1*return"),
        };
        self.environment = vec![("FAILPOINTS", armed), (CONTROL_VARIABLE, control.address().to_string())];
        self
    }

    pub(crate) async fn start(&self) -> Service {
        let plan = serde_json::to_string(self).unwrap();
        let mut environment = vec![(PLAN, plan.as_str())];
        environment.extend(self.environment.iter().map(|(name, value)| (*name, value.as_str())));
        let arguments = ["--exact", BODY, "--nocapture", "--test-threads=1"];
        Service::spawn(std::env::current_exe().unwrap(), &arguments, &environment).await
    }

    fn settings(&self) -> Settings {
        Settings {
            lease: Duration::from_millis(self.lease_ms),
            keep: Duration::from_millis(self.keep_ms),
            attempts: self.attempts,
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_millis(200),
            poll_max: Duration::from_millis(50),
            housekeeping_interval: Duration::from_millis(100),
            ..Settings::default()
        }
    }
}

/// What a relay's metric stands at; zero if it was never touched.
pub(crate) async fn metric(relay: &Service, name: &str) -> f64 {
    let text = client().get(relay.url("/metrics")).send().await.unwrap().text().await.unwrap();
    let values = text.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

/// The body of a relay's process; alone it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout)]
async fn a_relay_of_its_own() {
    let Ok(plan) = std::env::var(PLAN) else { return };
    let plan: Plan = serde_json::from_str(&plan).unwrap();
    failpoint::setup();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let recorder = PrometheusBuilder::new().install_recorder().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("relay listening on http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/metrics", get(async move || recorder.render()));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });

    let mut terminated = signal(SignalKind::terminate()).unwrap();
    let stop = async move {
        terminated.recv().await;
    };
    let sink = sink(&plan).await;
    match plan.database.strip_prefix("sqlite:") {
        Some(path) => {
            relay(Sqlite::open(path, semel_sqlite::Options::default()).await.unwrap(), sink, &plan, stop).await
        }
        None => relay(Postgres::open(&plan.database, Default::default()).unwrap(), sink, &plan, stop).await,
    }
}

async fn relay<S: Outbox>(store: S, sink: AnySink, plan: &Plan, stop: impl Future<Output = ()> + Send) {
    if let Err(refused) = Relay::new(store, sink, plan.settings()).unwrap().run(stop).await {
        panic!("the relay refuses to run: {refused}");
    }
}

async fn sink(plan: &Plan) -> AnySink {
    if let Some(path) = plan.sink.strip_prefix("file:") {
        let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        return AnySink::Stdout(StdoutSink::on(file).unwrap());
    }
    let mut retries = tokio::time::interval(Duration::from_millis(50));
    loop {
        retries.tick().await;
        match connect(&plan.sink, &plan.installation).await {
            Ok(sink) => return sink,
            Err(Error::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
