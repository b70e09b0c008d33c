//! What other services make of this one's events: receipts, balances and referrals, each message once.
//!
//! A consumer's rows and the proof that it has seen a message are one commit (I6), so that a message that comes again,
//! from a broker, a relay or an operator, changes nothing.
//!
//! | consumer | takes | makes |
//! |---|---|---|
//! | `receipts` | `charge.created` | a receipt for each charge |
//! | `balances` | `account.credited`, `account.debited` | the balance of each account, added up from its changes |
//! | `referrals` | `order.completed` | a transfer to the referrer, once for each order |
//! | `payments` | all of these | all of it |
//!
//! Other messages do not concern them and count as seen.
//!
//! Receipts and balances are rows of their consumer's own, so history that is run again in a new generation makes them
//! once more, beside the old. A referral moves money in the books, so it has a natural key as well: whatever consumer
//! or generation comes second finds it made and moves nothing.

mod balances;
mod receipts;
mod referrals;

use semel::inbox::Version;
use semel::runner::Failure;
use semel::{Consumer, Handler, Message};

use crate::event::{ACCOUNT_CREDITED, ACCOUNT_DEBITED, CHARGE_CREATED, ORDER_COMPLETED};
use crate::ledger::Ledger;

/// The consumer that makes receipts, balances and referrals.
pub const PAYMENTS: &str = "payments";

/// The consumer that makes receipts.
pub const RECEIPTS: &str = "receipts";

/// The consumer that makes balances.
pub const BALANCES: &str = "balances";

/// The consumer that makes referrals.
pub const REFERRALS: &str = "referrals";

/// All of them.
pub const NAMES: [&str; 4] = [PAYMENTS, RECEIPTS, BALANCES, REFERRALS];

/// One of the consumers, in one of its generations: what an earlier generation has made stays beside.
#[derive(Debug, Clone)]
pub struct PaymentsConsumer {
    consumer: Consumer,
    receipts: bool,
    balances: bool,
    referrals: bool,
}

impl PaymentsConsumer {
    /// The consumer of this name; `None` if it is none of [`NAMES`].
    pub fn named(name: &str, generation: u32) -> Option<PaymentsConsumer> {
        if !NAMES.contains(&name) {
            return None;
        }
        let consumer = Consumer::new(name).ok()?.in_generation(generation);
        let makes = |what| name == PAYMENTS || name == what;
        let (receipts, balances, referrals) = (makes(RECEIPTS), makes(BALANCES), makes(REFERRALS));
        Some(PaymentsConsumer { consumer, receipts, balances, referrals })
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
            ORDER_COMPLETED if self.referrals => referrals::apply::<S>(tx, message).await,
            _ => Ok(()),
        }
    }
}
