//! Somebody to call: the card processor and mailer of `examples/provider`, in this process.

use std::time::Duration;

use reqwest::Client;
use semel::flow;
use semel::provider::{Keys, Retry};
use semel_payments::{Options, Outside};
use semel_provider::Provider;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpSocket;

/// Makes a test of each named function on each store, with somebody to call and the service set up by `$options`.
macro_rules! ordering_on_both_stores {
    ($postgres:ident, $sqlite:ident, $options:expr; $($name:ident),* $(,)?) => {
        mod $postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let outside = crate::common::outside::Somebody::start().await;
                let service = ($options)(&outside);
                let app = crate::common::App::on_postgres_as(semel_postgres::Options::default(), service).await;
                super::$name(app, outside).await;
            })*
        }

        mod $sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let outside = crate::common::outside::Somebody::start().await;
                let service = ($options)(&outside);
                let app = crate::common::App::on_sqlite_as(service).await;
                super::$name(app, outside).await;
            })*
        }
    };
}
#[allow(unused_imports)]
pub(crate) use ordering_on_both_stores;

/// Somebody whose own ledger says what was executed.
pub struct Somebody {
    provider: Provider,
    http: Client,
    // Bound, so that nobody else gets the port, and not listening.
    closed: TcpSocket,
    // Dropped last: the ledger is in it.
    _folder: TempDir,
}

impl Somebody {
    pub async fn start() -> Somebody {
        let folder = tempfile::tempdir().unwrap();
        let options = semel_provider::Options::new(folder.path().join("ledger.db"));
        let provider = Provider::bind("127.0.0.1:0".parse().unwrap(), options).await.unwrap();
        let http = Client::builder().timeout(Duration::from_secs(60)).build().unwrap();
        let closed = TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Somebody { provider, http, closed, _folder: folder }
    }

    fn outside(&self) -> Outside {
        let retry = Retry { least: Duration::from_millis(10), ..Retry::default() };
        Outside { retry, ..Outside::at(self.provider.url("")) }
    }

    /// A service that knows what they promise.
    pub fn trusted(&self) -> Options {
        Options { outside: Some(self.outside()), ..Options::default() }
    }

    /// A service that takes them to keep no keys and to answer no questions.
    pub fn blind(&self) -> Options {
        let outside = Outside { keys: Keys::None, look_up: false, ..self.outside() };
        Options { outside: Some(outside), ..Options::default() }
    }

    /// A service that calls where nobody listens, and gives up soon.
    pub fn away(&self) -> Options {
        let retry = Retry { attempts: 2, ..self.outside().retry };
        let url = format!("http://{}", self.closed.local_addr().unwrap());
        Options { outside: Some(Outside { retry, ..Outside::at(url) }), ..Options::default() }
    }

    /// A service that calls them where they are not.
    pub fn misplaced(&self) -> Options {
        let outside = Outside { url: self.provider.url("/nowhere"), ..self.outside() };
        Options { outside: Some(outside), ..Options::default() }
    }

    /// A service whose flows wait for nothing in the process, so that a pause is somebody else's to end.
    pub fn impatient(&self) -> Options {
        let flows = flow::Settings { patience: Duration::ZERO, ..flow::Settings::default() };
        Options { flows, ..self.trusted() }
    }

    async fn get(&self, path: &str) -> Value {
        self.http.get(self.provider.url(path)).send().await.unwrap().json().await.unwrap()
    }

    /// What they did, of one kind.
    pub async fn executed(&self, kind: &str) -> Vec<Value> {
        let ledger = self.get("/ledger").await;
        let done = |entry: &&Value| entry["kind"] == kind && entry["outcome"] == "succeeded";
        ledger.as_array().unwrap().iter().filter(done).cloned().collect()
    }

    /// How many requests reached them, executed or not.
    pub async fn received(&self, path: &str) -> i64 {
        self.get("/requests").await["by_path"][path].as_i64().unwrap_or(0)
    }

    /// How many different keys these carried.
    pub async fn keys(&self) -> usize {
        self.get("/requests").await["by_key"].as_object().unwrap().len()
    }

    /// The next request of this kind goes wrong like this.
    pub async fn fault(&self, kind: &str, fault: Value) {
        let request = self.http.post(self.provider.url("/faults")).json(&json!({ "kind": kind, "fault": fault }));
        assert_eq!(request.send().await.unwrap().status(), 201);
    }
}
