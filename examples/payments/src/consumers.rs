//! What other services make of this one's events: receipts and balances, each message once.
//!
//! A consumer's rows and the proof that it has seen a message are one commit (I6), so that a message that comes again,
//! from a broker, a relay or an operator, changes nothing.
//!
//! | consumer | takes | makes |
//! |---|---|---|
//! | `receipts` | `charge.created` | a receipt for each charge |
//! | `balances` | `account.credited`, `account.debited` | the balance of each account, added up from its changes |
//! | `payments` | all of these | both |
//!
//! Other messages do not concern them and count as seen.

mod balances;
mod receipts;

use semel::inbox::Version;
use semel::runner::Failure;
use semel::{Consumer, Handler, Message};

use crate::event::{ACCOUNT_CREDITED, ACCOUNT_DEBITED, CHARGE_CREATED};
use crate::ledger::Ledger;

/// The consumer that makes receipts and balances.
pub const PAYMENTS: &str = "payments";

/// The consumer that makes receipts.
pub const RECEIPTS: &str = "receipts";

/// The consumer that makes balances.
pub const BALANCES: &str = "balances";

/// All of them.
pub const NAMES: [&str; 3] = [PAYMENTS, RECEIPTS, BALANCES];

/// One of the consumers, in one of its generations: what an earlier generation has made stays beside.
#[derive(Debug, Clone)]
pub struct PaymentsConsumer {
    consumer: Consumer,
    receipts: bool,
    balances: bool,
}

impl PaymentsConsumer {
    /// The consumer of this name; `None` if it is none of [`NAMES`].
    pub fn named(name: &str, generation: u32) -> Option<PaymentsConsumer> {
        let (receipts, balances) = match name {
            PAYMENTS => (true, true),
            RECEIPTS => (true, false),
            BALANCES => (false, true),
            _ => return None,
        };
        let consumer = Consumer::new(name).ok()?.in_generation(generation);
        Some(PaymentsConsumer { consumer, receipts, balances })
    }
}

impl<S: Ledger> Handler<S> for PaymentsConsumer {
    fn version(&self, message: &Message) -> Option<Version> {
        let versioned = matches!(message.message_type.as_str(), ACCOUNT_CREDITED | ACCOUNT_DEBITED);
        (self.balances && versioned).then(|| balances::version(message)).flatten()
    }

    async fn apply(&self, tx: &mut S::Tx, message: &Message) -> Result<(), Failure> {
        match message.message_type.as_str() {
            CHARGE_CREATED if self.receipts => receipts::apply::<S>(tx, &self.consumer, message),
            ACCOUNT_CREDITED | ACCOUNT_DEBITED if self.balances => balances::apply::<S>(tx, &self.consumer, message),
            _ => Ok(()),
        }
    }
}
