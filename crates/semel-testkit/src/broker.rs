//! A private broker: a server process of our own on free loopback ports, with its data below the target directory.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::cluster::{free_port, target_dir};

/// The user that private brokers know.
pub const USER: &str = "semel";

/// That user's password. It keeps strangers' programs on this machine from mistaking the server for theirs, no more.
pub const PASSWORD: &str = "open-on-loopback";

const PORT_ATTEMPTS: u32 = 5;
const WAIT: Duration = Duration::from_secs(180);

/// How to run one kind of broker.
pub trait Recipe: fmt::Debug {
    /// Its name in messages.
    const NAME: &'static str;
    /// The name of its directory.
    const DIRECTORY: &'static str;
    /// The variable that names a server for tests to use instead.
    const VARIABLE: &'static str;

    /// Writes settings into `home` and returns the command that serves on `port` of 127.0.0.1 in the foreground.
    fn prepare(home: &Path, port: u16) -> io::Result<Command>;

    /// Whether the server takes orders, not only connections.
    fn answers(stream: TcpStream) -> io::Result<bool>;

    /// How to reach it.
    fn url(port: u16) -> String;
}

/// A running broker. Dropping it stops the server, unless it was started to [`Broker::keep_running`].
pub struct Broker<R: Recipe> {
    home: PathBuf,
    port: u16,
    leader: i32,
    child: Option<Child>,
    stop_on_drop: bool,
    remove_on_drop: bool,
    recipe: PhantomData<R>,
}

impl<R: Recipe> fmt::Debug for Broker<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on port {} in {}", R::NAME, self.port, self.home.display())
    }
}

