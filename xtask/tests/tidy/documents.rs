//! Documents are linked, links lead somewhere, and nothing promises what does not exist.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use crate::Source;
use crate::structure::resolve;

/// Read from the root of the repository, and by the tools that know their names.
const ENTRANCES: &[&str] = &["README.md", "CHANGELOG.md"];

pub(crate) fn check(sources: &[Source]) -> Vec<String> {
    let documents: Vec<&Source> = sources.iter().filter(|source| source.is("md")).collect();
    let mut wrong: Vec<String> =
        sources.iter().filter(|s| !s.path.starts_with("xtask/tests/")).flat_map(promises).collect();
    let known: HashSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    let mut linked = BTreeSet::new();
    for document in &documents {
        for (number, target) in links(&document.text) {
            let target = resolve(&document.path, target);
            if target != document.path {
                linked.insert(target.clone());
            }
            if !known.contains(target.as_str()) && !exists(&target) {
                wrong.push(format!("{}:{number}: the link leads nowhere: {target}", document.path));
            }
        }
    }
    let tests = test_names(sources);
    wrong.extend(documents.iter().flat_map(|document| missing_tests(document, &tests)));
    for document in documents {
        let unread = document.path.starts_with("docs/") && !linked.contains(&document.path);
        if unread && !ENTRANCES.contains(&document.path.as_str()) {
            wrong.push(format!("{}: no other document links here, so nobody will read it", document.path));
        }
    }
    wrong
}

/// Every name of a function, which is what a test is by its name.
fn test_names(sources: &[Source]) -> HashSet<&str> {
    let code = sources.iter().filter(|source| source.is("rs"));
    let declared = code.flat_map(|source| source.text.split("fn ").skip(1));
    declared.map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()).collect()
}

/// Tables that name the tests which prove them: a name in backticks of four words or more must exist.
fn missing_tests(document: &Source, tests: &HashSet<&str>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(document.text.lines()).filter(|(_, line)| line.starts_with('|')) {
        for name in line.split('`').skip(1).step_by(2) {
            let is_test = name.matches('_').count() >= 3
                && name.chars().all(|c| c.is_ascii_lowercase() || "_0123456789".contains(c));
            let is_metric = name.starts_with("semel_") || name.starts_with("idle_in_");
            if is_test && !is_metric && !tests.contains(name) {
                wrong.push(format!("{}:{number}: there is no test of the name {name}", document.path));
            }
        }
    }
    wrong
}

/// A link may lead to a directory or to a file of a kind that is not read here.
fn exists(target: &str) -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(target).exists()
}

/// Line numbers and targets of the links to files, without their anchors. Code blocks hold no links.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number, target));
            }
        }
    }
    found
}

/// There is no exactly-once *delivery*. A paragraph may name it only to say so.
fn promises(source: &Source) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut line = 1;
    for paragraph in source.text.split("\n\n") {
        let words = paragraph.replace("///", " ").replace("//!", " ").to_lowercase();
        let words = words.split(|c: char| c.is_whitespace() || c == '*' || c == '-').filter(|word| !word.is_empty());
        let words = words.collect::<Vec<_>>().join(" ");
        if words.contains("exactly once delivery") && !words.contains("does not exist") {
            wrong.push(format!(
                "{}:{line}: \"exactly-once delivery\" does not exist; write \"effect\", or say that it does not",
                source.path
            ));
        }
        line += paragraph.matches('\n').count() + 2;
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::Source;

    #[test]
    fn a_document_nobody_links_is_found() {
        let readme = Source::new("README.md", "See [a](docs/a.md).\n");
        let a = Source::new("docs/a.md", "# A\n");
        let b = Source::new("docs/b.md", "[myself](b.md)\n");
        assert_eq!(check(&[readme.clone(), a.clone()]), Vec::<String>::new());
        let wrong = check(&[readme, a, b]);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].starts_with("docs/b.md: no other document"));
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let readme = Source::new("README.md", "See [a](docs/none.md#x), [b](https://x.y/z), [c](#here).\n");
        assert_eq!(check(&[readme]), ["README.md:1: the link leads nowhere: docs/none.md"]);
        assert!(check(&[Source::new("README.md", "```\nsee [a](docs/none.md)\n```\n")]).is_empty());
    }

    #[test]
    fn a_test_that_a_table_names_must_exist() {
        let code = Source::new("a.rs", "#[test]\nfn a_key_runs_once() {}\n");
        let readme = Source::new("README.md", "| once | `a_key_runs_once` |\n| twice | `a_key_runs_twice` |\n");
        assert_eq!(check(&[code, readme]), ["README.md:2: there is no test of the name a_key_runs_twice"]);
    }

    #[test]
    fn links_are_followed_from_where_they_stand() {
        let a = Source::new("docs/guides/a.md", "[b](../b.md#part)\n");
        let b = Source::new("docs/b.md", "[a](guides/a.md)\n");
        assert_eq!(check(&[a, b]), Vec::<String>::new());
    }

    #[test]
    fn a_promise_of_delivery_is_found_however_it_is_broken() {
        for text in
            ["We give exactly-once delivery.\n", "//! Exactly-once\n//! *delivery*\n", "exactly once\n    delivery\n"]
        {
            assert_eq!(check(&[Source::new("README.md", text)]).len(), 1, "{text}");
        }
        let told = "Exactly-once delivery does not exist.\n\nWe promise exactly-once effect.\n";
        assert_eq!(check(&[Source::new("README.md", told)]), Vec::<String>::new());
    }
}
