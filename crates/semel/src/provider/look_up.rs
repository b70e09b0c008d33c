//! What a provider says of a call when it is asked.

use std::pin::Pin;
use std::sync::Arc;

use super::Call;
use crate::error::Source;

/// What a look-up found.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// It happened, and this is the result of the call, as the call itself would have returned it.
    Done(serde_json::Value),
    /// It was tried and will not happen, and why.
    Failed(String),
    /// The provider knows nothing of it.
    Absent,
    /// The provider knows it and is still at work.
    UnderWay,
}

type Asking = Pin<Box<dyn Future<Output = Result<Found, Source>> + Send>>;

pub(super) type Hook = Arc<dyn Fn(Call) -> Asking + Send + Sync>;
