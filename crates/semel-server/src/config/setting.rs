//! The table of settings, from which flags, environment variables, file keys and their documentation are made.

/// One setting. Its name is its key in the file; the environment variable and the flag follow from it.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The key in the file; a dot stands for a table, as in `[postgres]`.
    pub name: &'static str,
    /// What holds when nobody sets it; empty when there is no value.
    pub default: &'static str,
    /// What is accepted, to complete the sentence "give …".
    pub accepts: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// Whether its value stays out of messages, and off the command line, where every user of the machine can read it.
    pub exposure: Exposure,
    /// Which commands take it as a flag. Every setting may stand in the file, whatever the command.
    pub used_by: u8,
}

/// Where a setting's value may be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposure {
    /// Anywhere.
    Open,
    /// Never in a message; a flag is allowed, since the value need not hold a secret.
    Hidden,
    /// Never in a message, and there is no flag.
    Secret,
}

/// Every command.
pub(crate) const ALL: u8 = 0b1;
/// Commands that connect to the database.
pub(crate) const DATABASE: u8 = 0b10;
/// `semel sandbox`.
pub(crate) const SANDBOX: u8 = 0b100;
/// `semel run`.
pub(crate) const RUN: u8 = 0b1000;
/// `semel outbox replay`.
pub(crate) const REPLAY: u8 = 0b1_0000;
/// `semel consume`.
pub(crate) const CONSUME: u8 = 0b10_0000;

const DURATION: &str = "a duration such as 500ms, 30s, 24h or 7d";
const WAIT: &str = "a duration such as 500ms or 5s, at most 60s and at most transaction_deadline";
const SIZE: &str = "a size such as 4096, 64KiB or 1MiB";
const ADDRESS: &str = "an IP address and a port such as 127.0.0.1:7600, or [::1]:7600; port 0 picks a free one";

const fn open(
    name: &'static str,
    default: &'static str,
    accepts: &'static str,
    used_by: u8,
    meaning: &'static str,
) -> Setting {
    Setting { name, default, accepts, meaning, exposure: Exposure::Open, used_by }
}

