//! A database for one test, on a real server.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio_postgres::{Client, NoTls};

use crate::address::PostgresUrl;
use crate::cluster::target_dir;

/// The variable that names the server tests create their databases on.
pub const SERVER_VARIABLE: &str = "SEMEL_TEST_POSTGRES_URL";

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
        let server = PostgresUrl::parse(url).unwrap_or_else(|wrong| panic!("{wrong}: {url}"));
        let name = format!("semel_test_{}", uuid::Uuid::new_v4().simple());
        let admin = connect(&server.to_string()).await;
        // Nobody can be connected to template0, so parallel tests do not get in each other's way.
        admin.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0")).await.unwrap();
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
