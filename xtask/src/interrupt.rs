//! Ctrl-C: the step that runs ends with all its processes, and what was started is stopped before xtask leaves.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};
use semel_testkit::account::terminate_group;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static RUNNING: Mutex<Option<u32>> = Mutex::new(None);

/// From here on an interrupt no longer ends this process: [`run`] returns and [`interrupted`] tells.
pub(crate) fn listen() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals cannot be handled")?;
    thread::spawn(move || {
        for _signal in signals.forever() {
            // Under the lock, so that a step is either seen here or not started there.
            let running = running();
            INTERRUPTED.store(true, Ordering::SeqCst);
            if let Some(leader) = *running {
                terminate_group(leader);
            }
        }
    });
    Ok(())
}

/// Whether the user or the system asked us to stop.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Runs a command to its end, on our own output. An interrupt ends it and every process it started.
pub(crate) fn run(command: &mut Command) -> Result<ExitStatus> {
    let mut child = start(command)?;
    let status = child.wait()?;
    *running() = None;
    Ok(status)
}

fn start(command: &mut Command) -> Result<Child> {
    let mut running = running();
    if interrupted() {
        bail!("interrupted");
    }
    // In a group of its own: cargo does not pass signals on to the tests it runs, so we reach them ourselves.
    let child =
        command.process_group(0).spawn().with_context(|| format!("{:?} cannot be run", command.get_program()))?;
    *running = Some(child.id());
    Ok(child)
}

fn running() -> MutexGuard<'static, Option<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
