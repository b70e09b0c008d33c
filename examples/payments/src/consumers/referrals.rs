//! A referral for each order that names a referrer: a twentieth of what was paid, from the account that was paid to the
//! referrer's.

use semel::runner::Failure;
use semel::{Message, Tx as _};
use serde::Deserialize;

use crate::account::check_credit;
use crate::event::{self, Trace};
use crate::ledger::{Ledger, Movement, Party, Transfer};

/// What an order's event says of it, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Completed {
    tenant: String,
    id: String,
    account: String,
    amount: i64,
    currency: String,
    referrer: Option<String>,
}

/// Makes the transfer. It is made if and only if the message counts as seen (I6), and by its id only once for an order,
/// whoever applies the message and in whatever generation.
///
/// A referrer without an account, and an account that has been emptied, may be mended, so the message is tried again
/// and then set aside as a dead letter. The order stands either way.
pub(super) async fn apply<S: Ledger>(tx: &mut S::Tx, message: &Message) -> Result<(), Failure> {
    // What is no order now will be none the next time.
    let completed: Completed = serde_json::from_slice(&message.payload).map_err(Failure::hopeless)?;
    let Completed { tenant, id, account, amount, currency, referrer } = completed;
    let Some(referrer) = referrer else { return Ok(()) };
    if amount < 1 || referrer == account {
        return Err(Failure::hopeless(format!("an order over {amount} that {referrer} refers to {account} is none")));
    }
    let transfer = Transfer { id: format!("rf_{id}"), from: account, to: referrer, amount: share(amount), currency };
    if !S::claim_transfer(tx, &tenant, &transfer).await? {
        return Ok(());
    }
    let accounts = S::lock_accounts(tx, &tenant, &transfer.from, &transfer.to).await?;
    let find = |id: &str| accounts.iter().find(|account| account.id == id).ok_or_else(|| unknown(id));
    let (debited, credited) = (find(&transfer.from)?, find(&transfer.to)?);
    if debited.currency != transfer.currency || credited.currency != transfer.currency {
        let currencies = format!("{} and {}", debited.currency, credited.currency);
        return Err(Failure::hopeless(format!("the accounts are in {currencies}, not in {}", transfer.currency)));
    }
    if debited.balance < transfer.amount {
        return Err(Failure::from(format!("the balance of {} does not cover the referral", transfer.from)));
    }
    check_credit(credited, transfer.amount)?;
    let movement = Movement {
        kind: "transfer",
        reference: &transfer.id,
        from: Party::Account(&transfer.from),
        to: Party::Account(&transfer.to),
        amount: transfer.amount,
        currency: &transfer.currency,
    };
    // Not deferred: the next message of a batch may be about the same accounts, and has to find their new versions.
    S::post_now(tx, &tenant, &movement).await?;
    let trace = Trace::default();
    tx.emit(event::transfer_created(&trace, &tenant, &transfer)?);
    tx.emit(event::account_debited(&trace, &tenant, debited, &movement)?);
    tx.emit(event::account_credited(&trace, &tenant, credited, &movement)?);
    Ok(())
}

/// What the referrer gets: a twentieth, and at least one minor unit.
fn share(amount: i64) -> i64 {
    (amount / 20).max(1)
}

fn unknown(account: &str) -> Failure {
    Failure::from(format!("there is no account {account}"))
}
