//! Where settings come from, and what is said about wrong ones.

use crate::harness::{Home, semel, semel_with};

#[test]
fn an_unknown_key_of_the_file_is_named() {
    let stderr = semel_with(&["migrate", "--print"], &[], "[postgres]\npoolsize = 4\n").failed_with(1);
    assert!(stderr.contains("semel.toml") && stderr.contains("unknown key postgres.poolsize"), "{stderr}");
}

#[test]
fn an_unknown_variable_is_named() {
    let stderr = semel_with(&["migrate", "--print"], &[("SEMEL_DATABSE_URL", "x")], "").failed_with(1);
    assert!(stderr.contains("unknown environment variable SEMEL_DATABSE_URL"), "{stderr}");
}

#[test]
fn an_unknown_flag_is_wrong_usage() {
    semel(&["sandbox", "--listens", "x"]).failed_with(2);
    // A flag that has no meaning for a command is refused rather than ignored.
    semel(&["migrate", "--listen", "127.0.0.1:0"]).failed_with(2);
}

#[test]
fn a_flag_wins_over_the_environment_and_the_environment_over_the_file() {
    let (postgres, sqlite) = ("postgres://file/d", "sqlite:environment.db");
    let file = format!("database_url = '{postgres}'\n");
    let print = ["migrate", "--print"];
    assert!(semel_with(&print, &[], &file).succeeded().contains("on PostgreSQL"));
    assert!(semel_with(&print, &[("SEMEL_DATABASE_URL", sqlite)], &file).succeeded().contains("on SQLite"));
    let flag = ["migrate", "--print", "--database-url", postgres];
    assert!(semel_with(&flag, &[("SEMEL_DATABASE_URL", sqlite)], "").succeeded().contains("on PostgreSQL"));
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let stderr = semel(&["migrate", "--print", "--config", "elsewhere.toml"]).failed_with(1);
    assert!(stderr.contains("cannot read the configuration file elsewhere.toml"), "{stderr}");
    let stderr = semel_with(&["migrate", "--print"], &[("SEMEL_CONFIG", "elsewhere.toml")], "").failed_with(1);
    assert!(stderr.contains("elsewhere.toml"), "{stderr}");
}

#[test]
fn a_horizon_above_the_retention_is_refused_at_start() {
    let home = Home::sqlite();
    let file = "key_retention = '1h'\nclient_retry_horizon = '2h'\n";
    let arguments = ["sandbox", "--listen", "127.0.0.1:0", "--database-url", &home.url()];
    let stderr = semel_with(&arguments, &[], file).failed_with(1);
    assert!(stderr.contains("client_retry_horizon") && stderr.contains("key_retention"), "{stderr}");
}

#[test]
fn a_wrong_value_is_told_with_its_key_its_origin_and_what_is_accepted() {
    for (file, told) in [
        ("transaction_deadline = '30'\n", "give a duration such as 500ms, 30s, 24h or 7d"),
        ("reply_limit = '1GB'\n", "give a size such as 4096, 64KiB or 1MiB"),
        ("header_mode = 'loose'\n", "give lenient or strict"),
        ("wait = '1m1s'\n", "it must be between 0s and 1m"),
        ("wait = '61s'\n", "at most 60s"),
        ("log = '!!'\n", "give a filter such as info"),
        ("[postgres]\npool_size = 0\n", "give a whole number from 1 to 1000"),
        ("[postgres]\nisolation = 'chaos'\n", "give read-committed, repeatable-read or serializable"),
        ("[reaper]\nbatch = -1\n", "give a whole number from 1 to 100000"),
        ("publish_attempts = 0\n", "give a whole number from 1 to 1000"),
        ("sink_guarantee = 'twice'\n", "give at-least-once, deduplicated or transactional"),
        ("event_source = 'two words'\n", "give a URI reference"),
        ("[relay]\nlease = '1ms'\n", "it must be between 100ms and 1h"),
        ("[inbox]\nbatch = 10001\n", "give a whole number from 1 to 10000"),
        ("[sandbox]\nconsume = 'perhaps'\n", "give true or false"),
    ] {
        let stderr = semel_with(&["migrate", "--print"], &[], file).failed_with(1);
        let key = file.trim().rsplit('\n').next().unwrap().split(' ').next().unwrap();
        assert!(stderr.contains(key) && stderr.contains("the file semel.toml"), "{stderr}");
        assert!(stderr.contains(told), "{stderr}");
    }
}

#[test]
fn what_may_be_a_token_is_never_shown() {
    let told = "tokens stand in [sandbox.tokens]";
    let stderr = semel_with(&["migrate", "--print"], &[], "[sandbox]\n'hunter2-long-token' = 'shop'\n").failed_with(1);
    assert!(stderr.contains("semel.toml") && stderr.contains(told) && !stderr.contains("hunter2"), "{stderr}");
    for (tokens, told) in [
        ("one:a,hunter2:shop:x", "entry 2 must have one ':'"),
        ("one:a,a shop:hunter2", "the token of entry 2"),
        ("one:a,one:hunter2", "one token stands for two tenants"),
    ] {
        let stderr = semel_with(&["migrate", "--print"], &[("SEMEL_SANDBOX_TOKENS", tokens)], "").failed_with(1);
        assert!(stderr.contains("SEMEL_SANDBOX_TOKENS") && stderr.contains(told), "{stderr}");
        assert!(!stderr.contains("hunter2"), "{stderr}");
    }
}
