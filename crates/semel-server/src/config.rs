//! What was configured: flags over environment over file over defaults.

pub(crate) mod flags;
pub(crate) mod setting;

mod consume;
mod file;
mod relay;
mod sink;
mod source;
mod url;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use semel::reaper::Reaper;
use semel::{Keyring, Retention};
use semel_payments::{Outside, Tokens};
use semel_postgres::{Isolation, Statements};
use semel_tower::Mode;
use semel_tower::policy::{LEASE_BOUNDS, MAX_BODY_LIMIT, MAX_WAIT};

pub(crate) use consume::ConsumeConfig;
pub(crate) use relay::RelayConfig;
use setting::{Exposure, SETTINGS, Setting};
pub(crate) use sink::{SinkUrl, Wanted};
pub(crate) use source::SourceUrl;
pub(crate) use url::DatabaseUrl;

/// The file that is read when none is named and it exists.
const DEFAULT_FILE: &str = "semel.toml";

/// The environment variable that names the file.
const FILE_VARIABLE: &str = "SEMEL_CONFIG";

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Everything that was configured, checked: a value that cannot work is refused before anything starts.
#[derive(Debug)]
pub(crate) struct Config {
    pub database_url: DatabaseUrl,
    pub listen: SocketAddr,
    pub metrics_listen: Option<SocketAddr>,
    pub roles: Option<String>,
    pub retention: Retention,
    pub transaction_deadline: Duration,
    pub request_body_limit: usize,
    pub reply_limit: usize,
    pub wait: Duration,
    pub header_mode: Mode,
    pub keyring: Option<Keyring>,
    pub tokens: Option<Tokens>,
    /// Whether a sandbox without a sink consumes its own events.
    pub sandbox_consume: bool,
    /// Whom the sandbox's orders call.
    pub outside: Option<Outside>,
    pub flow_lease: Duration,
    pub postgres: PostgresConfig,
    pub reaper: Reaper,
    pub relay: RelayConfig,
    pub consume: ConsumeConfig,
    pub log_format: LogFormat,
    pub log: String,
}

/// What only PostgreSQL needs.
#[derive(Debug)]
pub(crate) struct PostgresConfig {
    pub pool_size: usize,
    pub isolation: Isolation,
    pub statements: Statements,
    pub connect_timeout: Duration,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Config {
    /// Reads the configuration of this process.
    pub(crate) fn load(file: Option<&Path>, flags: &BTreeMap<&'static str, String>) -> Result<Config> {
        let environment = environment(std::env::vars_os())?;
        let named = file.map(Path::to_owned).or_else(|| std::env::var_os(FILE_VARIABLE).map(PathBuf::from));
        let found = named.or_else(|| Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists()));
        let file = found.as_deref().map(file::read).transpose()?.unwrap_or_default();
        Config::from_layers(&Layers { flags, environment, file, path: found })
    }