/// Every setting, in the order in which the documentation lists them.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "database_url",
        default: "sqlite:semel.db",
        accepts: "sqlite:PATH or postgres://USER:PASSWORD@HOST:PORT/DATABASE",
        meaning: "The database; keys and replies live in the service's own",
        exposure: Exposure::Hidden,
        used_by: ALL,
    },
    open("listen", "127.0.0.1:7600", ADDRESS, SANDBOX, "Where the sandbox serves"),
    open(
        "metrics_listen",
        "",
        ADDRESS,
        RUN | CONSUME,
        "Where `semel run` and `semel consume` serve GET /metrics; nowhere by default",
    ),
    open(
        "roles",
        "",
        "a list of roles separated by commas: reaper, relay, completer",
        RUN,
        "What `semel run` does; reaper and completer by default, and relay too if a sink is set",
    ),
    Setting {
        name: "sink",
        default: "",
        accepts: "a URL that starts with kafka:, nats:, amqp:, amqps:, redis:, rediss:, http:, https: or stdout:",
        meaning: "Where events are published; without one they wait in the outbox",
        exposure: Exposure::Hidden,
        used_by: SANDBOX | RUN | REPLAY,
    },
    open(
        "sink_guarantee",
        "at-least-once",
        "at-least-once, deduplicated or transactional",
        SANDBOX | RUN,
        "The least that the sink must promise; one that promises less is refused at start",
    ),
    open(
        "event_source",
        "semel",
        "a URI reference such as semel or https://shop.example/payments, 1 to 255 visible ASCII characters",
        SANDBOX | RUN | REPLAY,
        "The CloudEvents attribute `source` of every event: who emits",
    ),
    open(
        "publish_attempts",
        "10",
        "a whole number from 1 to 1000",
        SANDBOX | RUN,
        "How often a refused event is tried before its ordering key is parked",
    ),
    open(
        "publish_backoff_min",
        "100ms",
        DURATION,
        SANDBOX | RUN,
        "The pause after the first failed attempt to publish; it doubles with each further one",
    ),
    open("publish_backoff_max", "30s", DURATION, SANDBOX | RUN, "The longest pause between two attempts to publish"),
    open(
        "replay_window",
        "1h",
        DURATION,
        SANDBOX | RUN,
        "How long published events are kept, for `semel outbox replay`",
    ),
    open(
        "relay.name",
        "",
        "1 to 255 bytes without control characters",
        SANDBOX | RUN,
        "What operators see of this relay; host name and process id by default",
    ),
    open("relay.lease", "30s", DURATION, SANDBOX | RUN, "How long a relay that is not heard of keeps its lanes"),
    open(
        "relay.poll_max",
        "100ms",
        DURATION,
        SANDBOX | RUN,
        "How long a relay waits at most before it looks for events of other processes again",
    ),
    open(
        "relay.commit_interval",
        "0s",
        DURATION,
        SANDBOX | RUN,
        "The least time between two batches of one lane; more makes a transactional sink commit less often",
    ),
    open("relay.page_events", "2000", "a whole number from 1 to 100000", SANDBOX | RUN, "The most events read at once"),
    open("relay.page_bytes", "4MiB", SIZE, SANDBOX | RUN, "The most bytes of payloads read at once"),
    open(
        "relay.in_flight_bytes",
        "16MiB",
        SIZE,
        SANDBOX | RUN,
        "The most bytes read and not yet published, each event counting as at least 1 KiB; at least relay.page_bytes",
    ),
    Setting {
        name: "source",
        default: "",
        accepts: "a URL that starts with kafka:, nats:, amqp:, amqps:, redis:, rediss: or http:",
        meaning: "Where `semel consume` receives messages",
        exposure: Exposure::Hidden,
        used_by: CONSUME,
    },
    Setting {
        name: "inbox.tier",
        default: "",
        accepts: "filter, filter:IDS, or a URL that starts with redis: or rediss:",
        meaning: "What remembers ids in front of the inbox, to save work where many messages come again",
        exposure: Exposure::Hidden,
        used_by: CONSUME,
    },
    open(
        "inbox.retention",
        "7d",
        DURATION,
        SANDBOX | CONSUME,
        "How long the id of a message is kept; shorter than its source may deliver it again is refused at start",
    ),
    open(
        "inbox.workers",
        "8",
        "a whole number from 1 to 1000",
        SANDBOX | CONSUME,
        "How many batches of messages are applied side by side; those of one ordering key never are",
    ),
    open(
        "inbox.batch",
        "100",
        "a whole number from 1 to 10000",
        SANDBOX | CONSUME,
        "The most messages applied in one transaction",
    ),
    open(
        "inbox.in_flight_bytes",
        "16MiB",
        SIZE,
        SANDBOX | CONSUME,
        "The most bytes received and not yet applied, each message counting as at least 1 KiB",
    ),
    open(
        "inbox.attempts",
        "10",
        "a whole number from 1 to 1000",
        SANDBOX | CONSUME,
        "How often a message that fails is tried before it is set aside as a dead letter",
    ),
    open(
        "inbox.backoff_min",
        "100ms",
        DURATION,
        SANDBOX | CONSUME,
        "The pause after a message's first failure; it doubles with each further one",
    ),
    open("inbox.backoff_max", "30s", DURATION, SANDBOX | CONSUME, "The longest pause between two attempts to apply"),
    open("key_retention", "24h", DURATION, SANDBOX, "How long a completed key is remembered"),
    open(
        "client_retry_horizon",
        "24h",
        DURATION,
        SANDBOX,
        "How long clients may retry; longer than key_retention is refused",
    ),
    open(
        "transaction_deadline",
        "30s",
        DURATION,
        SANDBOX | RUN | CONSUME,
        "How long one transaction may take before it is rolled back; also how long shutdown waits for requests \
         and for messages that are being applied",
    ),
    open("request_body_limit", "1MiB", SIZE, SANDBOX, "The largest body of a keyed request; a larger one gets 413"),
    open("reply_limit", "1MiB", SIZE, SANDBOX, "The largest reply that is stored; a larger one is rolled back"),
    open("wait", "0s", WAIT, SANDBOX, "How long a request waits for the same key in flight before it is answered 409"),
    open(
        "header_mode",
        "lenient",
        "lenient or strict",
        SANDBOX,
        "Whether a bare Idempotency-Key is accepted (lenient) or only a quoted one (strict)",
    ),
    Setting {
        name: "reply_keys",
        default: "",
        accepts: "ID:KEY or several separated by commas, each KEY 32 bytes in base64; the first seals, all of them \
                  open",
        meaning: "Keys that encrypt stored replies; not encrypted by default",
        exposure: Exposure::Secret,
        used_by: SANDBOX,
    },
    open(
        "reply_keys_file",
        "",
        "the path of a file",
        SANDBOX,
        "A file with reply_keys, one to a line or separated by commas",
    ),
    Setting {
        name: "sandbox.tokens",
        default: "",
        accepts: "a table of TOKEN = \"TENANT\", or in the environment TOKEN:TENANT separated by commas",
        meaning: "The sandbox's bearer tokens and their tenants; demo-a1 and demo-a2 (a) and demo-b1 (b) by default",
        exposure: Exposure::Secret,
        used_by: SANDBOX,
    },
    open(
        "sandbox.consume",
        "true",
        "true or false",
        SANDBOX,
        "Whether a sandbox without a sink consumes its own events, as the consumer `payments`",
    ),
    Setting {
        name: "provider.url",
        default: "",
        accepts: "a URL that starts with http://",
        meaning: "The card processor and mailer that the sandbox's orders call; without one POST /orders answers 503",
        exposure: Exposure::Hidden,
        used_by: SANDBOX,
    },
    open(
        "provider.keys",
        "24h",
        "a duration such as 1h, 24h or 7d, none, or forever",
        SANDBOX,
        "How long the provider recognises a key; orders are kept for at least as long",
    ),
    open(
        "provider.look_up",
        "true",
        "true or false",
        SANDBOX,
        "Whether the provider can be asked what became of a key, with GET /operations",
    ),
    open(
        "provider.timeout",
        "10s",
        DURATION,
        SANDBOX,
        "How long a call to the provider may take before its outcome is unknown",
    ),
    open("flow.lease", "30s", DURATION, SANDBOX, "How long a worker that is not heard of keeps its flow"),
    open(
        "postgres.pool_size",
        "16",
        "a whole number from 1 to 1000",
        SANDBOX | RUN | CONSUME,
        "The most connections kept open",
    ),
    open(
        "postgres.isolation",
        "read-committed",
        "read-committed, repeatable-read or serializable",
        SANDBOX | CONSUME,
        "The isolation level of keyed transactions and of consumers",
    ),
    open(
        "postgres.statements",
        "named",
        "named or unnamed",
        DATABASE,
        "Whether statements are prepared by name; behind a pooler in transaction mode they must be unnamed",
    ),
    open("postgres.connect_timeout", "5s", DURATION, DATABASE, "How long to wait for a connection"),
    open(
        "reaper.every",
        "10s",
        DURATION,
        SANDBOX | RUN,
        "How often expired keys are looked for; messages once a minute at most",
    ),
    open(
        "reaper.batch",
        "1000",
        "a whole number from 1 to 100000",
        SANDBOX | RUN,
        "The most keys or messages deleted in one transaction",
    ),
    open(
        "reaper.rest",
        "3",
        "a whole number from 0 to 100",
        SANDBOX | RUN,
        "How many times as long as a full batch took the reaper rests after it",
    ),
    open("log_format", "text", "text or json", ALL, "How log lines on stderr look"),
    open("log", "info", "a filter such as info, debug or semel=debug,warn", ALL, "What is logged"),
];

