//! A service in a process of its own, to be killed, stopped and continued.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{self, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::poll::until;

const STARTS_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(60);
const OUTPUT_KEPT: usize = 1024 * 1024;

/// A running process that has said `… listening on http://ADDRESS`, or `{"listening":"ADDRESS"}`, on its stdout.
/// Dropping it kills it, and prints what it wrote if the test panicked.
#[derive(Debug)]
pub struct Service {
    child: Child,
    pid: Pid,
    address: SocketAddr,
    output: Arc<Mutex<String>>,
}

impl Service {
    /// Starts `binary` and waits until it listens. Panics with what it wrote if it does not.
    pub async fn spawn(binary: impl AsRef<Path>, arguments: &[&str], environment: &[(&str, &str)]) -> Service {
        let binary = binary.as_ref();
        Service::try_spawn(binary, arguments, environment)
            .await
            .unwrap_or_else(|output| panic!("{} {arguments:?} did not start:\n{output}", binary.display()))
    }

    /// Starts `binary` and waits until it listens; if it does not, `Err` holds what it wrote.
    ///
    /// Variables of the surrounding shell that would configure Semel do not reach the process.
    pub async fn try_spawn(
        binary: impl AsRef<Path>,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Service, String> {
        let mut command = Command::new(binary.as_ref());
        for (name, _) in std::env::vars_os() {
            let inherited = name.to_string_lossy();
            if inherited.starts_with("SEMEL_") || inherited == "FAILPOINTS" {
                command.env_remove(&name);
            }
        }
        command.args(arguments).envs(environment.iter().copied()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).ok_or("it ended at once")?;

        let output = Arc::new(Mutex::new(String::new()));
        let (announce, mut announced) = mpsc::unbounded_channel();
        tokio::spawn(drain(child.stdout.take().unwrap(), Arc::clone(&output), Some(announce)));
        let errors = tokio::spawn(drain(child.stderr.take().unwrap(), Arc::clone(&output), None));
        // The channel closes when stdout does, so a process that ends early is noticed at once.
        match timeout(STARTS_WITHIN, announced.recv()).await {
            Ok(Some(address)) => Ok(Service { child, pid, address, output }),
            ended => {
                let _ = child.start_kill();
                let status = child.wait().await;
                let _ = errors.await;
                let written = output.lock().unwrap();
                let why = if ended.is_err() { "it did not announce an address in time" } else { "it ended" };
                Err(format!("{written}{why} ({})", status.map_or_else(|e| e.to_string(), |s| s.to_string())))
            }
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of `path`, which starts with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// What it has written to stdout and stderr so far.
    pub fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// SIGKILL. When this returns the process is gone, and with it its sockets.
    pub async fn kill9(&mut self) {
        self.child.start_kill().unwrap();
        self.wait().await;
    }

    /// SIGSTOP. When this returns every thread stands still.
    pub async fn stop(&self) {
        kill_process(self.pid, Signal::STOP).unwrap();
        let deadline = Instant::now() + ENDS_WITHIN;
        while !self.stands_still() {
            assert!(Instant::now() < deadline, "the process did not stop");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// SIGSTOP, at a moment at which `free` holds: a process that stands still keeps the locks that it has.
    pub async fn stop_while(&self, free: impl Fn() -> bool) {
        self.stop().await;
        while !free() {
            self.cont();
            // It has to get on before the next attempt: stopped again at once, it does not run a single instruction.
            until("the process has let go", async || free()).await;
            self.stop().await;
        }
    }

    /// SIGCONT.
    pub fn cont(&self) {
        kill_process(self.pid, Signal::CONT).unwrap();
    }

    /// SIGTERM, and waits for the process to end.
    pub async fn terminate(&mut self) -> ExitStatus {
        kill_process(self.pid, Signal::TERM).unwrap();
        self.wait().await
    }

    /// Waits for the process to end by itself. Panics with what it wrote if it does not.
    pub async fn wait(&mut self) -> ExitStatus {
        match timeout(ENDS_WITHIN, self.child.wait()).await {
            Ok(status) => status.unwrap(),
            Err(_) => panic!("the process did not end within {ENDS_WITHIN:?}"),
        }
    }

    fn stands_still(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid())) else { return true };
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // The name before the last parenthesis may hold anything; the state follows it.
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't', 'Z', 'X']))
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        if std::thread::panicking() {
            eprintln!("process {} wrote:\n{}", self.pid(), self.output());
        }
    }
}

async fn drain(
    from: impl AsyncRead + Unpin,
    output: Arc<Mutex<String>>,
    mut announce: Option<mpsc::UnboundedSender<SocketAddr>>,
) {
    let mut lines = BufReader::new(from).split(b'\n');
    // Bytes that are not UTF-8 are shown as such rather than ending the drain and filling the pipe.
    while let Ok(Some(line)) = lines.next_segment().await {
        let line = String::from_utf8_lossy(&line).into_owned();
        if let Some(address) = announced_address(&line)
            && let Some(sender) = announce.take()
        {
            let _ = sender.send(address);
        }
        let mut output = output.lock().unwrap();
        if output.len() < OUTPUT_KEPT {
            output.push_str(&line);
            output.push('\n');
        }
    }
}

fn announced_address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(" listening on http://").or_else(|| line.split_once("{\"listening\":\""))?;
    rest.split([' ', '/', '"']).next()?.trim_end().parse().ok()
}

/// The path of a binary of this workspace, which is built first if the test run has not done so.
pub(crate) fn built(package: &str, name: &str) -> PathBuf {
    // A test runs from <profile>/deps, and binaries lie one directory up.
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).expect("a test lies below its profile's directory");
    let binary = profile.join(name);
    if !binary.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = process::Command::new(cargo);
        build.args(["build", "--quiet", "--package", package, "--bin", name, "--target-dir"]);
        build.arg(profile.parent().expect("a profile's directory lies below the target directory"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success(), "{build:?} failed");
    }
    binary
}
