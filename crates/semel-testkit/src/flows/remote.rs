//! Somebody else's API, with books that tell what it was asked and what it did.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use semel::flow::Failed;
use semel::provider::{Call, Found};

/// What it answers to what it did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Charge {
    /// Which of its deeds it was, counted from one.
    pub(super) id: u32,
}

/// What goes wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It asks to come back, and does nothing.
    Busy,
    /// It turns the request away, and does nothing.
    Refuses,
    /// It says that this will not happen.
    Declines,
    /// The connection breaks before it does anything.
    CutBefore,
    /// The connection breaks after it has done it.
    CutAfter,
    /// It has done it and never answers.
    Hangs,
}

/// A request that it received, or a deed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// What was asked for.
    pub(super) kind: String,
    /// The key that came along.
    pub(super) key: String,
}

#[derive(Debug, Default)]
struct Books {
    requests: Vec<Entry>,
    deeds: Vec<Entry>,
    /// What is answered again to a key that it knows.
    known: HashMap<String, Charge>,
    forgets: bool,
    troubles: HashMap<String, VecDeque<Trouble>>,
    look_ups: u32,
}

/// Somebody else's API. Clones share its books.
#[derive(Debug, Clone, Default)]
pub(super) struct Remote(Arc<Mutex<Books>>);

impl Remote {
    /// From now on it knows no key, so that every request is done.
    pub(super) fn forget_keys(&self) {
        let mut books = self.0.lock().unwrap();
        books.forgets = true;
        books.known.clear();
    }

    /// The next requests of this kind go wrong in these ways, one after the other.
    pub(super) fn trouble(&self, kind: &str, troubles: &[Trouble]) {
        self.0.lock().unwrap().troubles.entry(kind.to_owned()).or_default().extend(troubles);
    }

    /// Does what is asked for, once per key that it knows.
    pub(super) async fn request(&self, kind: &str, call: &Call) -> Result<Charge, Failed> {
        let (trouble, done) = self.receive(kind, call.key());
        match trouble {
            None => Ok(done.expect("without trouble it is done")),
            Some(Trouble::Busy) => Err(Failed::retryable("too many requests")),
            Some(Trouble::Refuses) => Err(Failed::refused("malformed")),
            Some(Trouble::Declines) => Err(Failed::terminal("declined")),
            Some(Trouble::CutBefore | Trouble::CutAfter) => Err(Failed::unknown("the connection broke")),
            Some(Trouble::Hangs) => std::future::pending().await,
        }
    }

    fn receive(&self, kind: &str, key: &str) -> (Option<Trouble>, Option<Charge>) {
        let entry = Entry { kind: kind.to_owned(), key: key.to_owned() };
        let mut books = self.0.lock().unwrap();
        books.requests.push(entry.clone());
        let trouble = books.troubles.get_mut(kind).and_then(VecDeque::pop_front);
        if !matches!(trouble, None | Some(Trouble::CutAfter | Trouble::Hangs)) {
            return (trouble, None);
        }
        if let Some(known) = books.known.get(key) {
            return (trouble, Some(known.clone()));
        }
        books.deeds.push(entry);
        let charge = Charge { id: u32::try_from(books.deeds.len()).unwrap() };
        if !books.forgets {
            books.known.insert(key.to_owned(), charge.clone());
        }
        (trouble, Some(charge))
    }

    /// Says what became of a key, by its books of deeds, whatever it knows of keys.
    pub(super) fn look_up(&self, key: &str) -> Found {
        let mut books = self.0.lock().unwrap();
        books.look_ups += 1;
        match books.deeds.iter().position(|deed| deed.key == key) {
            None => Found::Absent,
            Some(place) => Found::Done(serde_json::json!({ "id": place + 1 })),
        }
    }

    /// How often it was asked what became of a key.
    pub(super) fn look_ups(&self) -> u32 {
        self.0.lock().unwrap().look_ups
    }

    /// The keys of the requests of this kind, in their order.
    pub(super) fn requested(&self, kind: &str) -> Vec<String> {
        keys(&self.0.lock().unwrap().requests, kind)
    }

    /// The keys of the deeds of this kind, in their order.
    pub(super) fn done(&self, kind: &str) -> Vec<String> {
        keys(&self.0.lock().unwrap().deeds, kind)
    }

    /// The kinds of all deeds, in their order.
    pub(super) fn deeds(&self) -> Vec<String> {
        self.0.lock().unwrap().deeds.iter().map(|deed| deed.kind.clone()).collect()
    }
}

fn keys(entries: &[Entry], kind: &str) -> Vec<String> {
    entries.iter().filter(|entry| entry.kind == kind).map(|entry| entry.key.clone()).collect()
}
