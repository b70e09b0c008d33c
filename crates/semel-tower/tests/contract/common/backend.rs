//! The stores, each with a table that effects are counted in.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use semel::Store;
use semel_postgres::Isolation;
use semel_testkit::database::{TempDatabase, TempFile, sqlite_path};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How long SQLite waits for a file that somebody else has locked.
const PATIENCE: Duration = Duration::from_secs(1);

pub trait Backend: Sized + Send + Sync + 'static {
    type Store: Store;

    /// An empty, migrated store.
    fn start() -> impl Future<Output = Self>;

    fn store(&self) -> Self::Store;

    /// The effect: one row.
    fn act(tx: &mut <Self::Store as Store>::Tx, note: &str) -> impl Future<Output = Result<(), semel::Error>> + Send;

    /// Reads how many effects there are, in the transaction.
    fn count(tx: &mut <Self::Store as Store>::Tx) -> impl Future<Output = Result<(), semel::Error>> + Send;

    /// How many effects are committed.
    fn effects(&self) -> impl Future<Output = i64>;

    /// Lets all stored keys expire.
    fn expire_keys(&self) -> impl Future<Output = ()>;

    /// Lets all leases run out.
    fn expire_leases(&self) -> impl Future<Output = ()>;

    /// The states of all stored keys.
    fn states(&self) -> impl Future<Output = Vec<String>>;

    /// The executions of all stored keys.
    fn executions(&self) -> impl Future<Output = Vec<Vec<u8>>>;

    /// Makes the store unreachable for writes.
    fn break_off(&mut self) -> impl Future<Output = ()>;

    /// Undoes [`Backend::break_off`].
    fn mend(&mut self) -> impl Future<Output = ()>;
}

/// PostgreSQL behind a forwarder that can be cut.
pub struct Postgres {
    store: semel_postgres::Postgres,
    looking: tokio_postgres::Client,
    forwarder: Forwarder,
    _database: TempDatabase,
}

impl Postgres {
    pub async fn at(isolation: Isolation) -> Postgres {
        let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
        let forwarder = Forwarder::start(database.server_address()).await;
        let url = database.url_on_port(forwarder.address.port());
        let options = semel_postgres::Options { isolation, ..semel_postgres::Options::default() };
        let store = semel_postgres::Postgres::open(&url, options).unwrap();
        let looking = database.connect().await;
        looking.batch_execute("CREATE TABLE effects (note text NOT NULL)").await.unwrap();
        Postgres { store, looking, forwarder, _database: database }
    }
}

impl Backend for Postgres {
    type Store = semel_postgres::Postgres;

    async fn start() -> Postgres {
        Postgres::at(Isolation::ReadCommitted).await
    }

    fn store(&self) -> semel_postgres::Postgres {
        self.store.clone()
    }

    async fn act(tx: &mut semel_postgres::Tx, note: &str) -> Result<(), semel::Error> {
        tx.execute("INSERT INTO effects (note) VALUES ($1)", &[&note]).await.map(drop)
    }

    async fn count(tx: &mut semel_postgres::Tx) -> Result<(), semel::Error> {
        tx.query("SELECT count(*) FROM effects", &[]).await.map(drop)
    }

    async fn effects(&self) -> i64 {
        self.looking.query_one("SELECT count(*) FROM effects", &[]).await.unwrap().get(0)
    }

    async fn expire_keys(&self) {
        let sql = "UPDATE semel.keys SET created_at = created_at - interval '2 days', \
                   expires_at = expires_at - interval '2 days'";
        self.looking.batch_execute(sql).await.unwrap();
    }

    async fn expire_leases(&self) {
        let sql = "UPDATE semel.keys SET lease_expires_at = lease_expires_at - interval '1 day' \
                   WHERE lease_expires_at IS NOT NULL";
        self.looking.batch_execute(sql).await.unwrap();
    }

