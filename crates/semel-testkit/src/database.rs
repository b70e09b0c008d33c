//! A database for one test, on a real server.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

use crate::address::PostgresUrl;
use crate::cluster::target_dir;

/// The variable that names the server tests create their databases on.
pub const SERVER_VARIABLE: &str = "SEMEL_TEST_POSTGRES_URL";

/// How long a session may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serialises the making of templates: "making" in ASCII.
const MAKING: i64 = 0x6d61_6b69_6e67;

/// A fresh, empty PostgreSQL database with a name of its own. Dropping it drops the database, with whatever sessions
/// it still has; a test that panicked leaves it behind and prints its URL.
#[derive(Debug)]
pub struct TempDatabase {
    server: PostgresUrl,
    url: PostgresUrl,
}

impl TempDatabase {
    /// Creates a database on the server of `SEMEL_TEST_POSTGRES_URL`, else of `cargo xtask services up`. Panics with
    /// the command to run if there is none.
    pub async fn create() -> TempDatabase {
        TempDatabase::create_on(&server_url()).await
    }

    /// Creates a database on the server that `url` leads to, such as a [`crate::cluster::Cluster`] of the test's own.
    pub async fn create_on(url: &str) -> TempDatabase {
        // Nobody can be connected to template0, so parallel tests do not get in each other's way.
        TempDatabase::copy(url, "template0").await
    }

    /// Creates a database with this schema of Semel, on the server of [`TempDatabase::create`].
    ///
    /// The script runs once per server: every database after that is copied from the first, which stays there as
    /// `semel_template_…`. Copying takes as long as making an empty one; a schema of hundreds of functions takes many
    /// times that.
    pub async fn with_schema(script: &str) -> TempDatabase {
        let server = server_url();
        let template = template(&server, script).await;
        let database = TempDatabase::copy(&server, &template).await;
        // What counts from the beginning of the database counts from now.
        let renew = "UPDATE semel.slots SET opened_at = clock_timestamp() WHERE opened_at IS NOT NULL";
        database.connect().await.batch_execute(renew).await.unwrap();
        database
    }

    async fn copy(url: &str, template: &str) -> TempDatabase {
        let server = PostgresUrl::parse(url).unwrap_or_else(|wrong| panic!("{wrong}: {url}"));
        let name = format!("semel_test_{}", uuid::Uuid::new_v4().simple());
        let admin = connect(&server.to_string()).await;
        admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await.unwrap();
        TempDatabase { url: server.with_database(&name), server }
    }

    /// How to reach the database.
    pub fn url(&self) -> String {
        self.url.to_string()
    }

    /// How to reach the database through a proxy or pooler on this port of 127.0.0.1.
    pub fn url_on_port(&self, port: u16) -> String {
        self.url.with_port(port).to_string()
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.url.database
    }

    /// Where the server itself listens: what a proxy forwards to.
    pub fn server_address(&self) -> SocketAddr {
        use std::net::ToSocketAddrs;
        let mut addresses = self.server.authority().to_socket_addrs().unwrap();
        addresses.next().expect("the server's host has an address")
    }

    /// A plain session in the database, for a test to look with.
    pub async fn connect(&self) -> Client {
        connect(&self.url()).await
    }
}

impl Drop for TempDatabase {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the test's database is kept: {}", self.url());
            return;
        }
        let (server, name) = (self.server.to_string(), self.url.database.clone());
        // Dropping happens inside the test's runtime, where one cannot block on another; a thread of its own can.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(&server, NoTls).await?;
                let session = tokio::spawn(connection);
                client.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
                drop(client);
                let _ = session.await;
                Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
            })
        });
        // A test that killed its server has nothing left to drop.
        if let Ok(Err(error)) = dropping.join() {
            eprintln!("the test's database {} could not be dropped: {error}", self.url());
        }
    }
}