    fn from_layers(layers: &Layers<'_>) -> Result<Config> {
        let duration = |name, from, to| layers.read(name, |text| value::duration(text, from..=to));
        let keep = duration("key_retention", MILLISECOND, semel::retention::MAX_RETENTION)?;
        let horizon = duration("client_retry_horizon", Duration::ZERO, semel::retention::MAX_RETENTION)?;
        let transaction_deadline = duration("transaction_deadline", 100 * MILLISECOND, HOUR)?;
        let wait = duration("wait", Duration::ZERO, MAX_WAIT)?;
        ensure!(
            wait <= transaction_deadline,
            "wait may be at most transaction_deadline ({}): nothing is in flight for longer than that",
            humantime::format_duration(transaction_deadline)
        );
        Ok(Config {
            database_url: layers.read("database_url", DatabaseUrl::parse)?,
            listen: layers.read("listen", address)?,
            metrics_listen: layers.read_if_given("metrics_listen", address)?,
            roles: layers.read_if_given("roles", |text| Ok(text.to_owned()))?,
            retention: Retention::new(keep, horizon)?,
            transaction_deadline,
            request_body_limit: layers.read("request_body_limit", |text| value::size(text, MAX_BODY_LIMIT))?,
            reply_limit: layers.read("reply_limit", |text| value::size(text, semel::reply::MAX_BODY_BYTES))?,
            wait,
            header_mode: layers.read("header_mode", |text| {
                value::word(text, &[("lenient", Mode::Lenient), ("strict", Mode::Strict)])
            })?,
            keyring: keyring(layers)?,
            tokens: layers.read_if_given("sandbox.tokens", value::tokens)?,
            sandbox_consume: layers
                .read("sandbox.consume", |text| value::word(text, &[("true", true), ("false", false)]))?,
            outside: outside(layers)?,
            flow_lease: duration("flow.lease", LEASE_BOUNDS.0, LEASE_BOUNDS.1)?,
            postgres: PostgresConfig {
                pool_size: layers.read("postgres.pool_size", |text| value::number(text, 1..=1000))?,
                isolation: layers.read("postgres.isolation", |text| {
                    let levels = [
                        ("read-committed", Isolation::ReadCommitted),
                        ("repeatable-read", Isolation::RepeatableRead),
                        ("serializable", Isolation::Serializable),
                    ];
                    value::word(text, &levels)
                })?,
                statements: layers.read("postgres.statements", |text| {
                    value::word(text, &[("named", Statements::Named), ("unnamed", Statements::Unnamed)])
                })?,
                connect_timeout: duration("postgres.connect_timeout", 10 * MILLISECOND, HOUR)?,
            },
            reaper: Reaper {
                every: duration("reaper.every", 10 * MILLISECOND, 24 * HOUR)?,
                batch: layers.read("reaper.batch", |text| value::number(text, 1..=100_000))?,
                rest: layers.read("reaper.rest", |text| value::number(text, 0..=100))?,
            },
            relay: RelayConfig::read(layers)?,
            consume: ConsumeConfig::read(layers, transaction_deadline)?,
            log_format: layers.read("log_format", |text| {
                value::word(text, &[("text", LogFormat::Text), ("json", LogFormat::Json)])
            })?,
            log: layers.read("log", |text| {
                crate::logging::filter(text)?;
                Ok(text.to_owned())
            })?,
        })
    }
}

/// The three places a setting may come from; the first that has it wins.
struct Layers<'a> {
    flags: &'a BTreeMap<&'static str, String>,
    environment: BTreeMap<&'static str, String>,
    file: BTreeMap<&'static str, String>,
    path: Option<PathBuf>,
}

/// Where a value came from, for messages.
enum Origin<'a> {
    Flag(String),
    Variable(String),
    File(&'a Path),
    Default,
}

impl Layers<'_> {
    fn find(&self, setting: &'static Setting) -> (&str, Origin<'_>) {
        if let Some(value) = self.flags.get(setting.name) {
            (value, Origin::Flag(setting.flag().unwrap_or_default()))
        } else if let Some(value) = self.environment.get(setting.name) {
            (value, Origin::Variable(setting.variable()))
        } else if let Some(value) = self.file.get(setting.name) {
            (value, Origin::File(self.path.as_deref().unwrap_or(Path::new(DEFAULT_FILE))))
        } else {
            (setting.default, Origin::Default)
        }
    }

    /// Reads a setting; the error names it, its value unless that is secret, where it came from and what is accepted.
    fn read<T>(&self, name: &str, reader: impl FnOnce(&str) -> Result<T>) -> Result<T> {
        let setting = Setting::named(name).with_context(|| format!("{name} is missing from the table of settings"))?;
        let (value, origin) = self.find(setting);
        reader(value).with_context(|| {
            let shown = if setting.exposure == Exposure::Open { format!(" {value:?}") } else { String::new() };
            format!("{name}{shown}, from {origin}, cannot be used; give {}", setting.accepts)
        })
    }

    /// Reads a setting that has no default, if it was given.
    fn read_if_given<T>(&self, name: &str, reader: impl FnOnce(&str) -> Result<T>) -> Result<Option<T>> {
        let given = Setting::named(name).is_some_and(|setting| !matches!(self.find(setting).1, Origin::Default));
        given.then(|| self.read(name, reader)).transpose()
    }
}

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(flag) => write!(f, "the flag --{flag}"),
            Origin::Variable(variable) => write!(f, "the environment variable {variable}"),
            Origin::File(path) => write!(f, "the file {}", path.display()),
            Origin::Default => f.write_str("the defaults"),
        }
    }
}

