//! A file that a relay's standard output is appended to.

use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use super::{Arrival, topics_of, unique};
use crate::cluster::target_dir;

/// A file of JSON lines, in a directory that goes when this does.
#[derive(Debug)]
pub struct Lines {
    directory: TempDir,
    topics: [String; 2],
}

impl Lines {
    /// A file that is not there yet.
    pub fn create() -> Lines {
        let parent = target_dir().join("lines");
        std::fs::create_dir_all(&parent).unwrap();
        Lines { directory: tempfile::tempdir_in(parent).unwrap(), topics: topics_of(&unique()) }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("events.jsonl")
    }

    pub(super) fn sink_url(&self) -> String {
        format!("file:{}", self.path().display())
    }

    pub(super) fn topics(&self) -> &[String; 2] {
        &self.topics
    }

    /// What the whole lines say. A line that was cut off when its writer was killed is no event.
    pub(super) fn arrived(&self) -> Vec<Arrival> {
        let text = std::fs::read_to_string(self.path()).unwrap_or_default();
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.filter_map(|line| serde_json::from_str(line).ok()).map(|event: Value| arrival(&event)).collect()
    }
}

fn arrival(event: &Value) -> Arrival {
    let text = |name: &str| event[name].as_str().unwrap_or_else(|| panic!("no {name} in {event}")).to_owned();
    Arrival {
        id: text("id"),
        topic: text("semeltopic"),
        event_type: text("type"),
        ordering_key: text("partitionkey"),
        lane: text("semellane").parse().unwrap(),
        sequence: text("semelsequence").parse().unwrap(),
        incarnation: text("semelincarnation"),
        payload: event["data"].to_string().into_bytes(),
    }
}