impl<R: Recipe> Broker<R> {
    /// Starts the broker that lives in `home`, creating it the first time. If it is running already, this joins it.
    /// What it acknowledged before a stop or a [`Broker::kill`] is there again.
    pub fn start(home: &Path) -> io::Result<Broker<R>> {
        if let Some(running) = Broker::running(home)? {
            return Ok(running);
        }
        fs::create_dir_all(home)?;
        let home = home.canonicalize()?;
        if let Some(mut rest) = Broker::<R>::recorded(&home) {
            // What lives but does not serve would share its data with the one to be started.
            rest.kill()?;
        }
        let mut attempt = 1;
        loop {
            let mut broker = Broker {
                home: home.clone(),
                port: free_port()?,
                leader: 0,
                child: None,
                stop_on_drop: true,
                remove_on_drop: false,
                recipe: PhantomData,
            };
            match broker.restart() {
                Ok(()) => return Ok(broker),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
                // Another process may take a port between our look and the server's bind.
                Err(_) if attempt < PORT_ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts a broker of its own for one test, removed when dropped; kept if the test panicked.
    pub fn temporary() -> io::Result<Broker<R>> {
        static SERIAL: AtomicU32 = AtomicU32::new(1);
        let name = format!("{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let mut broker = Broker::start(&temporary_dir::<R>().join(name))?;
        broker.remove_on_drop = true;
        Ok(broker)
    }

    /// The broker in `home` if it is running.
    pub fn running(home: &Path) -> io::Result<Option<Broker<R>>> {
        let Some(mut broker) = home.canonicalize().ok().and_then(|home| Broker::recorded(&home)) else {
            return Ok(None);
        };
        broker.stop_on_drop = broker.is_ours() && broker.serves();
        Ok(broker.stop_on_drop.then_some(broker))
    }

    /// The broker that was started last in `home`, whether it lives or not.
    fn recorded(home: &Path) -> Option<Broker<R>> {
        let written = fs::read_to_string(home.join("server.pid")).ok()?;
        let mut words = written.split_whitespace();
        let (leader, port) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (home, child, recipe) = (home.to_owned(), None, PhantomData);
        Some(Broker { home, port, leader, child, stop_on_drop: false, remove_on_drop: false, recipe })
    }

    /// How to reach it.
    pub fn url(&self) -> String {
        R::url(self.port)
    }

    /// The server's log.
    pub fn log_file(&self) -> PathBuf {
        self.home.join("server.log")
    }

    /// Lets the server outlive this value and this process.
    pub fn keep_running(mut self) {
        self.stop_on_drop = false;
    }

    /// Stops the server in good order, and returns when it has ended.
    pub fn stop(&mut self) -> io::Result<()> {
        self.end(Signal::TERM).or_else(|_| self.end(Signal::KILL))
    }

    /// Crashes the server with SIGKILL, and returns when it has ended.
    pub fn kill(&mut self) -> io::Result<()> {
        self.end(Signal::KILL)
    }

    /// Starts the server again on the same port, after [`Broker::stop`] or [`Broker::kill`], and returns when it
    /// serves.
    pub fn restart(&mut self) -> io::Result<()> {
        let mut command = R::prepare(&self.home, self.port)?;
        let log = OpenOptions::new().create(true).append(true).open(self.log_file())?;
        // A process group of its own, so that the server ends with all of its helpers and not with our Ctrl-C.
        command.current_dir(&self.home).process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn()?;
        self.leader = child.id().cast_signed();
        self.child = Some(child);
        fs::write(self.home.join("server.pid"), format!("{} {}\n", self.leader, self.port))?;
        let deadline = Instant::now() + WAIT;
        while !self.serves() {
            if self.ended()? || Instant::now() > deadline {
                let _ = self.kill();
                let log = fs::read_to_string(self.log_file()).unwrap_or_default();
                let mut tail: Vec<&str> = log.lines().rev().take(20).collect();
                tail.reverse();
                let tail = tail.join("\n");
                return Err(io::Error::other(format!(
                    "{} did not start; {}:\n{tail}",
                    R::NAME,
                    self.log_file().display()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn serves(&self) -> bool {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let answered = TcpStream::connect_timeout(&address, Duration::from_secs(1)).and_then(|stream| {
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            R::answers(stream)
        });
        answered.unwrap_or(false)
    }

    fn end(&mut self, signal: Signal) -> io::Result<()> {
        if self.child.is_none() && !self.is_ours() {
            return Ok(());
        }
        if let Some(leader) = Pid::from_raw(self.leader) {
            // It may have ended by itself in between.
            let _ = kill_process_group(leader, signal);
        }
        let deadline = Instant::now() + WAIT;
        while !self.ended()? {
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("{} (process {}) did not end", R::NAME, self.leader)));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child = None;
        Ok(())
    }

    /// Whether the leader and all that it started in its group have ended.
    fn ended(&mut self) -> io::Result<bool> {
        if let Some(child) = &mut self.child
            && child.try_wait()?.is_none()
        {
            return Ok(false);
        }
        Ok(members(self.leader).is_empty())
    }

    /// Whether anything of what was started here lives, be it only a helper, and not another that got its number later.
    fn is_ours(&self) -> bool {
        let here = |pid: i32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == self.home);
        members(self.leader).into_iter().any(here)
    }
}

impl<R: Recipe> Drop for Broker<R> {
    fn drop(&mut self) {
        if !self.stop_on_drop {
            return;
        }
        // What is removed anyway need not be put in order first.
        let removed = self.remove_on_drop && !std::thread::panicking();
        let ended = if removed { self.kill() } else { self.stop() };
        if let Err(error) = ended {
            eprintln!("{error}");
        }
        if removed {
            let _ = fs::remove_dir_all(&self.home);
        }
    }
}

/// Stops and removes the temporary brokers of test processes that were killed before they could, and says how many.
pub fn stop_orphans<R: Recipe>() -> io::Result<u32> {
    let mut stopped = 0;
    for entry in fs::read_dir(temporary_dir::<R>()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split('-').next()?.parse::<i32>().ok());
        let orphaned = owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists());
        if orphaned && let Some(mut broker) = Broker::<R>::running(&entry.path())? {
            broker.remove_on_drop = true;
            stopped += 1;
        }
    }
    Ok(stopped)
}

/// Where the broker of `cargo xtask services up` lives.
pub fn server_dir<R: Recipe>() -> PathBuf {
    target_dir().join("services").join(R::DIRECTORY)
}

/// The server for tests: that of the environment, else that of `cargo xtask services up`. Panics with the command to
/// run if there is none.
pub fn server_url<R: Recipe>() -> String {
    if let Some(url) = std::env::var(R::VARIABLE).ok().filter(|url| !url.is_empty()) {
        return url;
    }
    let written = fs::read_to_string(target_dir().join("services/env")).unwrap_or_default();
    let prefix = format!("export {}=", R::VARIABLE);
    let Some(url) = written.lines().find_map(|line| line.strip_prefix(&prefix)) else {
        panic!("no {} to test on: run `cargo xtask services up`, or set {} to a server's URL", R::NAME, R::VARIABLE)
    };
    url.trim_matches('\'').to_owned()
}

fn temporary_dir<R: Recipe>() -> PathBuf {
    target_dir().join("brokers").join(R::DIRECTORY)
}

/// The live processes of a group.
fn members(group: i32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let belongs = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name before the last parenthesis may hold anything; state, parent and group follow it.
        let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
        let fields: Vec<&str> = rest.split(' ').take(3).collect();
        fields.len() == 3 && fields[0] != "Z" && fields[2].parse() == Ok(group)
    };
    pids.filter(belongs).collect()
}