/// Picks the settings out of the environment. A `SEMEL_` variable that is none is an error that names it, except for
/// those of the test suites.
fn environment(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<BTreeMap<&'static str, String>> {
    let mut given = BTreeMap::new();
    for (variable, value) in variables {
        let Some(variable) = variable.to_str().filter(|name| name.starts_with("SEMEL_")) else { continue };
        if variable == FILE_VARIABLE || variable == "SEMEL_FAILPOINT_CONTROL" || variable.starts_with("SEMEL_TEST_") {
            continue;
        }
        let Some(setting) = SETTINGS.iter().find(|setting| setting.variable() == variable) else {
            let known: Vec<_> = SETTINGS.iter().map(Setting::variable).collect();
            bail!("unknown environment variable {variable}; the variables are {}", known.join(", "));
        };
        let value = value.into_string().ok().with_context(|| format!("{variable} is not UTF-8"))?;
        given.insert(setting.name, value);
    }
    Ok(given)
}

fn address(text: &str) -> Result<SocketAddr> {
    Ok(text.parse()?)
}

/// What the provider promises is read, and refused if it cannot be, whether or not there is one.
fn outside(layers: &Layers<'_>) -> Result<Option<Outside>> {
    let keys = layers.read("provider.keys", value::keys)?;
    let look_up = layers.read("provider.look_up", |text| value::word(text, &[("true", true), ("false", false)]))?;
    let longest = semel::provider::MAX_TIMEOUT;
    let timeout = layers.read("provider.timeout", |text| value::duration(text, MILLISECOND..=longest))?;
    layers.read_if_given("provider.url", |url| {
        let outside = Outside { keys, look_up, timeout, ..Outside::at(url) };
        outside.check().map_err(|wrong| anyhow::anyhow!(wrong))?;
        Ok(outside)
    })
}

