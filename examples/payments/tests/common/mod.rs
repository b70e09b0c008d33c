//! The service over real HTTP, on either store.
#![allow(dead_code, unused_macros, clippy::unwrap_used, missing_docs, unreachable_pub)]

pub mod outside;

use std::time::Duration;

use reqwest::{Client, Method, StatusCode};
use semel::consume::Fate;
use semel::flow::{Change, FlowFilter};
use semel::inbox::Delivery;
use semel::operator::Audit;
use semel::outbox::{Cursor, PageLimit, Written};
use semel::runner::Failure;
use semel::sink::Lane;
use semel::source::Recognition;
use semel::{Consumed, Consumer, Handler, Inbox, Message, Outbox, Semel};
use semel_payments::{Ledger, Options, PaymentsConsumer};
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::database::{TempDatabase, TempFile, sqlite_path};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Makes a test of each named function on each store.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::common::App::on_postgres().await).await;
            })*
        }

        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::common::App::on_sqlite().await).await;
            })*
        }
    };
}
#[allow(unused_imports)]
pub(crate) use on_both_stores;

pub struct App {
    pub url: String,
    http: Client,
    server: JoinHandle<()>,
    database: Database,
    completer: Box<dyn Fn() -> JoinHandle<()> + Send + Sync>,
}

/// The service's completer, which runs until this is dropped.
pub struct Completing(JoinHandle<()>);

impl Drop for Completing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

enum Database {
    Nowhere,
    Postgres(TempDatabase),
    Sqlite(TempFile),
}

/// An answer, read to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub replayed: bool,
    pub content_type: String,
    pub body: Vec<u8>,
    pub headers: reqwest::header::HeaderMap,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// Asserts that this is a problem with this status and code, and well formed.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.content_type, "application/problem+json", "{self:?}");
        let body = self.json();
        assert_eq!((self.status, body["code"].as_str()), (status, Some(code)), "{body}");
        assert_eq!(body["type"], format!("urn:semel:problem:{code}"));
        assert_eq!(body["status"], status);
        assert!(body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{body}");
    }

    #[track_caller]
    pub fn is(&self, status: u16, body: &Value) {
        assert_eq!((self.status, &self.json()), (status, body));
        assert_eq!(self.content_type, "application/json");
    }
}

impl App {
    pub async fn on_postgres() -> App {
        App::on_postgres_with(semel_postgres::Options::default()).await
    }

    pub async fn on_postgres_with(options: semel_postgres::Options) -> App {
        App::on_postgres_as(options, Options::default()).await
    }

    pub async fn on_postgres_as(options: semel_postgres::Options, service: Options) -> App {
        let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
        let store = Postgres::open(&database.url(), options).unwrap();
        App::install_and_serve(store, Database::Postgres(database), service).await
    }

    /// On a port that was free a moment ago and where nobody listens.
    pub async fn on_unreachable_postgres() -> App {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://postgres@{}/none", listener.local_addr().unwrap());
        drop(listener);
        let store = Postgres::open(&url, semel_postgres::Options::default()).unwrap();
        App::serve(store, Database::Nowhere, Options::default()).await
    }

    pub async fn on_sqlite() -> App {
        App::on_sqlite_as(Options::default()).await
    }

    pub async fn on_sqlite_as(service: Options) -> App {
        let file = sqlite_path();
        let store = Sqlite::open(file.path(), semel_sqlite::Options::default()).await.unwrap();
        store.migrate().await.unwrap();
        App::install_and_serve(store, Database::Sqlite(file), service).await
    }

    async fn install_and_serve<S: Ledger>(store: S, database: Database, service: Options) -> App {
        // At once and again, as several processes that start on one database do.
        let (one, other) = tokio::join!(semel_payments::install(&store), semel_payments::install(&store));
        one.and(other).unwrap();
        semel_payments::install(&store).await.unwrap();
        App::serve(store, database, service).await
    }