/// The name of the database in which the script has run. Whoever asks first makes it, and nobody can connect to it.
async fn template(url: &str, script: &str) -> String {
    let mut hasher = DefaultHasher::new();
    script.hash(&mut hasher);
    let (hash, server) = (hasher.finish(), PostgresUrl::parse(url).unwrap_or_else(|wrong| panic!("{wrong}: {url}")));
    let (name, half) = (format!("semel_template_{hash:016x}"), format!("semel_half_{}", uuid::Uuid::new_v4().simple()));
    let admin = connect(url).await;
    // One maker at a time, of all test processes; the lock goes with this session.
    admin.execute("SELECT pg_advisory_lock($1)", &[&MAKING]).await.unwrap();
    let known = admin.query("SELECT FROM pg_database WHERE datname = $1", &[&name]).await.unwrap();
    if known.is_empty() {
        // What a maker left who was killed.
        let halves =
            admin.query("SELECT datname FROM pg_database WHERE datname LIKE 'semel\\_half\\_%'", &[]).await.unwrap();
        for row in halves {
            let drops = format!("DROP DATABASE {} WITH (FORCE)", row.get::<_, &str>(0));
            admin.batch_execute(&drops).await.unwrap();
        }
        admin.batch_execute(&format!("CREATE DATABASE {half} TEMPLATE template0")).await.unwrap();
        let (client, connection) =
            tokio_postgres::connect(&server.with_database(&half).to_string(), NoTls).await.unwrap();
        let session = tokio::spawn(connection);
        client.batch_execute(script).await.unwrap();
        drop(client);
        // A database that somebody is connected to cannot be renamed; the server may see this session a moment longer.
        let _ = session.await;
        let (there, gives_up) = ("SELECT FROM pg_stat_activity WHERE datname = $1", Instant::now() + PATIENCE);
        while !admin.query(there, &[&half]).await.unwrap().is_empty() {
            assert!(Instant::now() < gives_up, "somebody is connected to {half}");
        }
        let finish = [
            format!("ALTER DATABASE {half} ALLOW_CONNECTIONS false"),
            format!("ALTER DATABASE {half} RENAME TO {name}"),
        ];
        for statement in finish {
            admin.batch_execute(&statement).await.unwrap();
        }
    }
    name
}

/// The server that tests use. Panics with the command to run if there is none.
pub fn server_url() -> String {
    if let Ok(url) = std::env::var(SERVER_VARIABLE) {
        return url;
    }
    let file = target_dir().join("services/env");
    let written = std::fs::read_to_string(file).unwrap_or_default();
    let prefix = format!("export {SERVER_VARIABLE}=");
    let url = written.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_else(|| {
        panic!("no PostgreSQL to test on: run `cargo xtask services up`, or set {SERVER_VARIABLE} to a server's URL")
    });
    url.trim_matches('\'').to_owned()
}

/// A path for a SQLite file that is not there yet, in a directory that goes when this does; kept if the test panicked.
#[derive(Debug)]
pub struct TempFile {
    directory: Option<tempfile::TempDir>,
    path: PathBuf,
}

/// A fresh path for one test's SQLite file.
pub fn sqlite_path() -> TempFile {
    // Below the target directory and not in /tmp, which may be memory: commits shall meet a real file system.
    let parent = target_dir().join("sqlite");
    std::fs::create_dir_all(&parent).unwrap();
    let directory = tempfile::Builder::new().prefix("test-").tempdir_in(parent).unwrap();
    let path = directory.path().join("semel.db");
    TempFile { directory: Some(directory), path }
}

impl TempFile {
    /// The path.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The path as `sqlite:PATH`.
    pub fn url(&self) -> String {
        format!("sqlite:{}", self.path.display())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(directory) = self.directory.take()
        {
            let _ = directory.keep();
            eprintln!("the test's database is kept: {}", self.path.display());
        }
    }
}

/// Opens a session whose connection is driven in the background. Panics with the command to run if nobody answers.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .unwrap_or_else(|error| panic!("{url} does not answer ({error}): run `cargo xtask services up`"));
    tokio::spawn(connection);
    client
}
