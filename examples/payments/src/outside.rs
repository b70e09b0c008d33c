//! What orders need of others: a card processor and a mailer, called over HTTP.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Response, Url, redirect};
use semel::error::Source;
use semel::flow::Failed;
use semel::provider::{Call, Found, Keys, Provider, Retry};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The most bytes of an answer that are read; what is expected takes a hundred.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// How much is kept of the code by which a refusal calls itself.
const MAX_CODE_CHARACTERS: usize = 64;

/// The longest id that a charge, a refund or a mail may have.
const MAX_ID_BYTES: usize = 255;

/// What the provider calls a key that came with another body before.
const KEY_REUSED: &str = "key_reused";

/// What the provider calls a key with which nothing was executed.
const NOT_FOUND: &str = "not_found";

/// Where the card processor and the mailer are, and what they promise. [`Outside::at`] is what `examples/provider`
/// keeps.
#[derive(Clone)]
pub struct Outside {
    /// The URL in front of `/charges`, `/refunds`, `/mails` and `/operations`.
    pub url: String,
    /// How long they recognise a key. Flows are kept for at least as long (I9).
    pub keys: Keys,
    /// Whether results can be looked up by their key.
    pub look_up: bool,
    /// How long a call may take before its outcome is *unknown*.
    pub timeout: Duration,
    /// How often a charge or refund is tried, and how far apart.
    pub retry: Retry,
    /// How long after a call was received at the latest it can be looked up. A worker that was suspended between the
    /// count of an attempt and its socket still sends it afterwards: let this be longer than that may take.
    pub settles_after: Duration,
}

/// Without the URL, which may hold a password.
impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside")
            .field("keys", &self.keys)
            .field("look_up", &self.look_up)
            .field("timeout", &self.timeout)
            .field("retry", &self.retry)
            .field("settles_after", &self.settles_after)
            .finish_non_exhaustive()
    }
}

impl Outside {
    /// Somebody who keeps keys for a day and can be asked what became of them.
    pub fn at(url: impl Into<String>) -> Outside {
        Outside {
            url: url.into(),
            keys: Keys::Kept(Duration::from_hours(24)),
            look_up: true,
            timeout: Duration::from_secs(10),
            retry: Retry::default(),
            settles_after: Duration::from_mins(5),
        }
    }

    /// Says what is wrong with the URL. It is not repeated, since it may hold a password.
    pub fn check(&self) -> Result<(), String> {
        self.base().map(drop)
    }

    /// What stands in front of each path.
    fn base(&self) -> Result<Arc<str>, String> {
        let url = Url::parse(&self.url).map_err(|error| format!("it is no URL: {error}"))?;
        if url.scheme() != "http" || url.host_str().is_none() || url.query().is_some() || url.fragment().is_some() {
            return Err("it must be http://HOST:PORT, with a path if need be".to_owned());
        }
        Ok(url.as_str().trim_end_matches('/').into())
    }
}

/// A charge, a refund or a mail as it is answered: the id that they gave it. It is what the record of a step keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Executed {
    #[serde(deserialize_with = "bounded")]
    pub(crate) id: String,
}

/// Reads an id that fits the order's row (I12).
fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let id = String::deserialize(deserializer)?;
    if (1..=MAX_ID_BYTES).contains(&id.len()) && !id.chars().any(char::is_control) {
        return Ok(id);
    }
    Err(D::Error::custom(format!("an id must be 1 to {MAX_ID_BYTES} bytes without control characters")))
}

// What follows has no Debug: what it holds of a customer belongs in no log.

/// What is to be charged.
#[derive(Clone, Serialize)]
pub(crate) struct NewCharge {
    pub(crate) amount: i64,
    pub(crate) currency: String,
    pub(crate) card: String,
    /// The client's key: the same body for the same derived key, also after rows were lost.
    pub(crate) reference: String,
}

/// A mail to be sent.
#[derive(Clone, Serialize)]
pub(crate) struct NewMail {
    pub(crate) to: String,
    pub(crate) subject: String,
    pub(crate) text: String,
    /// The order's id.
    pub(crate) reference: String,
}

/// Calls the card processor and the mailer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: Arc<str>,
    processor: Provider,
    mailer: Provider,
}

