//! Between JSON and the bytes that a store keeps: sealed, if the service has a keyring.

use bytes::Bytes;

use super::journal::Kept;
use crate::seal::{self, Place};
use crate::store::Store;
use crate::{Ask, Error, Execution, Semel};

/// Where bytes of a flow belong. What is sealed opens only there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Label<'a> {
    /// The input. It is sealed before the run has an identity, so it is bound to scope and key alone.
    Input,
    /// The result, or the failure, of a step of this run.
    Step(Execution, &'a str),
    /// Why this run is undone.
    Unwinding(Execution),
}

/// Makes JSON ready for the store.
pub(super) fn keep<S: Store>(semel: &Semel<S>, ask: &Ask, label: Label<'_>, json: Vec<u8>) -> Result<Kept, Error> {
    let Some(keyring) = &semel.settings().keyring else {
        return Ok(Kept { bytes: json.into(), sealed_by: None });
    };
    let (execution, text) = label.parts();
    let place = Place { scope: &ask.scope, key: &ask.key, execution, label: &text };
    let (bytes, id) = keyring.seal_bytes(&place, &json).map_err(unusable)?;
    Ok(Kept { bytes, sealed_by: Some(id) })
}

/// The JSON that was kept. What operators and staged jobs wrote is not sealed.
pub(super) fn open<S: Store>(semel: &Semel<S>, ask: &Ask, label: Label<'_>, kept: &Kept) -> Result<Bytes, Error> {
    let Some(id) = &kept.sealed_by else { return Ok(kept.bytes.clone()) };
    let keyring = semel.settings().keyring.as_ref().ok_or_else(|| {
        Error::Settings(format!("what is stored of a flow is sealed with key {id:?} and no keyring is set"))
    })?;
    let (execution, text) = label.parts();
    let place = Place { scope: &ask.scope, key: &ask.key, execution, label: &text };
    keyring.open_bytes(&place, id, &kept.bytes).map_err(unusable)
}

impl Label<'_> {
    fn parts(self) -> (Option<Execution>, String) {
        match self {
            Label::Input => (None, "input".to_owned()),
            Label::Step(execution, step) => (Some(execution), format!("step:{step}")),
            Label::Unwinding(execution) => (Some(execution), "unwinding".to_owned()),
        }
    }
}

fn unusable(error: seal::Error) -> Error {
    Error::Reply(error.into())
}
