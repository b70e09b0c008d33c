//! `semel sandbox`: the reference payments service, to try and to break.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use clap::Args;
use semel::{Semel, Settings};
use semel_payments::{Ledger, Tokens};
use semel_tower::Policy;

use super::run::reap;
use super::{Done, print};
use crate::config::Config;
use crate::config::flags::Flags;
use crate::config::setting::{DATABASE, SANDBOX};
use crate::database::{Database, Missing, with_store};
use crate::shutdown::Shutdown;
use crate::{metrics, relay, serve};

const AFTER_HELP: &str = "\
Creates the tables it needs, serves until SIGINT or SIGTERM, and lets requests in flight finish for up to
transaction_deadline. The published demo tokens work on a loopback address only; elsewhere set sandbox.tokens.

Charges, transfers and bank credits emit events. With a sink they are published from this process; without one they wait
in the outbox, for `semel outbox status` to count and `semel run --sink URL` to publish.

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
pub(crate) async fn run(config: Config) -> Result<Done> {
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
    let recorder = metrics::start(&["POST /charges", "POST /transfers"])?;
    let address = listener.local_addr()?;
    let service = with_store!(&database, store => service(store.clone(), &config, tokens).await)?;
    let router = service.merge(metrics::router(recorder)).layer(from_fn(log_request));

    let relaying = match &config.relay.sink {
        Some(sink) => Some(relay::start(&database, sink, &config.relay, stop.clone()).await?),
        None => None,
    };
    let relaying = tokio::spawn(async move {
        // Requests are served all the same: their events wait (I4).
        if let Some(relaying) = relaying
            && let Err(error) = relaying.await?
        {
            tracing::error!(error = format!("{error:#}"), "events are not published");
        }
        Ok::<_, anyhow::Error>(())
    });
    let reaping = tokio::spawn({
        let (reaper, stop) = (config.reaper, stop.clone());
        async move { reap(&database, reaper, stop).await }
    });
    print(&greeting(address, &config))?;
    tracing::info!(%address, database = %config.database_url, "serving");
    serve::serve(listener, router, stop, config.transaction_deadline).await;
    reaping.await?;
    relaying.await??;
    tracing::info!("stopped");
    Ok(Done::Completed)
}

/// The payments service on a store.
async fn service<S: Ledger>(store: S, config: &Config, tokens: Tokens) -> Result<Router> {
    semel_payments::install(&store).await.context("cannot create the tables of the payments service")?;
    let settings = Settings {
        retention: config.retention,
        reply_limit: config.reply_limit,
        deadline: config.transaction_deadline,
        keyring: config.keyring.clone(),
        ..Settings::default()
    };
    let semel = Semel::with_settings(store, settings).await?;
    let policy = Policy::new().header_mode(config.header_mode).wait(config.wait).body_limit(config.request_body_limit);
    let options = semel_payments::Options { tokens, policy };
    Ok(semel_payments::router(semel, options)?)
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
fn greeting(address: SocketAddr, config: &Config) -> String {
    let (known, token) = match config.tokens {
        None => ("demo-a1 and demo-a2 (tenant a), demo-b1 (tenant b)", "demo-a1"),
        Some(_) => ("as configured in sandbox.tokens", "$TOKEN"),
    };
    let events = match &config.relay.sink {
        Some(sink) => format!("published to {sink}"),
        None => "wait in the outbox; see `semel outbox status`, or start with --sink stdout:".to_owned(),
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