fn keyring(layers: &Layers<'_>) -> Result<Option<Keyring>> {
    let direct = layers.read_if_given("reply_keys", value::keyring)?;
    let from_file = layers.read_if_given("reply_keys_file", |path| {
        value::keyring(&std::fs::read_to_string(path).context("it cannot be read")?)
    })?;
    ensure!(direct.is_none() || from_file.is_none(), "both reply_keys and reply_keys_file are set; keep one");
    Ok(direct.or(from_file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(
        flags: &[(&'static str, &str)],
        variables: &[(&str, &str)],
        file: &[(&'static str, &str)],
    ) -> Result<Config> {
        let flags = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let environment = environment(variables.iter().map(|(name, value)| (name.into(), value.into())))?;
        let file = file.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Config::from_layers(&Layers { flags: &flags, environment, file, path: Some(DEFAULT_FILE.into()) })
    }

    #[test]
    fn the_defaults_are_those_of_the_table() {
        let config = load(&[], &[], &[]).unwrap();
        assert_eq!(config.retention, Retention::default());
        assert_eq!(config.transaction_deadline, Duration::from_secs(30));
        assert_eq!((config.request_body_limit, config.reply_limit), (1024 * 1024, 1024 * 1024));
        assert_eq!(config.wait, Duration::ZERO);
        assert_eq!(config.listen.to_string(), "127.0.0.1:7600");
        assert!(config.keyring.is_none() && config.tokens.is_none() && config.metrics_listen.is_none());
        assert!(config.roles.is_none() && config.relay.sink.is_none() && config.consume.source.is_none());
        assert!(config.outside.is_none());
        assert_eq!(config.flow_lease, semel::flow::Settings::default().lease_for);
        let (given, default) = (load(&[("provider.url", "http://h")], &[], &[]).unwrap(), Outside::at("http://h"));
        assert_eq!(format!("{:?}", given.outside), format!("{:?}", Some(default)));
        let (consume, defaults) = (config.consume.settings, semel::runner::Settings::default());
        assert_eq!((consume.retention, consume.workers), (defaults.retention, defaults.workers));
        assert_eq!((consume.batch, consume.in_flight_bytes), (defaults.batch, defaults.in_flight_bytes));
        assert_eq!((consume.attempts, consume.backoff_min), (defaults.attempts, defaults.backoff_min));
        assert_eq!(consume.backoff_max, defaults.backoff_max);
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_the_environment_over_the_file() {
        let file = [("listen", "127.0.0.1:1"), ("wait", "1s"), ("log", "warn")];
        let variables = [("SEMEL_LISTEN", "127.0.0.1:2"), ("SEMEL_WAIT", "2s")];
        let config = load(&[("listen", "127.0.0.1:3")], &variables, &file).unwrap();
        assert_eq!(config.listen.port(), 3);
        assert_eq!(config.wait, Duration::from_secs(2));
        assert_eq!(config.log, "warn");
    }

    #[test]
    fn a_wrong_value_is_named_with_its_origin_and_what_is_accepted() {
        let refused = format!("{:#}", load(&[], &[("SEMEL_WAIT", "soon")], &[]).unwrap_err());
        assert!(refused.contains("wait \"soon\", from the environment variable SEMEL_WAIT"), "{refused}");
        assert!(refused.contains("give a duration such as 500ms"), "{refused}");
        let refused = format!("{:#}", load(&[("reaper.batch", "0")], &[], &[]).unwrap_err());
        assert!(refused.contains("from the flag --reaper-batch"), "{refused}");
    }

    #[test]
    fn settings_of_the_relay_that_contradict_each_other_are_refused() {
        let refused = load(&[], &[], &[("publish_backoff_min", "1m")]).unwrap_err().to_string();
        assert!(refused.contains("publish_backoff_max (30s)"), "{refused}");
        let refused = load(&[], &[], &[("relay.page_bytes", "17MiB")]).unwrap_err().to_string();
        assert!(refused.contains("relay.in_flight_bytes"), "{refused}");
        let refused = load(&[], &[], &[("inbox.backoff_max", "1ms")]).unwrap_err().to_string();
        assert!(refused.contains("inbox.backoff_max (1ms)"), "{refused}");
    }

    #[test]
    fn an_unknown_variable_is_named_and_those_of_tests_are_left_alone() {
        let refused = load(&[], &[("SEMEL_LISTENS", "x")], &[]).unwrap_err().to_string();
        assert!(refused.contains("unknown environment variable SEMEL_LISTENS"), "{refused}");
        assert!(load(&[], &[("SEMEL_TEST_LONG", "1"), ("SEMEL_FAILPOINT_CONTROL", "x"), ("PATH", "x")], &[]).is_ok());
    }

    #[test]
    fn secrets_stay_out_of_errors() {
        for (variable, value) in [
            ("SEMEL_DATABASE_URL", "postgres:/u:hunter2@h/d"),
            ("SEMEL_DATABASE_URL", "mysql://u:hunter2@h/d"),
            ("SEMEL_REPLY_KEYS", "k1:hunter2"),
            ("SEMEL_SANDBOX_TOKENS", "hunter2"),
            ("SEMEL_SINK", "hunter2"),
            ("SEMEL_SOURCE", "hunter2"),
            ("SEMEL_PROVIDER_URL", "ftp://u:hunter2@h"),
        ] {
            let refused = format!("{:?}", load(&[], &[(variable, value)], &[]).unwrap_err());
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn a_horizon_beyond_the_retention_is_refused() {
        let refused = load(&[("client_retry_horizon", "25h")], &[], &[]).unwrap_err().to_string();
        assert!(refused.contains("client_retry_horizon"), "{refused}");
    }
}