impl Client {
    /// Fails if the URL cannot be called, or if there is no client to be had.
    pub(crate) fn new(outside: &Outside) -> Result<Client, String> {
        let url = outside.base()?;
        // A redirect or a proxy would see the card, and its answers would be read as the processor's.
        let http = reqwest::Client::builder().redirect(redirect::Policy::none()).no_proxy().build();
        let http = http.map_err(|error| format!("there is no HTTP client: {error}"))?;
        let profile = |name: &str| {
            let profile = Provider::http(name, outside.keys).timeout(outside.timeout).retry(outside.retry);
            let profile = profile.settles_after(outside.settles_after);
            if !outside.look_up {
                return profile;
            }
            let (http, url) = (http.clone(), Arc::clone(&url));
            profile.look_up(move |call| look_up(http.clone(), Arc::clone(&url), call))
        };
        let processor = profile("card-processor");
        // A mail may come late: it is worth more attempts than anybody would wait for a charge.
        let patient = Retry { attempts: outside.retry.attempts.max(50), ..outside.retry };
        let mailer = profile("mailer").retry(patient);
        Ok(Client { processor, mailer, http, url })
    }

    /// The card processor's profile.
    pub(crate) fn processor(&self) -> &Provider {
        &self.processor
    }

    /// The mailer's profile.
    pub(crate) fn mailer(&self) -> &Provider {
        &self.mailer
    }

    /// Charges a card.
    pub(crate) async fn charge(&self, charge: &NewCharge, call: &Call) -> Result<Executed, Failed> {
        self.post(&self.processor, "/charges", charge, call).await
    }

    /// Gives a charge back.
    pub(crate) async fn refund(&self, charge: &str, call: &Call) -> Result<Executed, Failed> {
        self.post(&self.processor, "/refunds", &serde_json::json!({ "charge": charge }), call).await
    }

    /// Sends a mail.
    pub(crate) async fn send(&self, mail: &NewMail, call: &Call) -> Result<Executed, Failed> {
        self.post(&self.mailer, "/mails", mail, call).await
    }

    async fn post<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        provider: &Provider,
        path: &str,
        body: &B,
        call: &Call,
    ) -> Result<T, Failed> {
        let request = self.http.post(format!("{}{path}", self.url)).header(call.header(), call.key()).json(body);
        let response = request.send().await.map_err(not_sent)?;
        let status = response.status().as_u16();
        // An answer that breaks off says nothing certain, whatever its status.
        let answer = read(response).await?;
        if provider.fault(status).is_some() {
            let code = code_of(&answer);
            let cause = code.as_ref().map_or_else(|| status.to_string(), |code| format!("{status}: {code}"));
            // Something was sent under this key before, so something may have been done under it.
            if status == 422 && code.as_deref() == Some(KEY_REUSED) {
                return Err(Failed::unknown(cause));
            }
            return Err(Failed::status(provider, status, cause));
        }
        serde_json::from_slice(&answer).map_err(|_| Failed::unknown(format!("{status}, but not with a result")))
    }
}

/// What became of a request that got no answer. One that found nobody to connect to did nothing; any other may have
/// arrived.
fn not_sent(error: reqwest::Error) -> Failed {
    let unconnected = error.is_connect() || error.is_builder();
    let cause = told(&error.without_url());
    if unconnected { Failed::retryable(cause) } else { Failed::unknown(cause) }
}

/// An error with its causes: reqwest's own text says little.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |told, cause| format!("{told}: {cause}"))
}

/// The code by which a refusal calls itself. Nothing else of it is kept: what was sent may be repeated in it.
fn code_of(answer: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Refusal {
        code: String,
    }
    let refusal: Refusal = serde_json::from_slice(answer).ok()?;
    Some(refusal.code.chars().take(MAX_CODE_CHARACTERS).collect())
}

async fn read(mut response: Response) -> Result<Vec<u8>, Source> {
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
        if answer.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(format!("the answer is longer than {MAX_ANSWER_BYTES} bytes").into());
        }
        answer.extend_from_slice(&chunk);
    }
    Ok(answer)
}

/// What the provider knows of a key.
#[derive(Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum Operation {
    Done { result: Value },
    Failed { reason: Value },
    UnderWay,
}

