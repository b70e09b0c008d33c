//! `semel sandbox`: the reference payments service, to try and to break.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use axum::extract::{MatchedPath, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use semel::outbox::PageLimit;
use semel::{Inbox, Semel, Settings, flow};
use semel_payments::{FLOWS, KEYED, Ledger, Options, Tokens, consumers};
use semel_tower::Policy;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::run::reap;
use super::{Done, print};
use crate::config::flags::Flags;
use crate::config::setting::{DATABASE, SANDBOX};
use crate::config::{Config, SinkUrl, SourceUrl};
use crate::consume::{self, Plan};
use crate::database::{Database, Missing, with_store};
use crate::shutdown::Shutdown;
use crate::{completer, metrics, relay, serve};

/// The most that is read at once, and that is read and not yet published, where the consumer is in this process.
const NEAR_PAGE: PageLimit = PageLimit { events: 500, bytes: 1024 * 1024 };
const NEAR_IN_FLIGHT_BYTES: u64 = 2 * 1024 * 1024;

const AFTER_HELP: &str = "\
Creates the tables it needs, serves until SIGINT or SIGTERM, and lets requests in flight finish for up to
transaction_deadline. The published demo tokens work on a loopback address only; elsewhere set sandbox.tokens.

Charges, transfers, orders and bank credits emit events. With a sink they are published from this process. Without one
they go over HTTP, on a loopback port and signed, to the consumer `payments` in this process, which makes receipts,
balances and referrals of them: see GET /ledger/consumed and `semel inbox status`. With --sandbox-consume false they
wait in the outbox, for `semel outbox status` to count and `semel run --sink URL` to publish.

Orders charge a card and send a mail at somebody else's: --provider-url says where. What a crash interrupts goes on in
this process; see `semel flows list`. Without the URL POST /orders answers 503.

Examples:
  semel sandbox
  semel sandbox --sink stdout:
  semel sandbox --listen 127.0.0.1:0 --database-url sqlite:/tmp/try.db
  SEMEL_SANDBOX_TOKENS=my-secret-token:shop semel sandbox --listen 0.0.0.0:7600 --database-url postgres://db/shop";

/// Serve the reference payments service, to try and to break
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub settings: Flags<{ SANDBOX | DATABASE }>,
}

/// Serves until it is told to stop.
pub(crate) async fn run(mut config: Config) -> Result<Done> {
    let tokens = config.tokens.clone().unwrap_or_else(Tokens::demo);
    ensure!(
        !tokens.is_demo() || config.listen.ip().is_loopback(),
        "{} is not a loopback address and the demo tokens are public: set your own in [sandbox.tokens] of semel.toml \
         or in SEMEL_SANDBOX_TOKENS=TOKEN:TENANT, or listen on 127.0.0.1",
        config.listen
    );
    let stop = Shutdown::on_signals()?;
    let listener = serve::bind(config.listen, "listen").await?;
    let database = Database::open(&config, Missing::Create).await?;
    let applied = database.migrate(&config.database_url).await?;
    if !applied.is_empty() {
        tracing::info!(migrations = applied.len(), "migrated the database");
    }
    let consumes = config.relay.sink.is_none() && config.sandbox_consume;
    let consumers = if consumes { vec![consumers::PAYMENTS.to_owned()] } else { Vec::new() };
    let recorder = metrics::start(&KEYED, &consumers, &FLOWS)?;
    let address = listener.local_addr()?;
    let greeting = greeting(address, &config, consumes);
    let options = options(&config, tokens);
    let (service, completing, consuming) = with_store!(&database, store => {
        let semel = semel(store.clone(), &config).await?;
        let service = semel_payments::router(semel.clone(), options.clone())?;
        let completing = complete(&semel, &options, stop.clone())?;
        let consuming = if consumes { Some(consume(semel, &mut config, stop.clone()).await?) } else { None };
        (service, completing, consuming)
    });
    let router = service.merge(metrics::router(recorder)).layer(from_fn(log_request));

    let relaying = match &config.relay.sink {
        Some(sink) => Some(relay::start(&database, sink, &config.relay, stop.clone()).await?),
        None => None,
    };
    let relaying = tokio::spawn(served_without(relaying, "events are not published"));
    let consuming = tokio::spawn(served_without(consuming, "events are not consumed"));
    let reaping = tokio::spawn({
        let (reaper, stop) = (config.reaper, stop.clone());
        async move { tokio::join!(reap(&database, reaper, stop.clone()), completer::watch(&database, stop)) }
    });
    print(&greeting)?;
    tracing::info!(%address, database = %config.database_url, "serving");
    serve::serve(listener, router, stop, config.transaction_deadline).await;
    reaping.await?;
    relaying.await??;
    consuming.await??;
    if let Some(completing) = completing {
        completing.await?;
    }
    tracing::info!("stopped");
    Ok(Done::Completed)
}

/// Waits for what runs beside the service. Requests are served without it: their events wait (I4).
async fn served_without(running: Option<JoinHandle<Result<()>>>, missing: &'static str) -> Result<()> {
    if let Some(running) = running
        && let Err(error) = running.await?
    {
        tracing::error!(error = format!("{error:#}"), "{missing}");
    }
    Ok(())
}

