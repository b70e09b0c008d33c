//! A private pgbouncer.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::account::{Account, find_program};
use crate::address::PostgresUrl;
use crate::cluster::{free_port, target_dir};

const PORT_ATTEMPTS: u32 = 5;
const WAIT: Duration = Duration::from_secs(20);

/// For how long a client of the pooler has a session of the server to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For a transaction: each may get another one, and no statement prepared by name survives.
    Transaction,
    /// For as long as the client is connected.
    Session,
}

/// A running pooler. Dropping it ends it.
#[derive(Debug)]
pub struct Bouncer {
    child: Child,
    server: PostgresUrl,
    port: u16,
    account: Account,
    dir: PathBuf,
    home: PathBuf,
}

impl Bouncer {
    /// Starts a pooler in transaction mode in front of the server that `postgres_url` leads to, for all its databases.
    pub fn start(postgres_url: &str) -> io::Result<Bouncer> {
        Bouncer::start_in(Mode::Transaction, postgres_url)
    }

    /// The same in another mode.
    pub fn start_in(mode: Mode, postgres_url: &str) -> io::Result<Bouncer> {
        let server = PostgresUrl::parse(postgres_url).map_err(io::Error::other)?;
        let program = find_program("pgbouncer").ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "pgbouncer was not found: run `apt-get install pgbouncer`")
        })?;
        static SERIAL: AtomicU32 = AtomicU32::new(1);
        let account = Account::for_servers()?;
        let name = format!("{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let dir = target_dir().join("pgbouncer").join(name);
        let mut attempt = 1;
        loop {
            let home = account.directory(&dir)?;
            let port = free_port()?;
            let settings = home.join("pgbouncer.ini");
            account.write(&settings, &configuration(mode, &server, port))?;
            let log = std::fs::File::create(home.join("pgbouncer.log"))?;
            let child = account
                .command(&program)
                .arg(&settings)
                .current_dir(&home)
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()?;
            let mut bouncer = Bouncer { child, server: server.clone(), port, account, dir: dir.clone(), home };
            match bouncer.wait_until_it_listens() {
                Ok(()) => return Ok(bouncer),
                // Another process may take the port between our look and the pooler's bind.
                Err(_) if attempt < PORT_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How to reach `database` through the pooler.
    pub fn url_for(&self, database: &str) -> String {
        self.server.with_database(database).with_port(self.port).to_string()
    }

    fn wait_until_it_listens(&mut self) -> io::Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let deadline = Instant::now() + WAIT;
        loop {
            let ended = self.child.try_wait()?.is_some();
            if !ended && TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                return Ok(());
            }
            if ended || Instant::now() > deadline {
                let log = std::fs::read_to_string(self.home.join("pgbouncer.log")).unwrap_or_default();
                return Err(io::Error::other(format!("pgbouncer did not start:\n{log}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            self.account.remove_directory(&self.dir);
        }
    }
}

fn configuration(mode: Mode, server: &PostgresUrl, port: u16) -> String {
    // With auth_type any, clients are let in and every server session is opened as the one user named here.
    let user = if server.user_name().is_empty() { "postgres" } else { server.user_name() };
    let password = server.password().map(|password| format!(" password={password}")).unwrap_or_default();
    let mode = match mode {
        Mode::Transaction => "transaction",
        Mode::Session => "session",
    };
    format!(
        "[databases]\n* = host={} port={} user={user}{password}\n\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\nmax_client_conn = 500\n\
         default_pool_size = 20\nignore_startup_parameters = extra_float_digits\nserver_tls_sslmode = disable\n",
        server.host, server.port
    )
}
