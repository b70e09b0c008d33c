//! How far the demo has come, on stderr.

use std::io::{IsTerminal, Write, stderr};

/// Lines for what has happened and, on a terminal, one that shows how far it is.
#[derive(Debug)]
pub(super) struct Progress {
    terminal: bool,
}

/// How wide the bar is.
const WIDTH: u64 = 30;

impl Progress {
    pub(super) fn new() -> Progress {
        Progress { terminal: stderr().is_terminal() }
    }

    /// A new scene begins.
    pub(super) fn scene(&self, title: &str) {
        self.write(&format!("\n{title}\n"));
    }

    /// Something has happened.
    pub(super) fn fact(&self, fact: &str) {
        self.write(&format!("  {fact}\n"));
    }

    /// So much is done.
    pub(super) fn bar(&self, done: u32, total: u32, what: &str) {
        if self.terminal {
            let full = u64::from(done.min(total)) * WIDTH / u64::from(total.max(1));
            let bar: String = (0..WIDTH).map(|place| if place < full { '█' } else { '░' }).collect();
            self.write(&format!("  {bar} {done} of {total} {what}"));
        }
    }

    fn write(&self, text: &str) {
        let begin = if self.terminal { "\r\x1b[K" } else { "" };
        // With stderr gone the demo still counts.
        let _ = stderr().write_all(format!("{begin}{text}").as_bytes());
    }
}
