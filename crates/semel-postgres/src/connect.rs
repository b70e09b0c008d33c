//! How the store reaches its database.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use semel::Error;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::session::Connector;
use crate::tls;

/// How the store uses its database.
#[derive(Debug, Clone)]
pub struct Options {
    /// The most connections kept open.
    pub pool_size: usize,
    /// How long one transaction may run, and how long its connection may stay idle inside it, before the server ends
    /// it. It bounds how long a stopped or vanished process holds its key.
    pub deadline: Duration,
    /// The isolation level of transactions.
    pub isolation: Isolation,
    /// Whether statements are prepared by name.
    pub statements: Statements,
    /// How long to tell a client to wait when its key is in flight.
    pub retry_after: Duration,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long to wait for the answer to COMMIT before asking what became of it.
    pub commit_timeout: Duration,
    /// The most requests that may wait for a key in flight at one time. Each uses a connection; beyond that they are
    /// told to retry.
    pub max_waiting: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            pool_size: 16,
            deadline: Duration::from_secs(30),
            isolation: Isolation::ReadCommitted,
            statements: Statements::Named,
            retry_after: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            commit_timeout: Duration::from_secs(10),
            max_waiting: 4,
        }
    }
}

/// The isolation level of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// PostgreSQL's default, and ours.
    ReadCommitted,
    /// One snapshot for the whole transaction.
    RepeatableRead,
    /// As if transactions ran one after the other; more of them are rolled back and run again.
    Serializable,
}

impl Isolation {
    pub(crate) fn sql(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE READ",
            Isolation::Serializable => "SERIALIZABLE",
        }
    }
}

/// Whether statements are prepared by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statements {
    /// Prepared once per connection: the fastest, on a direct connection.
    Named,
    /// Sent whole each time: for a pooler in transaction mode, such as pgbouncer.
    Unnamed,
}

/// Opens a pool. No connection is made yet.
pub(crate) fn pool(url: &str, options: &Options) -> Result<(Pool, Connector), Error> {
    let (url, root_certificate) = take_parameter(url, "sslrootcert");
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        // The driver's message names the parameter, never the password.
        Error::Settings(format!("the PostgreSQL URL is not valid: {}", causes(&error)))
    })?;
    if options.pool_size == 0 {
        return Err(Error::Settings("postgres.pool_size must be above zero".to_owned()));
    }
    if i32::try_from(options.deadline.as_millis()).is_err() {
        return Err(Error::Settings("transaction_deadline must be below 24 days".to_owned()));
    }
    config.connect_timeout(options.connect_timeout);
    config.keepalives(true);
    config.keepalives_idle(Duration::from_secs(10));
    config.keepalives_interval(Duration::from_secs(5));
    config.keepalives_retries(3);
    config.tcp_user_timeout(options.deadline + options.commit_timeout);
    if config.get_application_name().is_none() {
        config.application_name("semel");
    }
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let connector = match config.get_ssl_mode() {
        SslMode::Disable => Connector::Plain,
        // Without being asked, encrypt if the server can, like libpq: no certificate is checked.
        SslMode::Prefer if root_certificate.is_none() => Connector::Tls(MakeRustlsConnect::new(tls::unverified()?)),
        _ => Connector::Tls(MakeRustlsConnect::new(tls::verified(root_certificate.as_deref())?)),
    };
    let manager = match &connector {
        Connector::Plain => Manager::from_config(config, NoTls, recycling),
        Connector::Tls(tls) => Manager::from_config(config, tls.clone(), recycling),
    };
    let pool = Pool::builder(manager)
        .max_size(options.pool_size)
        .wait_timeout(Some(options.connect_timeout))
        .create_timeout(Some(options.connect_timeout))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| Error::Settings(error.to_string()))?;
    Ok((pool, connector))
}

/// Takes a parameter that the driver does not know out of a URL.
fn take_parameter(url: &str, name: &str) -> (String, Option<String>) {
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let mut taken = None;
    let rest: Vec<&str> = query
        .split('&')
        .filter(|pair| match pair.split_once('=') {
            Some((key, value)) if key == name => {
                taken = Some(value.to_owned());
                false
            }
            _ => true,
        })
        .collect();
    let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
    (url, taken)
}

/// An error with its causes, in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        line.push_str(": ");
        line.push_str(&inner.to_string());
        cause = inner.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_certificate_is_taken_out_of_the_url() {
        let url = "postgres://h/d?sslmode=require&sslrootcert=/ca.pem&application_name=x";
        let (rest, certificate) = take_parameter(url, "sslrootcert");
        assert_eq!(rest, "postgres://h/d?sslmode=require&application_name=x");
        assert_eq!(certificate.as_deref(), Some("/ca.pem"));
        assert_eq!(take_parameter("postgres://h/d", "sslrootcert"), ("postgres://h/d".to_owned(), None));
    }

    #[test]
    fn a_broken_url_is_refused_without_showing_its_password() {
        let refused = pool("postgres://u:hunter2@h/d?nonsense=1", &Options::default()).err().map(|e| e.to_string());
        let message = refused.unwrap_or_default();
        assert!(message.contains("nonsense"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
}
