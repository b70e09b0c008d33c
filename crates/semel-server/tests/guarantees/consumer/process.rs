//! A consumer in a process of its own: this very program, told to be one.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusBuilder;
use semel::failpoint::{self, CONSUMER_ACKNOWLEDGED, CONSUMER_COMMITTED, CONSUMER_RECEIVED};
use semel::inbox::Rule;
use semel::letter::Declaration;
use semel::runner::{Ended, Settings};
use semel::source::Recognition;
use semel::tier::{Filter, Tier};
use semel::{Consumer, Inbox, Runner, Semel, Source};
use semel_brokers::redis::RedisTier;
use semel_brokers::{AnySource, Error, Resume, Subscription, open};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::control::{CONTROL_VARIABLE, Control};
use semel_testkit::process::Service;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::handler::{Effects, effect};
use super::stage::Applying;
use crate::world::client;

/// The variable that makes a consumer of this program, as JSON.
const PLAN: &str = "TEST_CONSUMER_PLAN";
const BODY: &str = "consumer::process::a_consumer_of_its_own";

/// How often a message is tried.
pub(crate) const ATTEMPTS: u32 = 6;

/// How a consumer goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// With an inbox.
    Semel,
    /// A control: acknowledges before it commits.
    AcknowledgesFirst,
    /// A control: commits before it acknowledges, and keeps no proof.
    KeepsNoProof,
    /// A control: the tier alone tells it what it has seen.
    TrustsTheTier,
}

/// What a consumer is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    database: String,
    source: String,
    consumer: String,
    by: String,
    pub(crate) kind: Kind,
    pub(crate) attempts: u32,
    pub(crate) deadline_ms: u64,
    /// `each` or `latest`: the number of a message is then the version of its key.
    pub(crate) rule: Option<String>,
    /// While this file is missing, poisoned messages fail.
    pub(crate) cure: Option<PathBuf>,
    /// What stands in front of the store: `saturated`, or the URL of a Redis.
    tier: Option<String>,
    #[serde(skip)]
    environment: Vec<(&'static str, String)>,
}

impl Plan {
    pub(crate) fn new(database: &str, source: &str, consumer: &str, by: Recognition) -> Plan {
        Plan {
            database: database.to_owned(),
            source: source.to_owned(),
            consumer: consumer.to_owned(),
            by: by.as_str().to_owned(),
            kind: Kind::Semel,
            attempts: ATTEMPTS,
            deadline_ms: 30_000,
            rule: None,
            cure: None,
            tier: None,
            environment: Vec::new(),
        }
    }

    /// Has it read by another URL.
    pub(crate) fn on_source(mut self, url: String) -> Plan {
        self.source = url;
        self
    }

    /// Puts a tier in front of its store: `saturated`, or the URL of a Redis.
    pub(crate) fn behind(mut self, tier: &str) -> Plan {
        self.tier = Some(tier.to_owned());
        self
    }

    pub(crate) fn of_kind(mut self, kind: Kind) -> Plan {
        self.kind = kind;
        self
    }

    /// Stops it at `point`, once it has passed it `passed` times, and tells `control`.
    pub(crate) fn armed(mut self, point: &str, passed: u32, control: &Control) -> Plan {
        self.environment = armed(point, passed, control);
        self
    }

    pub(crate) async fn start(&self) -> Service {
        spawn(BODY, PLAN, &serde_json::to_string(self).unwrap(), &self.environment).await
    }

    fn settings(&self) -> Settings {
        Settings {
            recognition: self.recognition(),
            retention: Duration::from_secs(90 * 24 * 60 * 60),
            workers: 4,
            batch: 10,
            attempts: self.attempts,
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_millis(200),
            letters_interval: Duration::from_millis(50),
            ..Settings::default()
        }
    }

    fn recognition(&self) -> Recognition {
        Recognition::named(&self.by).unwrap()
    }

    fn rule(&self) -> Option<Rule> {
        self.rule.as_deref().map(|rule| if rule == "each" { Rule::Each } else { Rule::Latest })
    }
}

/// What stops a process at `point`, once it has passed it `passed` times.
pub(crate) fn armed(point: &str, passed: u32, control: &Control) -> Vec<(&'static str, String)> {
    let armed = match passed {
        0 => format!("{point}=1*return"),
        passed => format!("{point}={passed}*off->1*return"),
    };
    vec![("FAILPOINTS", armed), (CONTROL_VARIABLE, control.address().to_string())]
}

