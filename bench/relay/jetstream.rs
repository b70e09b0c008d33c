//! NATS as it comes: JetStream writes to the disk every two minutes and acknowledges before.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use semel_testkit::broker::{Broker, Recipe};
use semel_testkit::nats::NatsRecipe;

/// A running NATS server with its own defaults. The testkit's syncs before every acknowledgement.
pub(crate) type UnsyncedNats = Broker<UnsyncedRecipe>;

/// How it is run.
#[derive(Debug)]
pub(crate) struct UnsyncedRecipe;

impl Recipe for UnsyncedRecipe {
    const NAME: &'static str = "NATS without sync";
    const DIRECTORY: &'static str = "nats-unsynced";
    const VARIABLE: &'static str = "SEMEL_BENCH_NATS_URL";

    fn prepare(home: &Path, port: u16) -> io::Result<Command> {
        let command = NatsRecipe::prepare(home, port)?;
        let settings = home.join("nats.conf");
        let text = std::fs::read_to_string(&settings)?;
        std::fs::write(&settings, text.replace("sync_interval: always", "sync_interval: \"2m\""))?;
        Ok(command)
    }

    fn answers(stream: TcpStream) -> io::Result<bool> {
        NatsRecipe::answers(stream)
    }

    fn url(port: u16) -> String {
        NatsRecipe::url(port)
    }
}
