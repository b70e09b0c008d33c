//! A database, the processes that serve it, and clients that retry.

use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::Client;
use semel_testkit::control::Control;
use semel_testkit::database::{TempDatabase, TempFile, sqlite_path};
use semel_testkit::process::Service;
use serde_json::{Value, json};

pub(crate) const SEMEL: &str = env!("CARGO_BIN_EXE_semel");

/// What one charge moves.
pub(crate) const AMOUNT: u64 = 500;

/// How long anything that must happen may take before a test gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A database of the test's own, on either store.
pub(crate) enum Database {
    Postgres(TempDatabase),
    Sqlite(TempFile),
}

impl Database {
    pub(crate) async fn postgres() -> Database {
        Database::Postgres(TempDatabase::with_schema(&semel_postgres::schema_sql()).await)
    }

    pub(crate) fn sqlite() -> Database {
        Database::Sqlite(sqlite_path())
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Database::Postgres(database) => database.url(),
            Database::Sqlite(file) => file.url(),
        }
    }
}

/// A running sandbox and a client of it.
pub(crate) struct Sandbox {
    pub(crate) service: Service,
    pub(crate) client: Client,
}

/// What a charge was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) replayed: bool,
    pub(crate) body: Bytes,
}

impl Sandbox {
    pub(crate) async fn start(url: &str, environment: &[(&str, &str)]) -> Sandbox {
        let arguments = ["sandbox", "--listen", "127.0.0.1:0", "--sandbox-consume", "false", "--database-url", url];
        let service = Service::spawn(SEMEL, &arguments, environment).await;
        Sandbox { service, client: client() }
    }

    /// A sandbox whose first request to reach `point` stops there and tells `control`.
    pub(crate) async fn start_armed(url: &str, point: &str, control: &Control, more: &[(&str, &str)]) -> Sandbox {
        let (armed, address) = (format!("{point}=1*return"), control.address().to_string());
        let mut environment = vec![("FAILPOINTS", armed.as_str()), ("SEMEL_FAILPOINT_CONTROL", &address)];
        environment.extend(more);
        Sandbox::start(url, &environment).await
    }

    pub(crate) async fn open_account(&self, id: &str) {
        let url = self.service.url(&format!("/accounts/{id}"));
        let request = self.client.put(url).bearer_auth("demo-a1").json(&json!({"currency": "EUR"}));
        assert!(request.send().await.unwrap().status().is_success());
    }

    pub(crate) async fn charge(&self, key: &str) -> Answer {
        self.try_charge(key).await.unwrap()
    }

    pub(crate) async fn try_charge(&self, key: &str) -> reqwest::Result<Answer> {
        charge(&self.client, &self.service.url("/charges"), "demo-a1", key, "alice").await
    }

    /// Charges like a careful client: as long as it is told to come back, it comes back with the same key.
    pub(crate) async fn charge_until_answered(&self, key: &str) -> Answer {
        let gives_up = Instant::now() + PATIENCE;
        loop {
            let answer = self.charge(key).await;
            if !matches!(answer.status, 409 | 503) {
                return answer;
            }
            assert!(Instant::now() < gives_up, "the key stayed busy: {answer:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn balance(&self, id: &str) -> u64 {
        let url = self.service.url(&format!("/accounts/{id}"));
        let account: Value = self.client.get(url).bearer_auth("demo-a1").send().await.unwrap().json().await.unwrap();
        account["balance"].as_u64().unwrap()
    }

    pub(crate) async fn summary(&self) -> Value {
        let url = self.service.url("/ledger/summary");
        self.client.get(url).bearer_auth("demo-a1").send().await.unwrap().json().await.unwrap()
    }
}

pub(crate) async fn charge(
    client: &Client,
    url: &str,
    token: &str,
    key: &str,
    account: &str,
) -> reqwest::Result<Answer> {
    let request = client.post(url).bearer_auth(token).header("Idempotency-Key", format!("\"{key}\""));
    let body = json!({"account": account, "amount": AMOUNT, "currency": "EUR"});
    let response = request.json(&body).send().await?;
    let status = response.status().as_u16();
    let replayed = response.headers().contains_key("idempotent-replayed");
    Ok(Answer { status, replayed, body: response.bytes().await? })
}

pub(crate) fn client() -> Client {
    Client::builder().no_proxy().timeout(PATIENCE).build().unwrap()
}