/// Starts this program anew with only the test `body`, which finds `plan` in `variable`.
pub(crate) async fn spawn(body: &str, variable: &str, plan: &str, environment: &[(&'static str, String)]) -> Service {
    let mut variables = vec![(variable, plan)];
    variables.extend(environment.iter().map(|(name, value)| (*name, value.as_str())));
    let arguments = ["--exact", body, "--nocapture", "--test-threads=1"];
    Service::spawn(std::env::current_exe().unwrap(), &arguments, &variables).await
}

/// How many messages of a consumer had this outcome so far.
pub(crate) async fn outcomes(consumer: &Service, outcome: &str) -> f64 {
    let text = client().get(consumer.url("/metrics")).send().await.unwrap().text().await.unwrap();
    let label = format!("outcome=\"{outcome}\"");
    let lines = text.lines().filter(|line| line.starts_with("semel_messages_total{") && line.contains(&label));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// The body of a consumer's process; alone it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout)]
async fn a_consumer_of_its_own() {
    let Ok(plan) = std::env::var(PLAN) else { return };
    let plan: Plan = serde_json::from_str(&plan).unwrap();
    failpoint::setup();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let recorder = PrometheusBuilder::new().install_recorder().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("consumer listening on http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/metrics", get(async move || recorder.render()));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });

    let (stopping, stop) = watch::channel(false);
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    tokio::spawn(async move {
        terminated.recv().await;
        stopping.send_replace(true);
        // The channel stays open for as long as somebody may look.
        stopping.closed().await;
    });
    match plan.database.starts_with("sqlite:") {
        true => consume::<Sqlite>(&plan, stop).await,
        false => consume::<Postgres>(&plan, stop).await,
    }
}

async fn consume<S: Applying>(plan: &Plan, stop: watch::Receiver<bool>) {
    let deadline = Duration::from_millis(plan.deadline_ms);
    let store = S::open_url(&plan.database, deadline).await;
    if plan.kind != Kind::Semel {
        return without_inbox(&store, plan, stop).await;
    }
    let settings = semel::Settings { deadline, ..semel::Settings::default() };
    let semel = Semel::with_settings(store.clone(), settings).await.unwrap();
    loop {
        let settings = plan.settings();
        let declaration = Declaration { recognition: settings.recognition, retention: settings.retention };
        let consumer = store.declare(&plan.consumer, &declaration).await.unwrap();
        let source = source(plan, &store, &consumer).await;
        let handler = Effects::new(consumer.generation(), plan.rule(), plan.cure.clone());
        let mut runner = Runner::new(semel.clone(), source, handler, consumer, settings).unwrap();
        if let Some(tier) = tier(plan).await {
            runner = runner.with_tier(tier);
        }
        let mut told = stop.clone();
        let stopped = async move { drop(told.wait_for(|stop| *stop).await) };
        match runner.run(stopped).await {
            Ok(Ended::Stopped) => return,
            Ok(Ended::NewGeneration(_)) => {}
            Err(refused) => panic!("the consumer refuses to run: {refused:?}"),
        }
    }
}

/// The controls: what many services do.
async fn without_inbox<S: Applying>(store: &S, plan: &Plan, mut stop: watch::Receiver<bool>) {
    let consumer = Consumer::new(plan.consumer.as_str()).unwrap();
    let source = source(plan, store, &consumer).await;
    let tier = tier(plan).await;
    loop {
        let received = tokio::select! {
            received = source.receive(10) => received.unwrap(),
            _ = stop.wait_for(|stop| *stop) => break,
        };
        for received in received {
            let effect = effect(&received.message, 0).unwrap();
            if let (Kind::TrustsTheTier, Some(tier)) = (plan.kind, &tier) {
                let id = [effect.id.as_str()];
                if tier.maybe_seen(&consumer, &id).await == [false] {
                    tier.note(&consumer, &id).await;
                    failpoint::reach(CONSUMER_RECEIVED).await;
                    store.apply_plainly(&effect).await.unwrap();
                    failpoint::reach(CONSUMER_COMMITTED).await;
                }
                source.acknowledge(&[&received.receipt]).await.unwrap();
            } else if plan.kind == Kind::AcknowledgesFirst {
                source.acknowledge(&[&received.receipt]).await.unwrap();
                failpoint::reach(CONSUMER_ACKNOWLEDGED).await;
                store.apply_plainly(&effect).await.unwrap();
            } else {
                store.apply_plainly(&effect).await.unwrap();
                failpoint::reach(CONSUMER_COMMITTED).await;
                source.acknowledge(&[&received.receipt]).await.unwrap();
            }
        }
    }
    source.close().await;
}

/// What stands in front of the store.
async fn tier(plan: &Plan) -> Option<Arc<dyn Tier>> {
    let tier: Arc<dyn Tier> = match plan.tier.as_deref()? {
        "saturated" => Arc::new(Filter::within(16, 1_000_000)),
        url => Arc::new(RedisTier::connect(url).await.unwrap()),
    };
    Some(tier)
}

async fn source<S: Inbox>(plan: &Plan, store: &S, consumer: &Consumer) -> AnySource {
    let resume: Arc<dyn Resume> = Arc::new(ReadsOn { store: store.clone(), consumer: consumer.clone() });
    let subscription = Subscription {
        consumer: consumer.name().to_owned(),
        generation: consumer.generation(),
        recognition: plan.recognition(),
        resume: Some(resume),
    };
    let mut retries = tokio::time::interval(Duration::from_millis(50));
    loop {
        retries.tick().await;
        match open(&plan.source, &subscription).await {
            Ok(source) => return source,
            Err(Error::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Where a consumer that goes by offsets reads on.
struct ReadsOn<S> {
    store: S,
    consumer: Consumer,
}

impl<S> fmt::Debug for ReadsOn<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "where {} reads on", self.consumer.name())
    }
}

impl<S: Inbox> Resume for ReadsOn<S> {
    fn next_offset<'a>(
        &'a self,
        source: &'a str,
        topic: &'a str,
        partition: i32,
    ) -> Pin<Box<dyn Future<Output = Result<Option<i64>, semel::Error>> + Send + 'a>> {
        Box::pin(self.store.next_offset(&self.consumer, source, topic, partition))
    }
}
