//! Private servers for tests: under target/services, on free loopback ports, in nobody's way.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, Result};
use semel_testkit::cluster::{self, Cluster};

use crate::install;

/// The variable that names the server tests create their databases on.
pub(crate) const POSTGRES_VARIABLE: &str = "SEMEL_TEST_POSTGRES_URL";

/// What [`start`] found or made.
#[derive(Debug)]
pub(crate) struct Services {
    /// How to reach PostgreSQL.
    pub(crate) postgres_url: String,
    /// Whether it was started by this call, and so is the caller's to stop.
    pub(crate) started: bool,
}

/// Starts what is not running and prints the environment to stdout, so that `eval "$(cargo xtask services up)"` works.
pub(crate) fn up() -> Result<()> {
    let services = start()?;
    print!("{}", environment(&services.postgres_url));
    Ok(())
}

/// Stops what runs. Stopping twice is no error.
pub(crate) fn down() -> Result<()> {
    let _lock = lock()?;
    let _ = fs::remove_file(env_file());
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

/// Tells what runs and where.
pub(crate) fn status() -> Result<()> {
    if let Some(url) = given() {
        println!("PostgreSQL: {url} (from {POSTGRES_VARIABLE})");
        return Ok(());
    }
    match running()? {
        Some(postgres) => {
            println!("PostgreSQL: {} (log: {})", postgres.url(), postgres.log_file().display());
            postgres.keep_running();
        }
        None => println!("PostgreSQL: not running (start it with `cargo xtask services up`)"),
    }
    Ok(())
}

/// Starts what is not running. A server named by the environment is used as it is, and nothing is started.
pub(crate) fn start() -> Result<Services> {
    if let Some(url) = given() {
        eprintln!("PostgreSQL: {url} (from {POSTGRES_VARIABLE})");
        return Ok(Services { postgres_url: url, started: false });
    }
    install::missing()?;
    let _lock = lock()?;
    let (postgres, started) = match running()? {
        Some(postgres) => (postgres, false),
        None => {
            eprintln!("PostgreSQL: starting");
            (Cluster::start(&postgres_dir()).context("PostgreSQL could not be started")?, true)
        }
    };
    let services = Services { postgres_url: postgres.url(), started };
    fs::write(env_file(), environment(&services.postgres_url))?;
    eprintln!("PostgreSQL: {} (log: {})", services.postgres_url, postgres.log_file().display());
    postgres.keep_running();
    Ok(services)
}

fn running() -> Result<Option<Cluster>> {
    // Without PostgreSQL's programs there can be no private server to find.
    match cluster::find_binaries() {
        Ok(_) => Ok(Cluster::running(&postgres_dir())?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn environment(postgres_url: &str) -> String {
    format!("export {POSTGRES_VARIABLE}='{postgres_url}'\n")
}

fn given() -> Option<String> {
    std::env::var(POSTGRES_VARIABLE).ok().filter(|url| !url.is_empty())
}

/// Two runs at once must not both create the cluster; the lock goes with the file handle.
fn lock() -> Result<File> {
    fs::create_dir_all(services_dir())?;
    let file = File::create(services_dir().join("lock"))?;
    file.lock()?;
    Ok(file)
}

fn services_dir() -> PathBuf {
    cluster::target_dir().join("services")
}

fn postgres_dir() -> PathBuf {
    services_dir().join("postgres")
}

fn env_file() -> PathBuf {
    services_dir().join("env")
}
