//! Counts each protected request once.

use axum::response::Response;
use semel::observe;

use crate::problem::NeverStored;

/// Counts a request when it is dropped, however it ended. A request whose client went away is dropped in the middle
/// and counts as rolled back, which it was.
#[derive(Debug)]
pub(crate) struct Tally {
    operation: String,
    outcome: Option<&'static str>,
}

impl Tally {
    pub(crate) fn new(operation: &str) -> Tally {
        Tally { operation: operation.to_owned(), outcome: Some("rolled_back") }
    }

    pub(crate) fn operation(&self) -> &str {
        &self.operation
    }

    pub(crate) fn set(&mut self, outcome: &'static str) {
        self.outcome = Some(outcome);
    }

    /// The handler answered something that is not stored; perhaps because the store failed it.
    pub(crate) fn refused(&mut self, response: &Response) {
        if response.extensions().get::<NeverStored>().is_some_and(|marked| marked.unavailable) {
            self.set("unavailable");
        }
    }

    /// The request carries no key and needs none: it is not counted.
    pub(crate) fn forget(&mut self) {
        self.outcome = None;
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome {
            observe::key_request(&self.operation, outcome);
        }
    }
}
