//! A receipt for each charge.

use semel::runner::Failure;
use semel::{Consumer, Message};

use crate::ledger::{Ledger, Receipt};

/// Issues the receipt. It is there if and only if the message counts as seen (I6).
pub(super) fn apply<S: Ledger>(tx: &mut S::Tx, consumer: &Consumer, message: &Message) -> Result<(), Failure> {
    // What is no charge now will be none the next time.
    let receipt: Receipt = serde_json::from_slice(&message.payload).map_err(Failure::hopeless)?;
    S::issue_receipt(tx, consumer, &receipt);
    Ok(())
}
