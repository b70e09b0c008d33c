//! A private pgbouncer.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::account::{Account, find_program};
use crate::address::PostgresUrl;
use crate::cluster::target_dir;

const WAIT: Duration = Duration::from_secs(20);
const SETTINGS: &str = "pgbouncer.ini";
const LOG: &str = "pgbouncer.log";
/// How often it is started again at most.
const RESTARTS: u32 = 10;
/// How often somebody looks whether it still runs.
const LOOK: Duration = Duration::from_millis(50);
/// Hands the socket on standard input over, as systemd does: as descriptor 3, to the process that is named.
const HAND_OVER: &str = r#"LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$1" 3<&0 </dev/null"#;
/// What asks a server whether it encrypts. It answers by one byte.
const DO_YOU_ENCRYPT: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// For how long a client of the pooler has a session of the server to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For a transaction: each may get another one, and no statement prepared by name survives.
    Transaction,
    /// For as long as the client is connected.
    Session,
}

/// A running pooler. Dropping it ends it.
///
/// One that ends by itself is started again, as a service manager does, and says so: version 1.18, which Debian has,
/// dies now and then when a request to cancel arrives under load (its issue 822). The socket that it listens on is
/// ours, so that whoever connects meanwhile waits and is not refused. A failed test keeps the log.
#[derive(Debug)]
pub struct Bouncer {
    process: Arc<Mutex<Process>>,
    server: PostgresUrl,
    port: u16,
    account: Account,
    dir: PathBuf,
}

/// The process, for as long as it is wanted.
#[derive(Debug)]
struct Process {
    child: Child,
    wanted: bool,
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
        let home = account.directory(&dir)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        account.write(&home.join(SETTINGS), &configuration(mode, &server, port))?;
        let mut child = spawn(account, &program, &home, &listener)?;
        wait_until_it_answers(&mut child, port, &home)?;
        let process = Arc::new(Mutex::new(Process { child, wanted: true }));
        let (looked_after, restart) = (Arc::clone(&process), move || spawn(account, &program, &home, &listener));
        std::thread::spawn(move || look_after(&looked_after, restart));
        Ok(Bouncer { process, server, port, account, dir })
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How to reach `database` through the pooler.
    pub fn url_for(&self, database: &str) -> String {
        self.server.with_database(database).with_port(self.port).to_string()
    }

    /// Kills it, as its own faults do. It is started again.
    pub fn kill(&self) -> io::Result<()> {
        lock(&self.process).child.kill()
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let mut process = lock(&self.process);
        process.wanted = false;
        let _ = process.child.kill();
        let _ = process.child.wait();
        if !std::thread::panicking() {
            self.account.remove_directory(&self.dir);
        }
    }
}

/// Starts it by the settings in `home`, where its log is, too.
fn spawn(account: Account, program: &Path, home: &Path, listener: &TcpListener) -> io::Result<Child> {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(home.join(LOG))?;
    let mut command = account.command("sh");
    command.args(["-c", HAND_OVER]).arg(program).arg(home.join(SETTINGS)).current_dir(home);
    command.stdin(OwnedFd::from(listener.try_clone()?)).stdout(Stdio::null()).stderr(log).spawn()
}

fn wait_until_it_answers(child: &mut Child, port: u16, home: &Path) -> io::Result<()> {
    let deadline = Instant::now() + WAIT;
    while Instant::now() < deadline && child.try_wait()?.is_none() {
        if answers(port).is_ok() {
            return Ok(());
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    let log = std::fs::read_to_string(home.join(LOG)).unwrap_or_default();
    Err(io::Error::other(format!("pgbouncer did not start:\n{log}")))
}

fn answers(port: u16) -> io::Result<()> {
    let patience = Duration::from_secs(1);
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(&DO_YOU_ENCRYPT)?;
    stream.read_exact(&mut [0])
}

/// Starts it again when it has ended by itself, until nobody wants it any more.
fn look_after(process: &Mutex<Process>, restart: impl Fn() -> io::Result<Child>) {
    let mut restarts = 0;
    while restarts < RESTARTS {
        std::thread::sleep(LOOK);
        let mut process = lock(process);
        if !process.wanted {
            return;
        }
        let Ok(Some(status)) = process.child.try_wait() else { continue };
        eprintln!("pgbouncer has ended by itself ({status}) and is started again");
        restarts += 1;
        match restart() {
            Ok(child) => process.child = child,
            Err(error) => eprintln!("pgbouncer could not be started again: {error}"),
        }
    }
}

fn lock(process: &Mutex<Process>) -> MutexGuard<'_, Process> {
    process.lock().unwrap_or_else(PoisonError::into_inner)
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
