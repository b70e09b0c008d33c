//! A private Redis that keeps what it acknowledged.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::account::find_program;
use crate::broker::{Broker, PASSWORD, Recipe, USER};

/// A running Redis.
pub type Redis = Broker<RedisRecipe>;

/// How Redis is run.
#[derive(Debug)]
pub struct RedisRecipe;

impl Recipe for RedisRecipe {
    const NAME: &'static str = "Redis";
    const DIRECTORY: &'static str = "redis";
    const VARIABLE: &'static str = "SEMEL_TEST_REDIS_URL";

    fn prepare(home: &Path, port: u16) -> io::Result<Command> {
        let program = find_program("redis-server").ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "redis-server was not found: run `apt-get install redis-server`")
        })?;
        let settings = home.join("redis.conf");
        let text = format!(
            "bind 127.0.0.1\nport {port}\ndir {home:?}\nappendonly yes\nappendfsync always\nsave \"\"\n\
             user default off\nuser {USER} on >{PASSWORD} ~* &* +@all\n"
        );
        fs::write(&settings, text)?;
        let mut command = Command::new(program);
        command.arg(settings);
        Ok(command)
    }

    /// Logs in and asks for life: while Redis reads its file after a crash, it answers with an error.
    fn answers(stream: TcpStream) -> io::Result<bool> {
        Ok(ask(stream, "PING")? == "+OK\r\n+PONG\r\n")
    }

    fn url(port: u16) -> String {
        format!("redis://{USER}:{PASSWORD}@127.0.0.1:{port}/0")
    }
}

impl Redis {
    /// Gives it a command, and fails unless the answer is a plain success.
    pub fn order(&self, words: &str) -> io::Result<()> {
        let url = self.url();
        let address = url.rsplit_once('@').and_then(|(_, rest)| rest.split_once('/')).map(|(address, _)| address);
        let address = address.ok_or_else(|| io::Error::other(format!("no address in {url}")))?;
        let said = ask(TcpStream::connect(address)?, words)?;
        if said.starts_with("+OK\r\n+") { Ok(()) } else { Err(io::Error::other(format!("{words}: {said}"))) }
    }
}

/// Logs in, gives a command that is answered in one line, and returns both answers.
fn ask(mut stream: TcpStream, words: &str) -> io::Result<String> {
    stream.write_all(format!("AUTH {USER} {PASSWORD}\r\n{words}\r\n").as_bytes())?;
    let mut said = String::new();
    let mut buffer = [0; 512];
    while said.lines().count() < 2 || !said.ends_with("\r\n") {
        match stream.read(&mut buffer)? {
            0 => break,
            read => said.push_str(&String::from_utf8_lossy(&buffer[..read])),
        }
    }
    Ok(said)
}