impl Setting {
    /// The setting of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// The environment variable.
    pub(crate) fn variable(&self) -> String {
        format!("SEMEL_{}", self.name.replace('.', "_").to_uppercase())
    }

    /// The flag without its dashes, if there is one.
    pub(crate) fn flag(&self) -> Option<String> {
        (self.exposure != Exposure::Secret).then(|| self.name.replace(['.', '_'], "-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_variables_and_flags_are_unique() {
        for (position, setting) in SETTINGS.iter().enumerate() {
            for other in &SETTINGS[..position] {
                assert_ne!(setting.variable(), other.variable());
                assert!(setting.flag().is_none() || setting.flag() != other.flag());
            }
        }
    }

    #[test]
    fn the_documentation_has_this_table() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
        let document = std::fs::read_to_string(document).unwrap();
        let (_, table) = document.split_once("| setting | variable | flag | default | meaning | accepts |\n").unwrap();
        let documented: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
        let row = |setting: &Setting| {
            let flag = setting.flag().map_or("none: it is secret".to_owned(), |flag| format!("`--{flag}`"));
            let default = if setting.default.is_empty() { "not set" } else { &format!("`{}`", setting.default) };
            let Setting { name, meaning, accepts, .. } = setting;
            format!("| `{name}` | `{}` | {flag} | {default} | {meaning} | {accepts} |", setting.variable())
        };
        assert_eq!(documented, SETTINGS.iter().map(row).collect::<Vec<_>>());
    }
}
