//! A client that wants something once and asks for it until it has an answer.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use axum::body::{Body, to_bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

/// How many accounts the money goes to. Events of one account travel one after the other.
pub(super) const ACCOUNTS: u32 = 200;

/// The most bytes of an answer.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// How long a client waits for an answer, unless it is in a hurry, and before it asks again.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// How often a client asks before it gives up, which the service then has lost.
const MOST_ATTEMPTS: u32 = 2000;

/// Something that a client wants once: a charge of `number` cents, under a key of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Intent(pub u32);

impl Intent {
    fn key(self) -> String {
        format!("intent-{}", self.0)
    }

    fn body(self) -> String {
        let account = account(self.0 % ACCOUNTS);
        format!(r#"{{"account":"{account}","amount":{},"currency":"EUR"}}"#, self.0)
    }
}

fn account(number: u32) -> String {
    format!("account-{number}")
}

/// What a client has noted of one intent.
#[derive(Debug, Default)]
pub(super) struct Note {
    pub number: u32,
    pub attempts: u32,
    pub replays: u32,
    /// The charges that it was told; more than one would be a contradiction.
    pub charges: BTreeSet<String>,
}

/// What became of one attempt.
#[derive(Debug)]
enum Answer {
    Charged {
        charge: String,
        replayed: bool,
    },
    /// Nobody knows yet: cut off, timed out, nobody there, in flight elsewhere, or told to come again.
    None,
}

/// The service, as its clients see it.
#[derive(Debug, Clone)]
pub(super) struct Payments {
    client: Client<HttpConnector, Body>,
    /// Where it is; it moves when it is started again.
    address: watch::Receiver<SocketAddr>,
}

/// An HTTP client that keeps connections.
pub(super) fn connector() -> Client<HttpConnector, Body> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector)
}

impl Payments {
    pub(super) fn new(address: watch::Receiver<SocketAddr>) -> Payments {
        Payments { client: connector(), address }
    }

    /// Opens an account, which has a natural key: it may be asked for any number of times.
    pub(super) async fn open_account(&self, number: u32) -> Result<()> {
        let path = format!("/accounts/{}", account(number));
        let request = self.request(Method::PUT, &path)?.body(Body::from(r#"{"currency":"EUR"}"#))?;
        let answer = self.client.request(request).await.context("cannot open an account")?;
        if !answer.status().is_success() {
            bail!("cannot open an account: the service answered {}", answer.status());
        }
        Ok(())
    }

    /// Asks until there is an answer.
    pub(super) async fn charge(&self, intent: Intent, note: &mut Note) -> Result<()> {
        note.number = intent.0;
        while note.attempts < MOST_ATTEMPTS {
            if self.attempt(intent, PATIENCE, note).await? {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Asks once, for so long, and notes what came of it. Whoever stops waiting leaves the connection: the service may
    /// or may not have got the request, and may or may not go on with it.
    pub(super) async fn attempt(&self, intent: Intent, patience: Duration, note: &mut Note) -> Result<bool> {
        note.number = intent.0;
        note.attempts += 1;
        let answer = match timeout(patience, self.send(intent)).await {
            Ok(answer) => answer?,
            Err(_) => Answer::None,
        };
        Ok(match answer {
            Answer::None => false,
            Answer::Charged { charge, replayed } => {
                note.replays += u32::from(replayed);
                note.charges.insert(charge);
                true
            }
        })
    }

    /// Asks twice at the same moment.
    pub(super) async fn twins(&self, intent: Intent, note: &mut Note) -> Result<()> {
        let mut twin = Note::default();
        let (one, other) =
            tokio::join!(self.attempt(intent, PATIENCE, note), self.attempt(intent, PATIENCE, &mut twin));
        one?;
        other?;
        note.attempts += twin.attempts;
        note.replays += twin.replays;
        note.charges.extend(twin.charges);
        Ok(())
    }

    async fn send(&self, intent: Intent) -> Result<Answer> {
        let request = self.request(Method::POST, "/charges")?;
        let request = request.header("Idempotency-Key", format!("\"{}\"", intent.key()));
        let Ok(answer) = self.client.request(request.body(Body::from(intent.body()))?).await else {
            return Ok(Answer::None);
        };
        let status = answer.status();
        let replayed = answer.headers().get("idempotent-replayed").is_some_and(|value| value == "true");
        let Ok(body) = to_bytes(Body::new(answer.into_body()), MAX_ANSWER_BYTES).await else {
            return Ok(Answer::None);
        };
        match status {
            StatusCode::CREATED => {
                let charge: Value = serde_json::from_slice(&body).context("the service's answer is no JSON")?;
                let charge = charge["id"].as_str().context("the service's answer names no charge")?.to_owned();
                Ok(Answer::Charged { charge, replayed })
            }
            StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE => Ok(Answer::None),
            other => bail!("the service answered {other}: {}", String::from_utf8_lossy(&body)),
        }
    }

    fn request(&self, method: Method, path: &str) -> Result<axum::http::request::Builder> {
        let url = format!("http://{}{path}", *self.address.borrow());
        let request = Request::builder().method(method).uri(url);
        Ok(request.header(AUTHORIZATION, "Bearer demo-a1").header(CONTENT_TYPE, "application/json"))
    }
}
