//! Private NATS, Redis and RabbitMQ servers.

use anyhow::{Context, Result};
use semel_testkit::broker::{Broker, Recipe, server_dir, stop_orphans};

/// What [`start`] found or made.
#[derive(Debug)]
pub(crate) struct Started {
    /// How to reach it.
    pub(crate) url: String,
    /// Whether it was started by this call, and so is the caller's to stop.
    pub(crate) started: bool,
}

/// Starts it if it is not running. A server named by the environment is used as it is, and nothing is started.
pub(crate) fn start<R: Recipe>() -> Result<Started> {
    if let Some(url) = given::<R>() {
        eprintln!("{}: from {}", R::NAME, R::VARIABLE);
        return Ok(Started { url, started: false });
    }
    let (server, started) = match Broker::<R>::running(&server_dir::<R>())? {
        Some(server) => (server, false),
        None => {
            eprintln!("{}: starting", R::NAME);
            let server = Broker::<R>::start(&server_dir::<R>());
            (server.with_context(|| format!("{} could not be started", R::NAME))?, true)
        }
    };
    let url = server.url();
    eprintln!("{}: {url} (log: {})", R::NAME, server.log_file().display());
    server.keep_running();
    Ok(Started { url, started })
}

/// Stops it, and those that killed tests had left behind. Stopping twice is no error.
pub(crate) fn stop<R: Recipe>() -> Result<()> {
    match Broker::<R>::running(&server_dir::<R>())? {
        Some(mut server) => {
            server.stop()?;
            eprintln!("{}: stopped", R::NAME);
        }
        None => eprintln!("{}: was not running", R::NAME),
    }
    let orphans = stop_orphans::<R>()?;
    if orphans > 0 {
        eprintln!("{}: stopped {orphans} that killed tests had left behind", R::NAME);
    }
    Ok(())
}

/// Tells whether it runs and where. What the environment names is not repeated: it may hold a password.
pub(crate) fn status<R: Recipe>() -> Result<()> {
    if given::<R>().is_some() {
        println!("{}: from {}", R::NAME, R::VARIABLE);
        return Ok(());
    }
    match Broker::<R>::running(&server_dir::<R>())? {
        Some(server) => {
            println!("{}: {} (log: {})", R::NAME, server.url(), server.log_file().display());
            server.keep_running();
        }
        None => println!("{}: not running (start it with `cargo xtask services up`)", R::NAME),
    }
    Ok(())
}

/// The server that the environment names.
pub(crate) fn given<R: Recipe>() -> Option<String> {
    std::env::var(R::VARIABLE).ok().filter(|url| !url.is_empty())
}
