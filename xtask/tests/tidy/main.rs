//! Keeps the tree tidy. Each check says where and what to do; `cargo xtask tidy` runs this alone.
#![allow(clippy::unwrap_used, missing_docs)]

mod documents;
mod lines;
mod structure;

use std::path::Path;
use std::process::Command;

/// A source file: its path from the repository's root, with forward slashes, and its text.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    pub(crate) fn is(&self, extension: &str) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, ending)| ending == extension)
    }
}

#[test]
fn the_tree_is_tidy() {
    let sources = sources();
    assert!(sources.len() > 20, "only {} sources were found: the walk is broken", sources.len());
    let mut wrong: Vec<String> = sources.iter().flat_map(lines::check).collect();
    wrong.extend(lines::stale_exceptions(&sources));
    wrong.extend(documents::check(&sources));
    wrong.extend(structure::check(&sources));
    assert!(wrong.is_empty(), "{} things to tidy:\n{}", wrong.len(), wrong.join("\n"));
}

/// Every source that is tracked, or would be if it were added.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .expect("git lists the sources: install git");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut paths: Vec<&str> = std::str::from_utf8(&output.stdout).unwrap().split_terminator('\0').collect();
    paths.sort_unstable();
    paths.dedup();
    let kinds = [".rs", ".sql", ".md", ".toml"];
    let wanted = paths.into_iter().filter(|path| kinds.iter().any(|kind| path.ends_with(kind)));
    // A file that was removed and not yet committed is still listed.
    wanted.filter_map(|path| Some(Source::new(path, &std::fs::read_to_string(root.join(path)).ok()?))).collect()
}
