//! Redis as a cache: it keeps nothing on the disk.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use semel_testkit::broker::{Broker, Recipe};
use semel_testkit::redis::RedisRecipe;

/// A running Redis that forgets when it ends. The testkit's syncs before it answers, which a tier does not need.
pub(crate) type Cache = Broker<CacheRecipe>;

/// How it is run.
#[derive(Debug)]
pub(crate) struct CacheRecipe;

impl Recipe for CacheRecipe {
    const NAME: &'static str = "Redis without files";
    const DIRECTORY: &'static str = "redis-cache";
    const VARIABLE: &'static str = "SEMEL_BENCH_REDIS_URL";

    fn prepare(home: &Path, port: u16) -> io::Result<Command> {
        let command = RedisRecipe::prepare(home, port)?;
        let settings = home.join("redis.conf");
        let text = std::fs::read_to_string(&settings)?;
        std::fs::write(&settings, text.replace("appendonly yes", "appendonly no"))?;
        Ok(command)
    }

    fn answers(stream: TcpStream) -> io::Result<bool> {
        RedisRecipe::answers(stream)
    }

    fn url(port: u16) -> String {
        RedisRecipe::url(port)
    }
}
