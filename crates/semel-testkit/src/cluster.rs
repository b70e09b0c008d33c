//! A private PostgreSQL cluster: durable settings, a free loopback port, no part in the system's own.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::account::{Account, find_program};

const MAX_CONNECTIONS: u16 = 200;
const PORT_ATTEMPTS: u32 = 5;
const WAIT: Duration = Duration::from_secs(60);

/// A running cluster. Dropping it stops the server, unless it was started to [`Cluster::keep_running`].
#[derive(Debug)]
pub struct Cluster {
    binaries: PathBuf,
    account: Account,
    dir: PathBuf,
    home: PathBuf,
    port: u16,
    stop_on_drop: bool,
    remove_on_drop: bool,
}

impl Cluster {
    /// Starts the cluster that lives in `dir`, creating it the first time. If its server is running already, this
    /// joins it.
    ///
    /// What was committed before a stop, a [`Cluster::kill`] or a crash of the machine is there again: fsync and
    /// synchronous_commit are on, so that crash tests mean something.
    pub fn start(dir: &Path) -> io::Result<Cluster> {
        if let Some(running) = Cluster::running(dir)? {
            return Ok(running);
        }
        let mut cluster = Cluster::at(dir)?;
        cluster.create()?;
        let mut attempt = 1;
        loop {
            cluster.port = free_port()?;
            match cluster.launch() {
                Ok(()) => return Ok(cluster),
                // Another process may take the port between our look and the server's bind.
                Err(_) if attempt < PORT_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts a cluster of its own for one test, removed when dropped; kept if the test panicked.
    pub fn temporary() -> io::Result<Cluster> {
        static SERIAL: AtomicU32 = AtomicU32::new(1);
        let name = format!("{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let mut cluster = Cluster::start(&target_dir().join("clusters").join(name))?;
        cluster.remove_on_drop = true;
        Ok(cluster)
    }

    /// The cluster in `dir` if its server is running.
    pub fn running(dir: &Path) -> io::Result<Option<Cluster>> {
        if !dir.exists() {
            return Ok(None);
        }
        let mut cluster = Cluster::at(dir)?;
        let Some(port) = cluster.read_port() else { return Ok(None) };
        cluster.port = port;
        let answers = cluster.pg_ctl("status").output()?.status.success();
        if !answers {
            cluster.stop_on_drop = false;
        }
        Ok(answers.then_some(cluster))
    }

    /// How to reach the database `postgres` of this cluster.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The server's log.
    pub fn log_file(&self) -> PathBuf {
        self.home.join("postgres.log")
    }

    /// Lets the server outlive this value and this process.
    pub fn keep_running(mut self) {
        self.stop_on_drop = false;
    }

    /// Stops the server: sessions are cut off, open transactions roll back, the rest is checkpointed.
    pub fn stop(&mut self) -> io::Result<()> {
        if self.read_port().is_none() {
            return Ok(());
        }
        let seconds = WAIT.as_secs().to_string();
        let output = self.pg_ctl("stop").args(["-m", "fast", "-w", "-t", &seconds]).output()?;
        if output.status.success() || !self.pg_ctl("status").output()?.status.success() {
            return Ok(());
        }
        Err(self.failure("stop", &output.stderr))
    }

    /// Crashes the server: SIGKILL to the postmaster and its backends, so nothing is written on the way out. Returns
    /// when the port refuses connections.
    pub fn kill(&mut self) -> io::Result<()> {
        let pid = self.postmaster().ok_or_else(|| io::Error::other("the cluster is not running"))?;
        let backends = children_of(pid);
        // The postmaster goes first: it would answer a killed backend by restarting the others.
        for pid in std::iter::once(pid).chain(backends) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                // A backend may have ended by itself in between.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        let deadline = Instant::now() + WAIT;
        while TcpStream::connect_timeout(&self.address(), Duration::from_secs(1)).is_ok() {
            if Instant::now() > deadline {
                return Err(io::Error::other("the server still answers after SIGKILL"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Starts the server again on the same port, after [`Cluster::stop`] or [`Cluster::kill`]. Crash recovery is over
    /// when this returns.
    pub fn restart(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + WAIT;
        loop {
            match self.launch() {
                Ok(()) => return Ok(()),
                // For a moment after a crash the dying backends hold the shared memory, and the server refuses.
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn at(dir: &Path) -> io::Result<Cluster> {
        let account = Account::for_servers()?;
        let home = account.directory(dir)?;
        let binaries = find_binaries()?;
        Ok(Cluster { binaries, account, dir: dir.to_owned(), home, port: 0, stop_on_drop: true, remove_on_drop: false })
    }

    fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    fn create(&self) -> io::Result<()> {
        let major = fs::read_to_string(self.data().join("PG_VERSION")).unwrap_or_default();
        if !major.is_empty() && self.version()?.contains(&format!(" {}.", major.trim())) {
            return Ok(());
        }
        if self.data().exists() {
            fs::remove_dir_all(self.data())?;
        }
        // initdb works beside the final place, so that an interrupted one is never taken for a cluster.
        let unfinished = self.home.join("data.unfinished");
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)?;
        }
        let output = self
            .account
            .command(self.binaries.join("initdb"))
            .current_dir(&self.home)
            .args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-instructions", "-D"])
            .arg(&unfinished)
            .output()?;
        if !output.status.success() {
            return Err(self.failure("initdb", &output.stderr));
        }
        let main = unfinished.join("postgresql.conf");
        fs::write(&main, fs::read_to_string(&main)? + "\ninclude = 'semel.conf'\n")?;
        fs::rename(unfinished, self.data())
    }

    fn launch(&self) -> io::Result<()> {
        let settings = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = ''\n\
             max_connections = {MAX_CONNECTIONS}\nfsync = on\nsynchronous_commit = on\nfull_page_writes = on\n\
             logging_collector = off\nlog_line_prefix = '%m [%p] %d '\n",
            self.port
        );
        self.account.write(&self.data().join("semel.conf"), &settings)?;
        let seconds = WAIT.as_secs().to_string();
        let output = self.pg_ctl("start").args(["-w", "-t", &seconds, "-l"]).arg(self.log_file()).output()?;
        if output.status.success() { Ok(()) } else { Err(self.failure("start", &output.stderr)) }
    }

    fn pg_ctl(&self, verb: &str) -> Command {
        let mut command = self.account.command(self.binaries.join("pg_ctl"));
        command.current_dir(&self.home).arg(verb).arg("-D").arg(self.data());
        command
    }

    fn version(&self) -> io::Result<String> {
        let output = Command::new(self.binaries.join("postgres")).arg("--version").output()?;
        // "postgres (PostgreSQL) 15.8 (Debian …)" and "postgres (PostgreSQL) 18beta1": only a release has the dot.
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn postmaster(&self) -> Option<i32> {
        fs::read_to_string(self.data().join("postmaster.pid")).ok()?.lines().next()?.trim().parse().ok()
    }

    fn read_port(&self) -> Option<u16> {
        fs::read_to_string(self.data().join("postmaster.pid")).ok()?.lines().nth(3)?.trim().parse().ok()
    }

    fn failure(&self, what: &str, stderr: &[u8]) -> io::Error {
        let log = fs::read_to_string(self.log_file()).unwrap_or_default();
        let tail: Vec<&str> = log.lines().rev().take(12).collect();
        let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
        let stderr = String::from_utf8_lossy(stderr);
        io::Error::other(format!(
            "PostgreSQL in {} failed to {what}: {stderr}\n{}:\n{tail}",
            self.home.display(),
            self.log_file().display()
        ))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.stop_on_drop {
            return;
        }
        if let Err(error) = self.stop() {
            eprintln!("{error}");
        }
        if self.remove_on_drop && !std::thread::panicking() {
            self.account.remove_directory(&self.dir);
        }
    }
}

/// Stops and removes the temporary clusters of test processes that were killed before they could, and says how many.
pub fn stop_orphans() -> io::Result<u32> {
    let mut stopped = 0;
    for entry in fs::read_dir(target_dir().join("clusters")).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split('-').next()?.parse::<i32>().ok());
        let orphaned = owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists());
        if orphaned && let Some(mut cluster) = Cluster::running(&entry.path())? {
            cluster.remove_on_drop = true;
            cluster.stop()?;
            stopped += 1;
        }
    }
    Ok(stopped)
}

/// Where cargo puts what it builds; private servers live below it.
pub fn target_dir() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workspace = workspace.canonicalize().unwrap_or(workspace);
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace.join(dir),
        None => workspace.join("target"),
    }
}

/// The directory that holds `initdb`, `pg_ctl` and `postgres`, or an error that says what to install.
pub fn find_binaries() -> io::Result<PathBuf> {
    let on_path = find_program("initdb").and_then(|file| Some(file.parent()?.to_owned()));
    let configured = Command::new("pg_config").arg("--bindir").output().ok().map(|output| {
        let dir = String::from_utf8_lossy(&output.stdout);
        PathBuf::from(dir.trim())
    });
    let mut packaged: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    packaged.sort();
    let packaged = packaged.into_iter().rev().map(|(_, dir)| dir);
    let whole = |dir: &PathBuf| ["initdb", "pg_ctl", "postgres"].iter().all(|program| dir.join(program).is_file());
    on_path.into_iter().chain(configured).chain(packaged).find(whole).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "PostgreSQL's server programs (initdb, pg_ctl, postgres) were not found: run `apt-get install postgresql`, \
             put them on PATH, or set SEMEL_TEST_POSTGRES_URL to a server that tests may create databases on",
        )
    })
}

/// A loopback port that nobody listens on at this moment.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn children_of(parent: i32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name before the last parenthesis may hold anything; state and parent follow it.
        let parent_field = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        parent_field.and_then(|field| field.parse::<i32>().ok()) == Some(parent)
    })
    .collect()
}