/// Asks by the key alone: no two steps share one. An error says that nothing was learnt.
async fn look_up(http: reqwest::Client, url: Arc<str>, call: Call) -> Result<Found, Source> {
    let asked = http.get(format!("{url}/operations?key={}", call.key())).send().await;
    let response = asked.map_err(reqwest::Error::without_url)?;
    let status = response.status().as_u16();
    let answer = read(response).await?;
    match status {
        200 => match serde_json::from_slice(&answer) {
            Ok(Operation::Done { result }) => Ok(Found::Done(result)),
            Ok(Operation::Failed { reason }) => {
                let reason = reason.as_str().unwrap_or("no reason is given");
                Ok(Found::Failed(reason.chars().take(MAX_CODE_CHARACTERS).collect()))
            }
            Ok(Operation::UnderWay) => Ok(Found::UnderWay),
            Err(_) => Err("the look-up was answered 200, but not with what became of the key".into()),
        },
        // Whoever else stands at this address, or on the way to it, answers 404 as well.
        404 if code_of(&answer).as_deref() == Some(NOT_FOUND) => Ok(Found::Absent),
        status => Err(format!("the look-up was answered {status}").into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::any;
    use semel::intent::Fault;

    use super::*;

    /// A client of somebody who answers everything like this.
    async fn answered(status: u16, body: &'static str) -> Client {
        let answer = move || std::future::ready((StatusCode::from_u16(status).unwrap(), body));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(any(answer))).await });
        Client::new(&Outside::at(url)).unwrap()
    }

    fn call(client: &Client) -> Call {
        Call::new(client.processor(), "charge", "53195d6c", 1)
    }

    #[tokio::test]
    async fn only_the_providers_own_404_says_that_there_is_nothing() {
        let found = async |status, body| {
            let client = answered(status, body).await;
            client.processor().ask(call(&client)).await
        };
        assert!(matches!(found(404, r#"{"code":"not_found","message":"…"}"#).await, Ok(Found::Absent)));
        for body in ["", "<html>not found</html>", r#"{"code":"no_such_route"}"#, r#"{"message":"not_found"}"#] {
            assert!(found(404, body).await.is_err(), "{body}");
        }
        assert!(matches!(found(200, r#"{"state":"under_way"}"#).await, Ok(Found::UnderWay)));
        let told = found(200, r#"{"state":"hunter2"}"#).await.unwrap_err().to_string();
        assert!(!told.contains("hunter2"), "{told}");
    }

    #[tokio::test]
    async fn a_refusal_is_told_by_its_code_alone() {
        let charged = async |status, body| {
            let client = answered(status, body).await;
            client.refund("ch_1", &call(&client)).await
        };
        for (status, body, fault, text) in [
            (402, r#"{"code":"card_declined","card":"hunter2"}"#, Fault::Terminal, "402: card_declined"),
            (400, "hunter2", Fault::Refused, "400"),
            (404, "", Fault::Refused, "404"),
            (422, r#"{"code":"invalid"}"#, Fault::Refused, "422: invalid"),
            // It is not what was asked that was refused: something else may have happened under this key.
            (422, r#"{"code":"key_reused"}"#, Fault::Unknown, "422: key_reused"),
            (302, "", Fault::Unknown, "302"),
            (201, r#"{"id":"hunter2","id":1}"#, Fault::Unknown, "201, but not with a result"),
        ] {
            let failed = charged(status, body).await.unwrap_err();
            assert_eq!((failed.fault(), failed.text()), (fault, text), "{status} {body}");
        }
        assert_eq!(charged(201, r#"{"id":"re_1"}"#).await.unwrap().id, "re_1");
    }

    #[test]
    fn an_id_fits_its_row() {
        let read = |id: &str| serde_json::from_value::<Executed>(serde_json::json!({ "id": id }));
        assert!(read("c").is_ok() && read(&"c".repeat(255)).is_ok());
        for wrong in ["", "a\0b", &"c".repeat(256), &"é".repeat(128)] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn nobody_sees_the_password_of_the_url() {
        let told = format!("{:?}", Outside::at("http://user:hunter2@h"));
        assert!(told.contains("look_up: true") && !told.contains("hunter2"), "{told}");
    }

    #[test]
    fn a_url_that_cannot_be_called_is_refused() {
        for right in ["http://127.0.0.1:1", "http://localhost:1/", "http://h:1/v1/"] {
            let client = Client::new(&Outside::at(right)).unwrap();
            assert!(!client.url.ends_with('/'), "{}", client.url);
        }
        for wrong in ["", "127.0.0.1:1", "https://h", "ftp://h", "http://h?x=1", "file:///x"] {
            assert!(Client::new(&Outside::at(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_profiles_say_what_was_configured() {
        let client = Client::new(&Outside::at("http://h")).unwrap();
        assert!(client.processor.looks_up() && client.mailer.looks_up());
        assert_eq!((client.processor.name.as_str(), client.mailer.name.as_str()), ("card-processor", "mailer"));
        assert!(client.mailer.retry.attempts > client.processor.retry.attempts);
        assert_eq!(client.processor.settles_after, Provider::http("any", Keys::None).settles_after);
        assert!(client.processor.check().is_ok() && client.mailer.check().is_ok());
        let blind = Client::new(&Outside { keys: Keys::None, look_up: false, ..Outside::at("http://h") }).unwrap();
        assert!(!blind.processor.looks_up() && blind.processor.keys == Keys::None);
    }
}
