//! Webhooks of the bank: money from outside to an account.

use axum::Json as Answer;
use axum::extract::State;
use semel::Tx as _;
use semel_tower::Problem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::account;
use crate::code;
use crate::event::{self, Trace};
use crate::ledger::{BankTransaction, Ledger, Movement, Party};
use crate::natural::transact;
use crate::problem::problem;
use crate::request::{self, Json};
use crate::tokens::Tenant;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Notice {
    transaction_id: String,
    account: String,
    amount: Box<RawValue>,
}

/// `POST /webhooks/bank`: the bank delivers at least once, and its own id in a UNIQUE column makes it count once. Every
/// delivery gets the same 200. The same id with other contents is a fault of the bank: 409, and a line in the log.
pub(crate) async fn bank<S: Ledger>(
    State(ledger): State<S>,
    tenant: Tenant,
    trace: Trace,
    Json(body): Json<Notice>,
) -> Result<Answer<BankTransaction>, Problem> {
    let received = BankTransaction {
        transaction_id: request::transaction_id(body.transaction_id)?,
        account: request::account_id(body.account)?,
        amount: request::amount(&body.amount)?,
    };
    let recorded = transact(&ledger, async move |tx: &mut S::Tx| {
        if S::insert_bank_transaction(tx, &tenant, &received).await? {
            credit::<S>(tx, &trace, &tenant, &received).await?;
            return Ok(received.clone());
        }
        match S::bank_transaction(tx, &tenant, &received.transaction_id).await? {
            Some(existing) if existing == received => Ok(existing),
            existing => {
                tracing::warn!(
                    tenant = &*tenant,
                    transaction_id = received.transaction_id,
                    recorded = ?existing,
                    ?received,
                    "the bank sent a known transaction id with other contents; nothing was credited"
                );
                let detail = "This transaction id was received before with another account or amount.";
                Err(problem(&code::WEBHOOK_DIFFERS, detail))
            }
        }
    })
    .await?;
    Ok(Answer(recorded))
}

async fn credit<S: Ledger>(
    tx: &mut S::Tx,
    trace: &Trace,
    tenant: &str,
    received: &BankTransaction,
) -> Result<(), Problem> {
    let account = account::locked::<S>(tx, tenant, &received.account).await?;
    account::check_credit(&account, received.amount)?;
    let movement = Movement {
        kind: "bank",
        reference: &received.transaction_id,
        from: Party::Bank,
        to: Party::Account(&received.account),
        amount: received.amount,
        currency: &account.currency,
    };
    S::post(tx, tenant, &movement);
    tx.emit(event::account_credited(trace, tenant, &account, &movement)?);
    Ok(())
}