    async fn states(&self) -> Vec<String> {
        let rows = self.looking.query("SELECT state::text FROM semel.keys ORDER BY key", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn executions(&self) -> Vec<Vec<u8>> {
        let rows = self.looking.query("SELECT uuid_send(execution) FROM semel.keys ORDER BY key", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn break_off(&mut self) {
        self.forwarder.cut().await;
    }

    async fn mend(&mut self) {
        self.forwarder.resume().await;
    }
}

/// SQLite in a file, with a second connection to look with and to lock the file with.
pub struct Sqlite {
    store: semel_sqlite::Sqlite,
    looking: std::sync::Mutex<rusqlite::Connection>,
    _file: TempFile,
}

impl Sqlite {
    fn look<T>(&self, with: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T>) -> T {
        with(&self.looking.lock().unwrap()).unwrap()
    }

    fn column<T: rusqlite::types::FromSql>(&self, sql: &str) -> Vec<T> {
        self.look(|looking| looking.prepare(sql)?.query_map([], |row| row.get(0))?.collect())
    }
}

impl Backend for Sqlite {
    type Store = semel_sqlite::Sqlite;

    async fn start() -> Sqlite {
        let file = sqlite_path();
        semel_sqlite::migrate(file.path()).await.unwrap();
        let options = semel_sqlite::Options { busy_timeout: PATIENCE, ..semel_sqlite::Options::default() };
        let store = semel_sqlite::Sqlite::open(file.path(), options).await.unwrap();
        let looking = rusqlite::Connection::open(file.path()).unwrap();
        looking.busy_timeout(Duration::from_secs(5)).unwrap();
        looking.execute_batch("CREATE TABLE effects (note TEXT NOT NULL) STRICT").unwrap();
        Sqlite { store, looking: looking.into(), _file: file }
    }

    fn store(&self) -> semel_sqlite::Sqlite {
        self.store.clone()
    }

    async fn act(tx: &mut semel_sqlite::Tx, note: &str) -> Result<(), semel::Error> {
        tx.execute("INSERT INTO effects (note) VALUES (?1)", [note]).await.map(drop)
    }

    async fn count(tx: &mut semel_sqlite::Tx) -> Result<(), semel::Error> {
        tx.query_row("SELECT count(*) FROM effects", [], |_| Ok(())).await
    }

    async fn effects(&self) -> i64 {
        self.look(|looking| looking.query_row("SELECT count(*) FROM effects", [], |row| row.get(0)))
    }

    async fn expire_keys(&self) {
        let sql = "UPDATE semel_keys SET created_at = created_at - 172800000, expires_at = expires_at - 172800000";
        self.look(|looking| looking.execute_batch(sql));
    }

    async fn expire_leases(&self) {
        let sql = "UPDATE semel_keys SET lease_expires_at = lease_expires_at - 86400000 \
                   WHERE lease_expires_at IS NOT NULL";
        self.look(|looking| looking.execute_batch(sql));
    }

    async fn states(&self) -> Vec<String> {
        self.column("SELECT state FROM semel_keys ORDER BY key")
    }

    async fn executions(&self) -> Vec<Vec<u8>> {
        self.column("SELECT execution FROM semel_keys ORDER BY key")
    }

    async fn break_off(&mut self) {
        self.look(|looking| looking.execute_batch("BEGIN EXCLUSIVE"));
    }

    async fn mend(&mut self) {
        self.look(|looking| looking.execute_batch("ROLLBACK"));
    }
}

/// Forwards TCP connections until it is cut, and again on the same port when it resumes.
struct Forwarder {
    address: SocketAddr,
    target: SocketAddr,
    accepting: Option<tokio::task::JoinHandle<()>>,
}

impl Forwarder {
    async fn start(target: SocketAddr) -> Forwarder {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = Some(tokio::spawn(forward(listener, target)));
        Forwarder { address, target, accepting }
    }

    /// Closes the listener and every connection.
    async fn cut(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            let _ = accepting.await;
        }
    }

    async fn resume(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.accepting = Some(tokio::spawn(forward(listener, self.target)));
    }
}

async fn forward(listener: TcpListener, target: SocketAddr) {
    let mut connections = JoinSet::new();
    while let Ok((mut inward, _)) = listener.accept().await {
        connections.spawn(async move {
            if let Ok(mut outward) = TcpStream::connect(target).await {
                let _ = tokio::io::copy_bidirectional(&mut inward, &mut outward).await;
            }
        });
    }
}
