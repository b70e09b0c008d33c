//! What no line may hold, and how long lines and files may be.

use crate::Source;

const LONGEST_LINE: usize = 120;
const LONGEST_FILE: usize = 600;

/// These files name what they forbid.
const OWN: &str = "xtask/tests/tidy/";

/// Tests that may sleep. Everything else waits for the thing itself.
const MAY_SLEEP: &[&str] = &[
    // A client that is told to come back paces itself between bounded retries.
    "crates/semel-server/tests/guarantees/fence.rs",
    "crates/semel-server/tests/guarantees/world.rs",
    // That a lease is renewed shows only as time passes.
    "crates/semel-tower/tests/contract/leases.rs",
];

/// The first member is forbidden where it stands as a word of its own; the second says what to do.
const LEFTOVERS: &[(&str, &str)] = &[
    ("TODO", "do it, or open an issue"),
    ("FIXME", "fix it, or open an issue"),
    ("XXX", "say what is meant"),
    ("dbg!", "remove it"),
    ("todo!", "write it"),
    ("#[ignore", "a test that is not run proves nothing: make it run, or remove it"),
];

const MACHINE_PATHS: &[&str] = &["/work/", "/root/", "/home/"];

pub(crate) fn check(source: &Source) -> Vec<String> {
    let mut wrong = Vec::new();
    let own = source.path.starts_with(OWN);
    let in_tests = source.is("rs") && source.path.split('/').any(|part| part == "tests");
    for (number, line) in (1..).zip(source.text.lines()) {
        let mut tell = |what: &str| wrong.push(format!("{}:{number}: {what}", source.path));
        if (source.is("rs") || source.is("sql")) && line.chars().count() > LONGEST_LINE {
            tell(&format!("longer than {LONGEST_LINE} columns"));
        }
        if line.ends_with([' ', '\t', '\r']) {
            tell("whitespace at the end of the line");
        }
        if source.is("rs") && line.contains('\t') {
            tell("a tab: use spaces");
        }
        if own {
            continue;
        }
        for (leftover, advice) in LEFTOVERS {
            if has_word(line, leftover) {
                tell(&format!("`{leftover}`: {advice}"));
            }
        }
        if is_banner(line) {
            tell("a banner: split the file, or let names speak");
        }
        if in_tests && !MAY_SLEEP.contains(&source.path.as_str()) && has_word(line, "sleep(") {
            tell("a sleep in a test: wait for the thing itself");
        }
        for path in MACHINE_PATHS {
            if has_absolute(line, path) {
                tell(&format!("`{path}` is a path on somebody's machine"));
            }
        }
    }
    let length = source.text.lines().count();
    if length > LONGEST_FILE {
        wrong.push(format!("{}: {length} lines; past {LONGEST_FILE} it is two files", source.path));
    }
    if !source.text.is_empty() && !source.text.ends_with('\n') {
        wrong.push(format!("{}: no newline at the end", source.path));
    }
    wrong
}

/// Exceptions that are none any more.
pub(crate) fn stale_exceptions(sources: &[Source]) -> Vec<String> {
    let sleeps = |path: &str| sources.iter().any(|source| source.path == path && has_word(&source.text, "sleep("));
    let stale = MAY_SLEEP.iter().filter(|path| !sleeps(path));
    stale.map(|path| format!("{path}: does not sleep any more; remove it from the list")).collect()
}

fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let bounded_after = !word.ends_with(part_of_word) || !after.is_some_and(part_of_word);
        let bounded_before = !word.starts_with(part_of_word) || !before.is_some_and(part_of_word);
        bounded_before && bounded_after
    })
}

fn has_absolute(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.}>*$".contains(c))
    })
}

fn is_banner(line: &str) -> bool {
    let line = line.trim_start();
    ["//", "--", "#"].iter().any(|comment| {
        let drawn = line.strip_prefix(comment).map(str::trim_start).unwrap_or_default();
        ["-----", "=====", "*****", "#####"].iter().any(|rule| drawn.starts_with(rule))
    })
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::Source;

    fn wrong(path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn an_ordinary_file_passes() {
        assert_eq!(check(&Source::new("crates/a/src/b.rs", "//! A noun.\n\nfn a() {}\n")), Vec::<String>::new());
    }

    #[test]
    fn lines_over_the_limit_are_found_in_code_and_not_in_prose() {
        let long = format!("// {}\n", "é".repeat(118));
        assert_eq!(wrong("a.rs", &long), 1);
        assert_eq!(wrong("a.sql", &long), 1);
        assert_eq!(wrong("a.md", &long), 0);
        assert_eq!(wrong("a.rs", &format!("// {}\n", "é".repeat(117))), 0);
    }

    #[test]
    fn whitespace_out_of_place_is_found() {
        assert_eq!(wrong("a.md", "word \n"), 1);
        assert_eq!(wrong("a.toml", "word\r\n"), 0, "lines() takes the pair; git keeps it out");
        assert_eq!(wrong("a.rs", "\tlet x;\n"), 1);
        assert_eq!(wrong("a.rs", "let x;"), 1);
    }

    #[test]
    fn leftovers_are_found_as_words_only() {
        for leftover in ["// TODO: later", "// FIXME", "// XXX", "dbg!(x);", "todo!()", "#[ignore]", "#[ignore = \"\"]"]
        {
            assert_eq!(wrong("a.rs", &format!("{leftover}\n")), 1, "{leftover}");
        }
        assert_eq!(wrong("a.rs", "let s = \"MASTODON\"; my_todo!(); XXXL\n"), 0);
    }

    #[test]
    fn banners_are_found() {
        for banner in ["// -------- helpers --------", "-- =======", "    //======"] {
            assert_eq!(wrong("a.rs", &format!("{banner}\n")), 1, "{banner}");
        }
        assert_eq!(wrong("a.sql", "-- a comment\n"), 0);
    }

    #[test]
    fn sleeps_are_found_in_tests_only() {
        for sleep in ["std::thread::sleep(d);", "tokio::time::sleep(d).await;", "sleep(d).await;"] {
            assert_eq!(wrong("crates/a/tests/b.rs", &format!("{sleep}\n")), 1, "{sleep}");
            assert_eq!(wrong("crates/a/src/b.rs", &format!("{sleep}\n")), 0, "{sleep}");
        }
        assert_eq!(wrong("crates/a/tests/b.rs", "client.execute(\"SELECT pg_sleep(1)\");\n"), 0);
    }

    #[test]
    fn an_exception_that_does_not_sleep_any_more_is_found() {
        let sleeping = |path: &&str| Source::new(path, "sleep(d).await;\n");
        let sources: Vec<Source> = super::MAY_SLEEP.iter().map(sleeping).collect();
        assert_eq!(super::stale_exceptions(&sources), Vec::<String>::new());
        assert_eq!(super::stale_exceptions(&sources[1..]).len(), 1);
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        for line in ["see /work/x", "\"/root/.cargo\"", "`/home/me`", "(/home/me)"] {
            assert_eq!(wrong("a.md", &format!("{line}\n")), 1, "{line}");
        }
        assert_eq!(wrong("a.md", "crates/work/src and ../home/x and https://example.com/home/\n"), 0);
    }

    #[test]
    fn a_file_over_the_limit_is_found() {
        assert_eq!(wrong("a.rs", &"x\n".repeat(600)), 0);
        assert_eq!(wrong("a.rs", &"x\n".repeat(601)), 1);
    }
}