    async fn serve<S: Ledger>(store: S, database: Database, service: Options) -> App {
        let semel = Semel::new(store);
        let router = semel_payments::router(semel.clone(), service.clone()).unwrap();
        let completer = Box::new(move || {
            let completer = semel_payments::completer(&semel, &service).unwrap().expect("there is somebody to call");
            tokio::spawn(async move { completer.run(std::future::pending::<()>()).await })
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let http = Client::builder().timeout(Duration::from_secs(60)).build().unwrap();
        App { url, http, server, database, completer }
    }

    /// Goes on with what was interrupted, and sends mails, from now on.
    pub fn complete(&self) -> Completing {
        Completing((self.completer)())
    }

    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    pub async fn send(request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        let headers = response.headers().clone();
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        Answer {
            status: response.status().as_u16(),
            replayed: text("idempotent-replayed") == "true",
            content_type: text("content-type"),
            body: response.bytes().await.unwrap().to_vec(),
            headers,
        }
    }

    pub async fn get_as(&self, token: &str, path: &str) -> Answer {
        App::send(self.request(Method::GET, path).bearer_auth(token)).await
    }

    pub async fn put_as(&self, token: &str, path: &str, body: Value) -> Answer {
        App::send(self.request(Method::PUT, path).bearer_auth(token).json(&body)).await
    }

    pub async fn post_as(&self, token: &str, path: &str, key: &str, body: Value) -> Answer {
        let request = self.request(Method::POST, path).bearer_auth(token).header("Idempotency-Key", key);
        App::send(request.json(&body)).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.get_as("demo-a1", path).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.put_as("demo-a1", path, body).await
    }

    pub async fn post(&self, path: &str, key: &str, body: Value) -> Answer {
        self.post_as("demo-a1", path, key, body).await
    }

    /// The bank's webhook: no idempotency key.
    pub async fn webhook(&self, body: Value) -> Answer {
        App::send(self.request(Method::POST, "/webhooks/bank").bearer_auth("demo-a1").json(&body)).await
    }

    /// Opens an account of tenant `a` in EUR with this balance.
    pub async fn account(&self, id: &str, balance: i64) {
        assert_eq!(
            self.put(&format!("/accounts/{id}"), json!({ "currency": "EUR" })).await.status,
            StatusCode::CREATED
        );
        if balance > 0 {
            let body = json!({ "account": id, "amount": balance, "currency": "EUR" });
            assert_eq!(self.put(&format!("/charges/open-{id}"), body).await.status, StatusCode::CREATED);
        }
    }

    pub async fn balance(&self, id: &str) -> i64 {
        self.get(&format!("/accounts/{id}")).await.json()["balance"].as_i64().unwrap()
    }

    pub async fn summary(&self) -> Value {
        self.get("/ledger/summary").await.json()
    }

    /// Asks the database itself, past the service.
    pub async fn number(&self, sql: &str) -> i64 {
        match &self.database {
            Database::Nowhere => panic!("there is no database to ask"),
            Database::Postgres(database) => database.connect().await.query_one(sql, &[]).await.unwrap().get(0),
            Database::Sqlite(file) => {
                let connection = semel_sqlite::rusqlite::Connection::open(file.path()).unwrap();
                connection.query_row(sql, (), |row| row.get(0)).unwrap()
            }
        }
    }

    /// Every event that was committed, in order, as a relay reads them.
    pub async fn events(&self) -> Vec<Written> {
        match &self.database {
            Database::Nowhere => panic!("there is no database to ask"),
            Database::Postgres(database) => {
                written(&Postgres::open(&database.url(), semel_postgres::Options::default()).unwrap()).await
            }
            Database::Sqlite(file) => {
                written(&Sqlite::open(file.path(), semel_sqlite::Options::default()).await.unwrap()).await
            }
        }
    }

    /// Gives a message to one of the consumers, as a runner does.
    pub async fn give(&self, name: &str, generation: u32, message: &Message) -> Given {
        match &self.database {
            Database::Nowhere => panic!("there is no database to ask"),
            Database::Postgres(database) => {
                let store = Postgres::open(&database.url(), semel_postgres::Options::default()).unwrap();
                given(store, name, generation, message).await
            }
            Database::Sqlite(file) => {
                let store = Sqlite::open(file.path(), semel_sqlite::Options::default()).await.unwrap();
                given(store, name, generation, message).await
            }
        }
    }

    /// Gives messages to one of the consumers in one batch, as a runner does that has them at hand.
    pub async fn give_all(&self, name: &str, messages: &[Message]) -> Vec<Fate<Failure>> {
        match &self.database {
            Database::Nowhere => panic!("there is no database to ask"),
            Database::Postgres(database) => {
                let store = Postgres::open(&database.url(), semel_postgres::Options::default()).unwrap();
                given_all(store, name, messages).await
            }
            Database::Sqlite(file) => {
                let store = Sqlite::open(file.path(), semel_sqlite::Options::default()).await.unwrap();
                given_all(store, name, messages).await
            }
        }
    }

    /// How many keys of this operation have completed.
    pub async fn completed(&self, operation: &str) -> i64 {
        let keys = self.semels("keys");
        self.number(&format!("SELECT count(*) FROM {keys} WHERE operation = '{operation}' AND state = 'completed'"))
            .await
    }

    /// Loses every flow and every key, as a restore of an old backup does.
    pub async fn lose_flows(&self) {
        for table in ["flow_steps", "flows", "keys"] {
            let sql = format!("DELETE FROM {}", self.semels(table));
            match &self.database {
                Database::Nowhere => panic!("there is no database to ask"),
                Database::Postgres(database) => database.connect().await.batch_execute(&sql).await.unwrap(),
                Database::Sqlite(file) => {
                    semel_sqlite::rusqlite::Connection::open(file.path()).unwrap().execute_batch(&sql).unwrap();
                }
            }
        }
    }

    /// What a table of Semel's is called here.
    fn semels(&self, table: &str) -> String {
        if matches!(self.database, Database::Sqlite(_)) { format!("semel_{table}") } else { format!("semel.{table}") }
    }

    /// Has the only flow of this name undone, as an operator does.
    pub async fn cancel(&self, flow: &str) {
        match &self.database {
            Database::Nowhere => panic!("there is no database to ask"),
            Database::Postgres(database) => {
                cancelled(Postgres::open(&database.url(), semel_postgres::Options::default()).unwrap(), flow).await;
            }
            Database::Sqlite(file) => {
                cancelled(Sqlite::open(file.path(), semel_sqlite::Options::default()).await.unwrap(), flow).await;
            }
        }
    }

    /// The books as the database holds them: every movement has two sides that cancel, and every balance is the sum of
    /// its entries.
    pub async fn books_are_right(&self) {
        let unbalanced = "SELECT count(*) FROM (SELECT 1 FROM payments_entries GROUP BY tenant, kind, reference \
                          HAVING sum(amount) <> 0 OR count(*) <> 2) movements";
        assert_eq!(self.number(unbalanced).await, 0, "a movement without its other side");
        let wrong = "SELECT count(*) FROM payments_accounts a WHERE balance <> (SELECT coalesce(sum(amount), 0) \
                     FROM payments_entries e WHERE e.tenant = a.tenant AND e.account = a.id AND NOT e.external)";
        assert_eq!(self.number(wrong).await, 0, "a balance that is not the sum of its entries");
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// An event as a source hands it out.
pub fn message(written: &Written) -> Message {
    let event = &written.event;
    Message {
        id: written.id.to_string(),
        topic: event.topic.clone(),
        ordering_key: event.ordering_key.clone(),
        message_type: event.event_type.clone(),
        producer: "semel".to_owned(),
        content_type: event.content_type.clone(),
        payload: event.payload.clone(),
        headers: Vec::new(),
        sequence: None,
        offset: None,
    }
}

/// What became of a message.
pub type Given = Result<Consumed<()>, semel::once::Error<Failure>>;

async fn given<S: Ledger + Inbox>(store: S, name: &str, generation: u32, message: &Message) -> Given {
    let handler = PaymentsConsumer::named(name, generation).unwrap();
    let consumer = Consumer::new(name).unwrap().in_generation(generation);
    let delivery = delivered::<S>(&handler, message);
    let effect = async |tx: &mut S::Tx| Handler::<S>::apply(&handler, tx, message).await;
    Semel::new(store).consume(&consumer, &delivery, effect).await
}

async fn given_all<S: Ledger + Inbox>(store: S, name: &str, messages: &[Message]) -> Vec<Fate<Failure>> {
    struct Item<'a>(&'a Message, Delivery);
    impl AsRef<Delivery> for Item<'_> {
        fn as_ref(&self) -> &Delivery {
            &self.1
        }
    }
    let handler = PaymentsConsumer::named(name, 0).unwrap();
    let consumer = Consumer::new(name).unwrap();
    let items: Vec<Item<'_>> =
        messages.iter().map(|message| Item(message, delivered::<S>(&handler, message))).collect();
    let effect = async |tx: &mut S::Tx, item: &Item<'_>| Handler::<S>::apply(&handler, tx, item.0).await;
    Semel::new(store).consume_all(&consumer, &items, effect).await.unwrap()
}

fn delivered<S: Ledger>(handler: &PaymentsConsumer, message: &Message) -> Delivery {
    let delivery = message.delivery(Recognition::Id).unwrap().unwrap();
    match Handler::<S>::version(handler, message) {
        Some(version) => delivery.with_version(version).unwrap(),
        None => delivery,
    }
}

async fn cancelled<S: Ledger>(store: S, flow: &str) {
    let filter = FlowFilter { flow: Some(flow.to_owned()), tenant: None, state: None, limit: 10 };
    let found = store.list_flows(&filter).await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    let audit = Audit { actor: "ada".to_owned(), reason: "the customer called".to_owned() };
    let change = store.cancel_flow(found[0].execution, &audit, false).await.unwrap();
    assert!(matches!(change, Change::Made(_)), "{change:?}");
}

async fn written(outbox: &impl Outbox) -> Vec<Written> {
    let (mut events, mut after, lanes) = (Vec::new(), Cursor::START, Lane::all().collect::<Vec<_>>());
    while let Some(page) = outbox.page(after, &lanes, PageLimit { events: 100, bytes: 1 << 20 }).await.unwrap() {
        events.extend(page.events);
        after = page.upto;
    }
    events
}
