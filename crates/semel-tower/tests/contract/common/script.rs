//! What the handlers are told to do, and what they did.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;
use tokio::sync::{oneshot, watch};

/// What one run of a handler does.
pub struct Script {
    pub acts: bool,
    /// Where it stops before it acts.
    pub before: Option<Hold>,
    /// Where it stops after it has acted.
    pub hold: Option<Hold>,
    pub answer: Box<dyn FnOnce(usize) -> Response + Send>,
}

/// The handler's side of a place where it stops.
pub struct Hold {
    pub reached: oneshot::Sender<()>,
    pub release: oneshot::Receiver<()>,
}

/// The test's side of a place where something stops. Dropping it lets go.
pub struct Held {
    pub reached: oneshot::Receiver<()>,
    pub release: oneshot::Sender<()>,
}

impl Hold {
    pub fn new() -> (Hold, Held) {
        let (reached, was_reached) = oneshot::channel();
        let (release, released) = oneshot::channel();
        (Hold { reached, release: released }, Held { reached: was_reached, release })
    }

    /// Says that the place is reached, and stays there until it is let go.
    pub async fn stop(self) {
        let _ = self.reached.send(());
        let _ = self.release.await;
    }
}

impl Script {
    /// Acts, and answers this.
    pub fn answer(response: impl IntoResponse + Send + 'static) -> Script {
        Script { answer: Box::new(move |_| response.into_response()), ..Script::usual() }
    }

    /// Answers this without having run a statement.
    pub fn refuse(response: impl IntoResponse + Send + 'static) -> Script {
        Script { acts: false, ..Script::answer(response) }
    }

    /// Acts, stops until it is let go, and answers as usual.
    pub fn held() -> (Script, Held) {
        let (hold, held) = Hold::new();
        (Script { hold: Some(hold), ..Script::usual() }, held)
    }

    /// Stops with the key in flight and nothing done, then acts and answers as usual.
    pub fn held_before_acting() -> (Script, Held) {
        let (hold, held) = Hold::new();
        (Script { before: Some(hold), ..Script::usual() }, held)
    }

    /// Acts, and answers 201 with a body that no two runs share.
    pub fn usual() -> Script {
        Script {
            acts: true,
            before: None,
            hold: None,
            answer: Box::new(|run| (StatusCode::CREATED, Json(json!({ "run": run }))).into_response()),
        }
    }
}

/// The server's memory: what comes next, and what was done.
#[derive(Default)]
pub struct World {
    scripts: Mutex<VecDeque<Script>>,
    runs: AtomicUsize,
    unprotected: AtomicUsize,
    points: Mutex<Vec<Option<String>>>,
    seen: Mutex<Vec<String>>,
    dropped: watch::Sender<usize>,
}

impl World {
    /// The next run follows this script.
    pub fn next(&self, script: Script) {
        self.scripts.lock().unwrap().push_back(script);
    }

    /// The next script and the number of this run, counted from one.
    pub fn begin(&self) -> (Script, usize) {
        let script = self.scripts.lock().unwrap().pop_front().unwrap_or_else(Script::usual);
        (script, self.runs.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// How often a handler ran.
    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    pub fn note_unprotected(&self) {
        self.unprotected.fetch_add(1, Ordering::SeqCst);
    }

    /// How many of the runs had no transaction.
    pub fn unprotected(&self) -> usize {
        self.unprotected.load(Ordering::SeqCst)
    }

    pub fn note_point(&self, point: Option<String>) {
        self.points.lock().unwrap().push(point);
    }

    /// The recovery point that each leased run started at.
    pub fn points(&self) -> Vec<Option<String>> {
        self.points.lock().unwrap().clone()
    }

    /// Counts requests whose future was dropped before it answered.
    pub fn dropped(&self) -> &watch::Sender<usize> {
        &self.dropped
    }

    pub fn note_seen(&self, what: String) {
        self.seen.lock().unwrap().push(what);
    }

    /// The bodies that handlers were given.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}
