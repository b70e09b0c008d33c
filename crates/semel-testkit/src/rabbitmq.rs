//! A private RabbitMQ: its own node name, data, log, port mapper and ports, on loopback only.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::account::find_program;
use crate::broker::{Broker, PASSWORD, Recipe, USER};
use crate::cluster::free_port;

/// Debian's `rabbitmq-server` on PATH changes to the system's user and directories; this is the script beneath it.
const DEBIAN_SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// The largest message that a private server takes.
pub const MAX_MESSAGE_BYTES: usize = 512 * 1024;

/// A running RabbitMQ.
pub type RabbitMq = Broker<RabbitMqRecipe>;

/// How RabbitMQ is run.
#[derive(Debug)]
pub struct RabbitMqRecipe;

impl Recipe for RabbitMqRecipe {
    const NAME: &'static str = "RabbitMQ";
    const DIRECTORY: &'static str = "rabbitmq";
    const VARIABLE: &'static str = "SEMEL_TEST_RABBITMQ_URL";

    fn prepare(home: &Path, port: u16) -> io::Result<Command> {
        let (server, port_mapper) = find_server()?;
        let settings = format!(
            "listeners.tcp.local = 127.0.0.1:{port}\nloopback_users = none\ndefault_user = {USER}\n\
             default_pass = {PASSWORD}\nmax_message_size = {MAX_MESSAGE_BYTES}\ndisk_free_limit.absolute = 50MB\n"
        );
        fs::write(home.join("rabbitmq.conf"), settings)?;
        fs::write(home.join("enabled_plugins"), "[].\n")?;
        let (mapper_port, node_port) = (free_port()?.to_string(), free_port()?.to_string());
        let mut command = Command::new("sh");
        // The port mapper runs in the server's process group and ends with it. Left to Erlang, it would stay behind as
        // a daemon on the port that all of the machine's Erlang programs share.
        command.args(["-c", "\"$1\" -port \"$ERL_EPMD_PORT\" -address 127.0.0.1 & exec \"$0\""]);
        command.arg(server).arg(port_mapper);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("RABBITMQ_")) {
            command.env_remove(name);
        }
        command
            .env("HOME", home)
            .env("ERL_EPMD_PORT", mapper_port)
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODENAME", format!("{}@localhost", node_name(home)))
            .env("RABBITMQ_DIST_PORT", node_port)
            .env("RABBITMQ_CONF_ENV_FILE", home.join("rabbitmq-env.conf"))
            .env("RABBITMQ_CONFIG_FILE", home.join("rabbitmq"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", home.join("advanced"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", home.join("enabled_plugins"))
            .env("RABBITMQ_MNESIA_BASE", home.join("data"))
            .env("RABBITMQ_LOG_BASE", home.join("log"))
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                // Idle schedulers sleep: tests run beside this on few cores.
                "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none",
            );
        Ok(command)
    }

    /// Speaks first, as AMQP has it: the broker answers with its own greeting once it is up.
    fn answers(mut stream: TcpStream) -> io::Result<bool> {
        stream.write_all(b"AMQP\x00\x00\x09\x01")?;
        let mut start = [0; 11];
        stream.read_exact(&mut start)?;
        // A method frame on channel zero: connection.start.
        Ok(start[0] == 1 && start[7..11] == [0, 10, 0, 10])
    }

    fn url(port: u16) -> String {
        format!("amqp://{USER}:{PASSWORD}@127.0.0.1:{port}/%2F")
    }
}

/// The programs `rabbitmq-server` and `epmd`, or an error that says what to install.
pub fn find_server() -> io::Result<(PathBuf, PathBuf)> {
    let debian = Some(PathBuf::from(DEBIAN_SERVER)).filter(|script| script.is_file());
    let server = debian.or_else(|| find_program("rabbitmq-server"));
    match (server, find_program("epmd")) {
        (Some(server), Some(port_mapper)) => Ok((server, port_mapper)),
        _ => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "RabbitMQ and Erlang were not found: run `apt-get install rabbitmq-server`",
        )),
    }
}

/// The node's data is found by its name, so the name stays the same when the ports change.
fn node_name(home: &Path) -> String {
    let last =
        home.file_name().unwrap_or_default().to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    format!("semel-{last}")
}
