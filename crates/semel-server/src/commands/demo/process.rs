//! This same binary in processes of its own, to be killed.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getppid, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a process may take to say where it listens, and to end.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// What to run, and where.
#[derive(Debug)]
pub(super) struct Program {
    /// This binary.
    pub path: PathBuf,
    /// Where it runs and where its log goes.
    pub folder: PathBuf,
}

/// A running process that has said where it listens. It is killed when it is dropped, and when this process dies.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    /// Starts the binary and waits until it listens. Its log goes to `NAME.log` in the folder, and what configures the
    /// surrounding shell's Semel does not reach it.
    pub(super) async fn start(
        program: &Program,
        name: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Process> {
        let log = program.folder.join(format!("{name}.log"));
        let written = File::options().create(true).append(true).open(&log).context("cannot write a log")?;
        let mut command = Command::new(&program.path);
        for (variable, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEMEL_")) {
            command.env_remove(variable);
        }
        let own = std::process::id().to_string();
        command.args(["--child-of", &own]).args(arguments).envs(environment.iter().copied());
        command.current_dir(&program.folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(written);
        // In a group of its own, so that Ctrl-C reaches this process alone.
        command.kill_on_drop(true).process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.path.display()))?;
        let stdout = child.stdout.take().context("a process has no stdout")?;
        let (announce, announced) = oneshot::channel();
        tokio::spawn(read(stdout, announce));
        match timeout(STARTS_WITHIN, announced).await {
            Ok(Ok(address)) => Ok(Process { child, address }),
            Ok(Err(_)) => bail!("the {name} did not start: {}", last_lines(&log)),
            Err(_) => bail!("the {name} did not start within {STARTS_WITHIN:?}: {}", last_lines(&log)),
        }
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// SIGKILL. When this returns the process is gone.
    pub(super) async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("cannot kill a process")
    }

    /// SIGTERM, and SIGKILL if it takes too long.
    pub(super) async fn end(mut self) -> Result<()> {
        if let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
        match timeout(ENDS_WITHIN, self.child.wait()).await {
            Ok(ended) => ended.map(drop).context("cannot wait for a process"),
            Err(_) => self.kill().await,
        }
    }
}

/// Makes this process die with the one that started it, however that one ends. Where the system cannot do that, the
/// one that started it still kills it when it ends in good order.
pub(crate) fn die_with(parent: u32) -> Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).context("cannot be bound to a process")?;
    // The parent may have died before that.
    if getppid().is_none_or(|pid| u32::try_from(pid.as_raw_nonzero().get()) != Ok(parent)) {
        bail!("the process {parent} is not the one that started this");
    }
    Ok(())
}

/// Announces the first address that is printed, and reads the rest so that nothing blocks.
async fn read(stdout: ChildStdout, announce: oneshot::Sender<SocketAddr>) {
    let mut lines = BufReader::new(stdout).lines();
    let mut announce = Some(announce);
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(address) = address(&line)
            && let Some(announce) = announce.take()
        {
            let _ = announce.send(address);
        }
    }
}

fn address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("http://")?;
    rest.split('/').next()?.trim().parse().ok()
}

/// The end of a log, for a message.
fn last_lines(log: &Path) -> String {
    let written = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = written.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
