//! How a webhook is sent, as a value and as parameters of its URL.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use semel::{Clock, SystemClock};

use super::target::parsed;
use super::{Error, Resolve, Secret, SystemResolver};

/// The most requests that may be under way at once, whatever the options say.
pub(super) const MAX_CONCURRENCY: usize = 1024;

/// How a webhook is sent.
#[derive(Clone)]
pub struct Options {
    /// What each event is signed with: one signature per secret, so that a receiver may hold the old or the new one
    /// while a secret changes. Without a secret events are not signed.
    pub secrets: Vec<Secret>,
    /// Allows 127.0.0.0/8 and ::1. Off unless set.
    pub allow_loopback: bool,
    /// Allows private and shared addresses: RFC 1918, 100.64.0.0/10 and fc00::/7. Off unless set. Link-local
    /// addresses and the metadata services of clouds stay refused.
    pub allow_private: bool,
    /// How long a receiver may take from the start of an attempt to its status line; 15 s unless set.
    pub timeout: Duration,
    /// How many requests may be under way at once, at most 1024; 32 unless set.
    pub concurrency: usize,
    /// The longest `Retry-After` that is honoured; 5 min unless set.
    pub retry_after_limit: Duration,
    /// Further certificate authorities, as PEM, beside the machine's.
    pub roots_file: Option<PathBuf>,
    /// How names become addresses.
    pub resolver: Arc<dyn Resolve>,
    /// The time that signatures and `Retry-After` count in.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            secrets: Vec::new(),
            allow_loopback: false,
            allow_private: false,
            timeout: Duration::from_secs(15),
            concurrency: 32,
            retry_after_limit: Duration::from_secs(300),
            roots_file: None,
            resolver: Arc::new(SystemResolver),
            clock: Arc::new(SystemClock),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("secrets", &self.secrets)
            .field("allow_loopback", &self.allow_loopback)
            .field("allow_private", &self.allow_private)
            .field("timeout", &self.timeout)
            .field("concurrency", &self.concurrency)
            .field("retry_after_limit", &self.retry_after_limit)
            .field("roots_file", &self.roots_file)
            .finish_non_exhaustive()
    }
}

/// Takes the parameters that begin with `semel_` out of a URL's query, and returns the URL that the receiver will see
/// with the options they make. The rest of the query is the receiver's, and stays byte for byte.
pub(super) fn from_url(url: &str) -> Result<(String, Options), Error> {
    let mut url = parsed(url)?;
    let mut options = Options::default();
    let query = url.query().unwrap_or_default().to_owned();
    let (ours, theirs): (Vec<&str>, Vec<&str>) = query.split('&').partition(|part| part.starts_with("semel_"));
    for part in ours {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = percent_decode_str(value).decode_utf8().map_err(|_| invalid(name, "its value is not UTF-8"))?;
        set(&mut options, name, &value)?;
    }
    let theirs = theirs.join("&");
    url.set_query(if theirs.is_empty() { None } else { Some(&theirs) });
    Ok((url.into(), options))
}

/// Sets one option from a parameter's value; the name is for the error.
type Set = fn(&mut Options, &str, &str) -> Result<(), Error>;

/// The parameters there are.
const PARAMETERS: [(&str, Set); 8] = [
    ("semel_secret", |options, _, value| {
        options.secrets.push(Secret::parse(value)?);
        Ok(())
    }),
    ("semel_secret_file", |options, _, value| {
        let lines = std::fs::read_to_string(value).map_err(|source| Error::SecretFile(source.kind().into()))?;
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            options.secrets.push(Secret::parse(line)?);
        }
        Ok(())
    }),
    ("semel_allow_loopback", |options, name, value| put(&mut options.allow_loopback, flag(name, value))),
    ("semel_allow_private", |options, name, value| put(&mut options.allow_private, flag(name, value))),
    ("semel_timeout_ms", |options, name, value| put(&mut options.timeout, milliseconds(name, value))),
    ("semel_concurrency", |options, name, value| put(&mut options.concurrency, requests(name, value))),
    ("semel_retry_after_limit_ms", |options, name, value| {
        put(&mut options.retry_after_limit, milliseconds(name, value))
    }),
    ("semel_roots_file", |options, _, value| put(&mut options.roots_file, Ok(Some(value.into())))),
];

fn put<T>(option: &mut T, value: Result<T, Error>) -> Result<(), Error> {
    *option = value?;
    Ok(())
}

fn set(options: &mut Options, name: &str, value: &str) -> Result<(), Error> {
    match PARAMETERS.iter().find(|(known, _)| *known == name) {
        Some((_, set)) => set(options, name, value),
        None => {
            let known: Vec<&str> = PARAMETERS.iter().map(|(name, _)| *name).collect();
            Err(invalid(name, format!("there is none of that name; they have: {}", known.join(", "))))
        }
    }
}

fn flag(name: &str, value: &str) -> Result<bool, Error> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(invalid(name, "it is true or false")),
    }
}

fn requests(name: &str, value: &str) -> Result<usize, Error> {
    match value.parse() {
        Ok(requests @ 1..=MAX_CONCURRENCY) => Ok(requests),
        _ => Err(invalid(name, "it is a number of requests between 1 and 1024")),
    }
}

fn milliseconds(name: &str, value: &str) -> Result<Duration, Error> {
    match value.parse() {
        Ok(milliseconds @ 1..=600_000) => Ok(Duration::from_millis(milliseconds)),
        _ => Err(invalid(name, "it is a number of milliseconds between 1 and 600000")),
    }
}

fn invalid(name: &str, why: impl Into<String>) -> Error {
    Error::Parameter { name: name.to_owned(), why: why.into() }
}
