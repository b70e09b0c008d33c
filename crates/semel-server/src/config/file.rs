//! The settings of a file, flattened to their names.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use toml::{Table, Value};

use super::setting::{SETTINGS, Setting};

/// The largest file read, in bytes (I12).
const MAX_BYTES: u64 = 1024 * 1024;

/// Reads a file. A key that is not a setting is an error that names it.
pub(crate) fn read(path: &Path) -> Result<BTreeMap<&'static str, String>> {
    let shown = path.display();
    let bytes = std::fs::metadata(path).with_context(|| format!("cannot read the configuration file {shown}"))?.len();
    if bytes > MAX_BYTES {
        bail!("the configuration file {shown} has {bytes} bytes; the limit is {MAX_BYTES}");
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read the configuration file {shown}"))?;
    parse(&text).with_context(|| format!("cannot use the configuration file {shown}"))
}

fn parse(text: &str) -> Result<BTreeMap<&'static str, String>> {
    let table: Table = toml::from_str(text).map_err(|error| {
        // The error's own text quotes the line, which may hold a password or a key.
        let line =
            error.span().map_or(1, |span| 1 + text.as_bytes()[..span.start].iter().filter(|b| **b == b'\n').count());
        anyhow::anyhow!("line {line} is not TOML: {}", error.message())
    })?;
    let mut given = BTreeMap::new();
    flatten("", &table, &mut given)?;
    Ok(given)
}

fn flatten(prefix: &str, table: &Table, given: &mut BTreeMap<&'static str, String>) -> Result<()> {
    for (key, value) in table {
        let name = format!("{prefix}{key}");
        if let Some(setting) = Setting::named(&name) {
            given.insert(setting.name, text(setting, value)?);
            continue;
        }
        let inner = format!("{name}.");
        match value {
            Value::Table(table) if SETTINGS.iter().any(|setting| setting.name.starts_with(&inner)) => {
                flatten(&inner, table, given)?;
            }
            // Somebody who forgot the inner table has written a token here.
            _ if prefix == "sandbox." => {
                bail!(
                    "the table [sandbox] has an unknown key; tokens stand in [sandbox.tokens], as TOKEN = \"TENANT\""
                );
            }
            _ => {
                let known: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
                bail!("unknown key {name}; the keys are {}", known.join(", "));
            }
        }
    }
    Ok(())
}

fn text(setting: &Setting, value: &Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Boolean(yes) if setting.accepts == "true or false" => Ok(yes.to_string()),
        Value::Array(items) if setting.name == "roles" => {
            let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            texts.map(|texts| texts.join(",")).with_context(|| format!("{} must be a list of texts", setting.name))
        }
        Value::Table(table) if setting.name == "sandbox.tokens" => {
            let pairs = table.iter().map(|(token, tenant)| match tenant {
                Value::String(tenant) if !token.contains([':', ',']) && !tenant.contains([':', ',']) => {
                    Ok(format!("{token}:{tenant}"))
                }
                _ => bail!("each entry of [sandbox.tokens] must be TOKEN = \"TENANT\", both without ':' and ','"),
            });
            Ok(pairs.collect::<Result<Vec<_>>>()?.join(","))
        }
        other => bail!("{} is {}; give {}", setting.name, other.type_str(), setting.accepts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_flattened_to_names() {
        let given = parse(
            "listen = '[::1]:1'\nroles = ['reaper']\n[postgres]\npool_size = 4\n[sandbox.tokens]\nt1 = 'a'\nt2 = 'b'\n",
        )
        .unwrap();
        assert_eq!(given["listen"], "[::1]:1");
        assert_eq!(given["roles"], "reaper");
        assert_eq!(given["postgres.pool_size"], "4");
        assert_eq!(given["sandbox.tokens"], "t1:a,t2:b");
    }

    #[test]
    fn an_unknown_key_is_named_with_its_table() {
        let refused = parse("[postgres]\npoolsize = 4\n").unwrap_err().to_string();
        assert!(refused.contains("unknown key postgres.poolsize"), "{refused}");
        assert!(refused.contains("postgres.pool_size"), "{refused}");
        assert!(parse("[kafka]\nx = 1\n").unwrap_err().to_string().contains("unknown key kafka"));
        assert!(parse("postgres = 4\n").unwrap_err().to_string().contains("unknown key postgres"));
    }

    #[test]
    fn what_may_be_a_token_is_not_repeated() {
        for text in [
            "[sandbox]\nhunter2 = 'a'\n",
            "[sandbox]\ntoken = 'hunter2:a'\n",
            "[sandbox.hunter2]\ntenant = 'a'\n",
            "[sandbox.tokens]\nhunter2 = 1\n",
            "[sandbox.tokens]\nhunter2.x = 'a'\n",
            "[sandbox.tokens]\na = 'hunter2:b'\n",
            "[sandbox.tokens]\nhunter2 = 'a'\nhunter2 = 'b'\n",
            "[sandbox.tokens]\nhunter2 'a'\n",
        ] {
            let refused = format!("{:?}", parse(text).unwrap_err());
            assert!(!refused.contains("hunter2"), "{refused}");
            assert!(refused.contains("[sandbox.tokens]") || refused.contains("line"), "{refused}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_refused() {
        let refused = parse("listen = true\n").unwrap_err().to_string();
        assert!(refused.contains("listen is boolean; give an IP address"), "{refused}");
    }

    #[test]
    fn a_syntax_error_names_its_line_and_quotes_nothing() {
        let refused = parse("log = 'info'\nreply_keys = 'k:c2VjcmV0\n").unwrap_err().to_string();
        assert!(refused.contains("line 2"), "{refused}");
        assert!(!refused.contains("c2VjcmV0"), "{refused}");
    }
}
