//! Which keys this process is running.
//!
//! The map answers *in flight* at once, without asking the database. It decides nothing: the row in the write
//! transaction does (I2), so an entry that is gone too early costs a race lost at the first statement, never a second
//! effect.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use semel::{Ask, Error, Key, Scope};
use tokio::sync::watch;

use crate::error::lock;

/// The most keys one process runs at a time (I12).
const MAX_IN_FLIGHT: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    keys: Mutex<Keys>,
}

#[derive(Debug, Default)]
struct Keys {
    entries: HashMap<(Scope, Key), Entry>,
    last_token: u64,
}

#[derive(Debug)]
struct Entry {
    /// Tells this entry from a later one of the same key.
    token: u64,
    /// When the run has used up its deadline, so that another may start.
    until: Instant,
    /// Whether the key was found free; before that, somebody is only asking.
    running: bool,
    /// Made when the first caller waits; dropping it wakes all of them.
    left: Option<watch::Sender<()>>,
}

/// What became of an attempt to enter a key.
#[derive(Debug)]
pub(crate) enum Entering {
    /// The caller alone has the key in this process.
    Entered(Guard),
    /// Another caller has it.
    Taken(Taken),
}

/// A key that another caller of this process has.
#[derive(Debug)]
pub(crate) struct Taken {
    until: Instant,
    left: watch::Receiver<()>,
}

impl Taken {
    /// Returns when the other caller is done, has used up its deadline, or `ends` has come.
    pub(crate) async fn gone(mut self, ends: Instant) {
        let ends = self.until.min(ends);
        // The sender never sends: it is dropped when the entry goes, and that is the signal.
        let _ = tokio::time::timeout_at(ends.into(), self.left.changed()).await;
    }
}

impl InFlight {
    /// Enters the key for `deadline`, or tells who has it.
    pub(crate) fn enter(self: &Arc<Self>, ask: &Ask, deadline: Duration) -> Result<Entering, Error> {
        let name = (ask.scope.clone(), ask.key.clone());
        let now = Instant::now();
        let mut keys = lock(&self.keys);
        if let Some(entry) = keys.entries.get_mut(&name).filter(|entry| entry.until > now) {
            let left = entry.left.get_or_insert_with(|| watch::Sender::new(())).subscribe();
            return Ok(Entering::Taken(Taken { until: entry.until, left }));
        }
        if keys.entries.len() >= MAX_IN_FLIGHT {
            return Err(Error::Unavailable(format!("{MAX_IN_FLIGHT} keys are in flight already").into()));
        }
        keys.last_token += 1;
        let token = keys.last_token;
        keys.entries.insert(name.clone(), Entry { token, until: now + deadline, running: false, left: None });
        Ok(Entering::Entered(Guard { map: Arc::clone(self), name, token }))
    }

    /// Whether this process runs the key now.
    pub(crate) fn runs(&self, scope: &Scope, key: &Key) -> bool {
        let keys = lock(&self.keys);
        keys.entries
            .get(&(scope.clone(), key.clone()))
            .is_some_and(|entry| entry.running && entry.until > Instant::now())
    }
}

/// Holds a key in the map until it is dropped. For a run that completes, that is after its group's COMMIT.
#[derive(Debug)]
pub(crate) struct Guard {
    map: Arc<InFlight>,
    name: (Scope, Key),
    token: u64,
}

impl Guard {
    /// Says that the key was found free and runs now.
    pub(crate) fn run(&self) {
        if let Some(entry) = lock(&self.map.keys).entries.get_mut(&self.name).filter(|e| e.token == self.token) {
            entry.running = true;
        }
    }

    /// Starts the deadline anew. False if it passed before and another caller has the key.
    #[must_use]
    pub(crate) fn extend(&self, deadline: Duration) -> bool {
        let mut keys = lock(&self.map.keys);
        let ours = keys.entries.get_mut(&self.name).filter(|entry| entry.token == self.token);
        ours.map(|entry| entry.until = Instant::now() + deadline).is_some()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut keys = lock(&self.map.keys);
        if keys.entries.get(&self.name).is_some_and(|entry| entry.token == self.token) {
            keys.entries.remove(&self.name);
        }
    }
}
