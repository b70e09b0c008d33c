//! Private servers for tests: under target/services, on free loopback ports, in nobody's way.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result};
use semel_testkit::broker::Recipe;
use semel_testkit::cluster::{self, Cluster};
use semel_testkit::nats::NatsRecipe;
use semel_testkit::rabbitmq::RabbitMqRecipe;
use semel_testkit::redis::RedisRecipe;

use crate::{brokers, install, kafka};

/// The variable that names the server tests create their databases on.
const POSTGRES_VARIABLE: &str = "SEMEL_TEST_POSTGRES_URL";

/// What [`start`] found or made.
#[derive(Debug, Default)]
pub(crate) struct Services {
    /// How to reach each: a variable and its value.
    pub(crate) environment: Vec<(&'static str, String)>,
    started: Vec<Service>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Postgres,
    Nats,
    Redis,
    RabbitMq,
    Kafka,
}

const ALL: [Service; 5] = [Service::Postgres, Service::Nats, Service::Redis, Service::RabbitMq, Service::Kafka];

impl Services {
    /// Stops those that were not running before.
    pub(crate) fn stop_started(&self) -> Result<()> {
        stop(&self.started)
    }

    fn add(&mut self, service: Service, variable: &'static str, url: String, started: bool) {
        self.environment.push((variable, url));
        self.started.extend(started.then_some(service));
    }
}

/// Starts what is not running and prints the environment to stdout, so that `eval "$(cargo xtask services up)"` works.
pub(crate) fn up() -> Result<()> {
    print!("{}", shell(&start()?));
    Ok(())
}

/// Stops what runs. Stopping twice is no error.
pub(crate) fn down() -> Result<()> {
    stop(&ALL)
}

/// Tells what runs and where.
pub(crate) fn status() -> Result<()> {
    match (given(), running()?) {
        (Some(url), _) => println!("PostgreSQL: {url} (from {POSTGRES_VARIABLE})"),
        (None, Some(postgres)) => {
            println!("PostgreSQL: {} (log: {})", postgres.url(), postgres.log_file().display());
            postgres.keep_running();
        }
        (None, None) => println!("PostgreSQL: not running (start it with `cargo xtask services up`)"),
    }
    brokers::status::<NatsRecipe>()?;
    brokers::status::<RedisRecipe>()?;
    brokers::status::<RabbitMqRecipe>()?;
    kafka::status()
}

/// Installs what servers need, and starts none.
pub(crate) fn install() -> Result<()> {
    let _lock = lock()?;
    install::missing()?;
    kafka::fetch()
}

/// Starts what is not running. A server named by the environment is used as it is, and not started.
pub(crate) fn start() -> Result<Services> {
    let _lock = lock()?;
    install::missing()?;
    let mut services = Services::default();
    let outcome = start_each(&mut services);
    if let Err(error) = outcome {
        // What was started would be nobody's to stop.
        let _ = stop_unlocked(&services.started);
        return Err(error);
    }
    fs::write(env_file(), shell(&services))?;
    Ok(services)
}

fn start_each(services: &mut Services) -> Result<()> {
    let (url, started) = start_postgres()?;
    services.add(Service::Postgres, POSTGRES_VARIABLE, url, started);
    let nats = brokers::start::<NatsRecipe>()?;
    services.add(Service::Nats, NatsRecipe::VARIABLE, nats.url, nats.started);
    let redis = brokers::start::<RedisRecipe>()?;
    services.add(Service::Redis, RedisRecipe::VARIABLE, redis.url, redis.started);
    let rabbitmq = brokers::start::<RabbitMqRecipe>()?;
    services.add(Service::RabbitMq, RabbitMqRecipe::VARIABLE, rabbitmq.url, rabbitmq.started);
    let kafka = kafka::start()?;
    services.add(Service::Kafka, semel_testkit::kafka::SERVER_VARIABLE, kafka.url, kafka.started);
    Ok(())
}

fn start_postgres() -> Result<(String, bool)> {
    if let Some(url) = given() {
        eprintln!("PostgreSQL: {url} (from {POSTGRES_VARIABLE})");
        return Ok((url, false));
    }
    let (postgres, started) = match running()? {
        Some(postgres) => (postgres, false),
        None => {
            eprintln!("PostgreSQL: starting");
            (Cluster::start(&postgres_dir()).context("PostgreSQL could not be started")?, true)
        }
    };
    let url = postgres.url();
    eprintln!("PostgreSQL: {url} (log: {})", postgres.log_file().display());
    postgres.keep_running();
    Ok((url, started))
}

fn stop(services: &[Service]) -> Result<()> {
    let _lock = lock()?;
    stop_unlocked(services)
}

fn stop_unlocked(services: &[Service]) -> Result<()> {
    if !services.is_empty() {
        let _ = fs::remove_file(env_file());
    }
    for service in services {
        match service {
            Service::Postgres => stop_postgres()?,
            Service::Nats => brokers::stop::<NatsRecipe>()?,
            Service::Redis => brokers::stop::<RedisRecipe>()?,
            Service::RabbitMq => brokers::stop::<RabbitMqRecipe>()?,
            Service::Kafka => kafka::stop()?,
        }
    }
    Ok(())
}

fn stop_postgres() -> Result<()> {
    match running()? {
        Some(mut postgres) => {
            postgres.stop()?;
            eprintln!("PostgreSQL: stopped");
        }
        None => eprintln!("PostgreSQL: was not running"),
    }
    if cluster::find_binaries().is_ok() {
        let orphans = cluster::stop_orphans()?;
        if orphans > 0 {
            eprintln!("PostgreSQL: stopped {orphans} that killed tests had left behind");
        }
    }
    Ok(())
}

fn running() -> Result<Option<Cluster>> {
    // Without PostgreSQL's programs there can be no private server to find.
    match cluster::find_binaries() {
        Ok(_) => Ok(Cluster::running(&postgres_dir())?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn shell(services: &Services) -> String {
    services.environment.iter().map(|(variable, value)| format!("export {variable}='{value}'\n")).collect()
}

fn given() -> Option<String> {
    std::env::var(POSTGRES_VARIABLE).ok().filter(|url| !url.is_empty())
}

/// Two runs at once must not both create the servers; the lock goes with the file handle.
fn lock() -> Result<File> {
    let lock = services_dir().join("lock");
    let opened = fs::create_dir_all(services_dir()).and_then(|()| File::create(&lock));
    let file = opened.with_context(|| format!("{} cannot be written", lock.display()))?;
    if file.try_lock().is_err() {
        eprintln!("waiting for another `cargo xtask` to be done with the services");
        file.lock()?;
    }
    Ok(file)
}

/// Where they live.
pub(crate) fn services_dir() -> PathBuf {
    cluster::target_dir().join("services")
}

fn postgres_dir() -> PathBuf {
    services_dir().join("postgres")
}

fn env_file() -> PathBuf {
    services_dir().join("env")
}
