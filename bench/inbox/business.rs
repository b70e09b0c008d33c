//! The work of one message: a receipt, and a balance that is changed.

use std::future::Future;

use anyhow::Result;
use semel::Inbox;

use crate::case::Sending;
use crate::load::Numbered;

/// A store on which the work is done, with an inbox or without.
pub(crate) trait Business: Inbox {
    /// What does the work without an inbox.
    type Bare: Bare;

    /// The effect of a message, inside the transaction that also records it.
    fn charge(
        tx: &mut Self::Tx,
        message: Numbered,
        sending: Sending,
    ) -> impl Future<Output = Result<(), semel::Error>> + Send;

    /// The same without an inbox, as a service would write it.
    fn without_inbox(&self) -> impl Future<Output = Result<Self::Bare>> + Send;

    /// How many receipts there are, how many different ones, and how often a balance was changed.
    fn counted(&self) -> impl Future<Output = Result<Counted>> + Send;

    /// How many bytes its log of changes has taken so far, if it tells.
    fn journal_bytes(&self) -> impl Future<Output = Result<Option<u64>>> + Send;

    /// How many commits it has made so far, if it tells.
    fn commits(&self) -> Option<u64>;
}

/// Work without an inbox, on a session of its own.
pub(crate) trait Bare: Send + 'static {
    /// Does the work of these messages in one transaction.
    fn apply(&mut self, messages: &[Numbered], sending: Sending) -> impl Future<Output = Result<()>> + Send;
}

/// What the work has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) receipts: u64,
    pub(crate) different: u64,
    pub(crate) changes: u64,
}
