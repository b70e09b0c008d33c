//! The stores mirror each other, and no SQL lies about unused.

use std::collections::BTreeSet;

use crate::Source;

const SQLITE: &str = "crates/semel-sqlite/src/";
const POSTGRES: &str = "crates/semel-postgres/src/";

/// Files of the SQLite store that have no counterpart, and why.
const SQLITE_ALONE: &[&str] = &[
    // PostgreSQL has many writers; SQLite has one, which commits waiting operations as a group, turn by turn, with
    // readers beside it, and this process's map of running keys in place of advisory locks.
    "inflight.rs",
    "queue.rs",
    "readers.rs",
    "turn.rs",
    "writer.rs",
    // A commit that failed at the disk may still lie in the write-ahead log of a file; PostgreSQL sees to its own.
    "barrier.rs",
    // What PostgreSQL does in functions of the schema `semel`, SQLite does in Rust.
    "key.rs",
    "probe.rs",
    // In a group that others share, the work must not end the transaction.
    "statement.rs",
    // A file needs more decisions than a URL.
    "options.rs",
];

pub(crate) fn check(sources: &[Source]) -> Vec<String> {
    let mut wrong = mirrored(sources);
    wrong.extend(sql_in_use(sources));
    wrong
}

fn mirrored(sources: &[Source]) -> Vec<String> {
    let below = |root| -> BTreeSet<&str> {
        sources.iter().filter(|s| s.is("rs")).filter_map(|s| s.path.strip_prefix(root)).collect()
    };
    let (sqlite, postgres) = (below(SQLITE), below(POSTGRES));
    let mut wrong: Vec<String> = sqlite
        .difference(&postgres)
        .filter(|name| !SQLITE_ALONE.contains(name))
        .map(|name| format!("{SQLITE}{name}: the stores mirror each other, and {POSTGRES} has no such file"))
        .collect();
    if !sqlite.is_empty() {
        let stale = SQLITE_ALONE.iter().filter(|name| !sqlite.contains(**name) || postgres.contains(**name));
        wrong.extend(stale.map(|name| format!("{SQLITE}{name}: is no longer an exception; remove it from the list")));
    }
    wrong
}

fn sql_in_use(sources: &[Source]) -> Vec<String> {
    let rust = || sources.iter().filter(|source| source.is("rs"));
    let included: BTreeSet<String> = rust().flat_map(included).chain(rust().flat_map(opened)).collect();
    let sql = sources.iter().filter(|source| source.is("sql"));
    sql.filter(|source| !included.contains(&source.path))
        .map(|source| format!("{}: no Rust source reads it: use it or remove it", source.path))
        .collect()
}

/// The files that a Rust source takes in as text, by `include_str!` with a literal, or with a `concat!` around a
/// macro's variable: then every literal of the file may be what stands for the variable.
fn included(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for (at, word) in source.text.match_indices("include_str!(") {
        let call = &source.text[at + word.len()..];
        let call = call.split(')').next().unwrap_or_default();
        let literals: Vec<&str> = call.split('"').skip(1).step_by(2).collect();
        match literals.as_slice() {
            [path] => found.push(resolve(&source.path, path)),
            [before, after] if call.contains('$') => {
                let names = source.text.lines().flat_map(|line| line.split('"').skip(1).step_by(2));
                found.extend(names.map(|name| resolve(&source.path, &format!("{before}{name}{after}"))));
            }
            _ => {}
        }
    }
    found
}

/// The files that a Rust source names from its crate's root, as in `concat!(env!("CARGO_MANIFEST_DIR"), "/a.sql")`.
fn opened(source: &Source) -> Vec<String> {
    let root: Vec<&str> = source.path.split('/').take(2).collect();
    let literals = source.text.lines().flat_map(|line| line.split('"').skip(1).step_by(2));
    literals.filter(|literal| literal.starts_with('/')).map(|literal| format!("{}{literal}", root.join("/"))).collect()
}

/// The path from the root that `target` means when it is written in the file `from`.
pub(crate) fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::{check, resolve};
    use crate::Source;

    fn stores(sqlite: &[&str], postgres: &[&str]) -> Vec<Source> {
        let at = |root: &'static str| move |name: &&str| Source::new(&format!("{root}{name}"), "");
        sqlite.iter().map(at(super::SQLITE)).chain(postgres.iter().map(at(super::POSTGRES))).collect()
    }

    #[test]
    fn a_file_of_one_store_alone_is_found() {
        let both = [&["claim.rs"], super::SQLITE_ALONE].concat();
        assert_eq!(check(&stores(&both, &["claim.rs", "pooler.rs"])), Vec::<String>::new());
        let wrong = check(&stores(&[&both[..], &["lease.rs"]].concat(), &["claim.rs"]));
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].starts_with("crates/semel-sqlite/src/lease.rs"));
    }

    #[test]
    fn an_exception_that_is_none_is_found() {
        assert_eq!(check(&stores(&["claim.rs"], &["claim.rs"])).len(), super::SQLITE_ALONE.len());
    }

    #[test]
    fn sql_that_nothing_reads_is_found() {
        let code = "const A: &str = include_str!(\"../sql/a.sql\");\ninclude_str!(\n    \"../sql/b.sql\"\n);\n";
        let code = Source::new("crates/x/src/lib.rs", code);
        let sql = |name| Source::new(name, "SELECT 1;\n");
        let used = [code.clone(), sql("crates/x/sql/a.sql"), sql("crates/x/sql/b.sql")];
        assert_eq!(check(&used), Vec::<String>::new());
        assert_eq!(check(&[code, sql("crates/y/sql/a.sql")]).len(), 1);

        let code = "($name:literal) => { include_str!(concat!(\"../f/\", $name, \".sql\")) };\nsql!(\"a\");\n";
        let code = Source::new("crates/x/src/lib.rs", code);
        assert_eq!(check(&[code.clone(), sql("crates/x/f/a.sql")]), Vec::<String>::new());
        assert_eq!(check(&[code, sql("crates/x/f/b.sql")]).len(), 1);

        let test = Source::new("crates/x/tests/a.rs", "concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/e/a.sql\")\n");
        assert_eq!(check(&[test.clone(), sql("crates/x/e/a.sql")]), Vec::<String>::new());
        assert_eq!(check(&[test, sql("crates/y/e/a.sql")]).len(), 1);
    }

    #[test]
    fn a_target_is_resolved_from_its_file() {
        assert_eq!(resolve("docs/guides/a.md", "../b.md"), "docs/b.md");
        assert_eq!(resolve("README.md", "./docs/a.md"), "docs/a.md");
    }
}
