//! The balance of each account, added up from its changes.
//!
//! A change applies after the one before it, by the account's version: one that overtook another waits, and one that
//! comes again is stale even where nobody remembers its id.

use semel::inbox::{Rule, Version};
use semel::runner::Failure;
use semel::{Consumer, Message};

use crate::event::{ACCOUNT_DEBITED, ordering_key};
use crate::ledger::{Change, Ledger};

/// Which version of its account the message makes.
pub(super) fn version(message: &Message) -> Option<Version> {
    let change = change(message).ok()?;
    let entity = ordering_key(&change.tenant, &change.account);
    Some(Version { entity, version: u64::try_from(change.version).ok()?, rule: Rule::Each })
}

/// Adds the change. It is added if and only if the message counts as seen (I6).
pub(super) fn apply<S: Ledger>(tx: &mut S::Tx, consumer: &Consumer, message: &Message) -> Result<(), Failure> {
    // What is no change now will be none the next time.
    let change = change(message).map_err(Failure::hopeless)?;
    S::change_projection(tx, consumer, &change);
    Ok(())
}

/// What the message says, with the sign of its amount.
fn change(message: &Message) -> Result<Change, String> {
    let mut change: Change = serde_json::from_slice(&message.payload).map_err(|error| error.to_string())?;
    if change.version < 1 || change.amount < 1 {
        return Err(format!("version {} and amount {} are no change", change.version, change.amount));
    }
    if message.message_type == ACCOUNT_DEBITED {
        change.amount = -change.amount;
    }
    Ok(change)
}