/// Starts the consumer `payments` on a loopback port, and makes it the sink. Nobody else knows what events are signed
/// with, so nobody else can feed it.
async fn consume<S: Ledger + Inbox>(
    semel: Semel<S>,
    config: &mut Config,
    stop: Shutdown,
) -> Result<JoinHandle<Result<()>>> {
    let secret = [Uuid::new_v4(), Uuid::new_v4()].map(Uuid::into_bytes).concat();
    // Neither `+` nor `/` nor `=` may stand in a URL's parameter as it is.
    let secret = BASE64_STANDARD.encode(secret).replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let plan = Plan {
        consumer: consumers::PAYMENTS.to_owned(),
        source: SourceUrl::parse(&format!("http://127.0.0.1:0/events?secret=whsec_{secret}"))?,
        settings: config.consume.settings.clone(),
        tier: None,
    };
    let consuming = consume::start(semel, plan, stop).await?;
    let address = consuming.address.context("the source of the sandbox's consumer listens nowhere")?;
    let sink = format!("http://{address}/events?semel_secret=whsec_{secret}&semel_allow_loopback=true");
    config.relay.sink = Some(SinkUrl::parse(&sink)?);
    // Whatever is read too early waits in the same memory twice, here and at the consumer, and gets out no sooner.
    let relay = &mut config.relay.settings;
    relay.page.events = relay.page.events.min(NEAR_PAGE.events);
    relay.page.bytes = relay.page.bytes.min(NEAR_PAGE.bytes);
    relay.in_flight_bytes = relay.in_flight_bytes.min(NEAR_IN_FLIGHT_BYTES);
    Ok(consuming.task)
}

/// Semel on a store, with the tables of the payments service.
async fn semel<S: Ledger>(store: S, config: &Config) -> Result<Semel<S>> {
    semel_payments::install(&store).await.context("cannot create the tables of the payments service")?;
    let settings = Settings {
        retention: config.retention,
        reply_limit: config.reply_limit,
        deadline: config.transaction_deadline,
        keyring: config.keyring.clone(),
        ..Settings::default()
    };
    Ok(Semel::with_settings(store, settings).await?)
}

/// What the payments service is told.
fn options(config: &Config, tokens: Tokens) -> Options {
    let policy = Policy::new().header_mode(config.header_mode).wait(config.wait).body_limit(config.request_body_limit);
    let flows = flow::Settings { lease_for: config.flow_lease, ..flow::Settings::default() };
    Options { tokens, policy, outside: config.outside.clone(), flows }
}

/// Starts what goes on with interrupted orders and sends the mails of the others, if there is somebody to call. It runs
/// until it is told to stop; what is unfinished then is taken up at the next start.
fn complete<S: Ledger>(semel: &Semel<S>, options: &Options, stop: Shutdown) -> Result<Option<JoinHandle<()>>> {
    let completer = semel_payments::completer(semel, options)?;
    Ok(completer.map(|completer| tokio::spawn(async move { completer.run(stop.requested()).await })))
}

/// One line per request, without its key, its body or its tenant.
async fn log_request(request: Request, next: Next) -> Response {
    let started = std::time::Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let response = next.run(request).await;
    let (route, status) = (route.as_deref().unwrap_or("unknown route"), response.status().as_u16());
    tracing::debug!(%method, route, status, elapsed_us = started.elapsed().as_micros(), "request");
    response
}

/// What is printed at start: the address first, alone on its line, so that a script can read it. Tokens of one's own
/// are not printed.
fn greeting(address: SocketAddr, config: &Config, consumes: bool) -> String {
    let (known, token) = match config.tokens {
        None => ("demo-a1 and demo-a2 (tenant a), demo-b1 (tenant b)", "demo-a1"),
        Some(_) => ("as configured in sandbox.tokens", "$TOKEN"),
    };
    let events = match &config.relay.sink {
        Some(sink) => format!("published to {sink}"),
        None if consumes => {
            "go to the consumer `payments` in this process; see `semel inbox status`, or start with --sink stdout:"
                .to_owned()
        }
        None => "wait in the outbox; see `semel outbox status`, or start with --sink stdout:".to_owned(),
    };
    let orders = match config.outside {
        Some(_) => "call the provider; see `semel flows list`",
        None => "need somebody to charge cards: start with --provider-url URL",
    };
    let curl = format!("curl -i -H \"Authorization: Bearer {token}\" -H 'Content-Type: application/json'");
    let account = format!("{curl} -X PUT http://{address}/accounts/alice -d '{{\"currency\":\"EUR\"}}'");
    let body = r#"{"account":"alice","amount":500,"currency":"EUR"}"#;
    let charge = format!("{curl} -H 'Idempotency-Key: \"order-1\"' http://{address}/charges -d '{body}'");
    format!(
        "semel sandbox listening on http://{address}\n\
         \n\
         database  {}\n\
         tokens    {known}\n\
         events    {events}\n\
         orders    {orders}\n\
         \n\
         Open an account, charge it, and charge it again as a retry would: the second answer replays the first.\n\
         \n  \
         {account}\n  \
         {charge}\n  \
         {charge}\n  \
         {curl} http://{address}/accounts/alice\n\n",
        config.database_url
    )
}
