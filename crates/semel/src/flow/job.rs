//! Work that is to run after a commit.

use serde::Serialize;

use super::journal::{MAX_FLOW_CHARACTERS, MAX_KEPT_BYTES};
use crate::event::derive_uuid;
use crate::{Execution, Fingerprint, Key, Scope};

/// The most jobs one transaction may stage (I12).
pub const MAX_JOBS: usize = 100;

/// A flow that starts if and only if the transaction that stages it commits: a mail that follows an order.
///
/// It is run by a completer of whoever registered the flow, at least once; its calls carry derived keys like those of
/// any flow (I8). Its own key is derived from the run that staged it, so that a step which is run again stages the same
/// job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Whose it is. The operation is the flow's name.
    pub scope: Scope,
    /// The registered flow.
    pub flow: String,
    /// Its input, as JSON. It is not sealed.
    pub input: Vec<u8>,
    /// What the key of the job is compared by.
    pub fingerprint: Fingerprint,
}

/// Why a job was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The flow's name cannot be one.
    #[error("the name of a flow must be 1 to {MAX_FLOW_CHARACTERS} visible ASCII characters, not {0:?}")]
    Flow(String),
    /// The tenant cannot be one.
    #[error(transparent)]
    Scope(#[from] crate::scope::Invalid),
    /// The input is too large.
    #[error("the input of a flow takes {0} bytes and the limit is {MAX_KEPT_BYTES}")]
    Input(usize),
    /// The input could not be written as JSON.
    #[error("the input of a flow could not be written as JSON")]
    Json(#[from] serde_json::Error),
}

impl Job {
    /// A run of the flow `flow` for this tenant, with this input.
    pub fn new<I: Serialize + ?Sized>(tenant: &str, flow: &str, input: &I) -> Result<Job, Invalid> {
        if !(1..=MAX_FLOW_CHARACTERS).contains(&flow.len()) || !flow.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Invalid::Flow(flow.to_owned()));
        }
        let input = serde_json::to_vec(input)?;
        if input.len() > MAX_KEPT_BYTES {
            return Err(Invalid::Input(input.len()));
        }
        let fingerprint = Fingerprint::of_bytes(&input);
        Ok(Job { scope: Scope::new(tenant, flow)?, flow: flow.to_owned(), input, fingerprint })
    }

    /// The key of job number `ordinal`, counted from zero, of a run: a UUID of version 8.
    pub fn key(execution: Execution, ordinal: u32) -> Key {
        Key::derived(derive_uuid("semel job 1", execution.as_uuid(), &ordinal.to_be_bytes()))
    }
}
