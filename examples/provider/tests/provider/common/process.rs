//! A provider in a process of its own, to be killed.

use std::io::{BufRead, BufReader};
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{Api, Directory};

/// A provider in a process of its own.
#[derive(Debug)]
pub struct Process {
    child: Child,
    api: Api,
}

impl Process {
    pub fn command(ledger: &Path, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel-provider"));
        command.arg("--ledger").arg(ledger).args(flags).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// Starts it and waits until it listens.
    pub fn start(directory: &Directory, flags: &[&str]) -> Process {
        let mut child = Process::command(&directory.ledger(), flags).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("it said {line:?}"));
        let address = said["listening"].as_str().unwrap().parse().unwrap();
        Process { child, api: Api::new(address) }
    }

    /// SIGKILL. When this returns the process is gone.
    pub fn kill9(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Deref for Process {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}
