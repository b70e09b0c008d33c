//! Log lines on stderr.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use tracing::subscriber::set_global_default;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;

use crate::config::{Config, LogFormat};

/// Starts logging. Data goes to stdout; everything that is logged goes to stderr.
pub(crate) fn start(config: &Config) -> Result<()> {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter(&config.log)?)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // Whatever the filter says, no client library logs an event's payload or headers.
    let safe = filter_fn(semel_brokers::may_log);
    // `init` would also take in the `log` crate's records, where the PostgreSQL driver writes each statement with its
    // parameters: keys and bodies among them.
    match config.log_format {
        LogFormat::Text => set_global_default(lines.finish().with(safe)),
        LogFormat::Json => set_global_default(lines.json().flatten_event(true).finish().with(safe)),
    }
    .context("logging was started twice")
}

/// Reads the filter of the setting `log`.
pub(crate) fn filter(text: &str) -> Result<EnvFilter> {
    EnvFilter::builder().parse(text).context("it is not a filter")
}
