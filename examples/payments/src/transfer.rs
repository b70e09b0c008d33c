//! Transfers: money between two accounts of a tenant.

use axum::Json as Answer;
use axum::http::StatusCode;
use semel::Tx as _;
use semel_tower::{Problem, Tx};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::account;
use crate::code;
use crate::event::{self, Trace};
use crate::ledger::{Ledger, Movement, Party, Transfer};
use crate::problem::problem;
use crate::request::{self, Json};
use crate::tokens::Tenant;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTransfer {
    from: String,
    to: String,
    amount: Box<RawValue>,
}

/// `POST /transfers` with an idempotency key. A refusal for want of funds is an answer like any other: it is stored, so
/// a retry after funds arrived gets it again, and a new intent takes a new key.
pub(crate) async fn create<S: Ledger>(
    tenant: Tenant,
    trace: Trace,
    mut tx: Tx<S>,
    Json(body): Json<NewTransfer>,
) -> Result<(StatusCode, Answer<Transfer>), Problem> {
    let (from, to) = (request::account_id(body.from)?, request::account_id(body.to)?);
    let amount = request::amount(&body.amount)?;
    if from == to {
        let detail = "`from` and `to` name the same account.";
        return Err(problem(&code::SAME_ACCOUNT, detail));
    }

    let accounts = S::lock_accounts(&mut tx, &tenant, &from, &to).await?;
    let find = |id: &str| accounts.iter().find(|account| account.id == id).ok_or_else(account::not_found);
    let (debited, credited) = (find(&from)?, find(&to)?);
    if debited.currency != credited.currency {
        let detail = format!("One account's currency is {} and the other's {}.", debited.currency, credited.currency);
        return Err(problem(&code::CURRENCY_MISMATCH, detail));
    }
    if debited.balance < amount {
        let detail = format!("The balance is {} and the transfer asks for {amount}.", debited.balance);
        return Err(problem(&code::INSUFFICIENT_FUNDS, detail));
    }
    account::check_credit(credited, amount)?;

    let id = format!("tr_{}", tx.execution().as_uuid().simple());
    let transfer = Transfer { id, from, to, amount, currency: debited.currency.clone() };
    S::insert_transfer(&mut tx, &tenant, &transfer);
    let movement = Movement {
        kind: "transfer",
        reference: &transfer.id,
        from: Party::Account(&transfer.from),
        to: Party::Account(&transfer.to),
        amount,
        currency: &transfer.currency,
    };
    S::post(&mut tx, &tenant, &movement);
    tx.emit(event::transfer_created(&trace, &tenant, &transfer)?);
    tx.emit(event::account_debited(&trace, &tenant, debited, &movement)?);
    tx.emit(event::account_credited(&trace, &tenant, credited, &movement)?);
    Ok((StatusCode::CREATED, Answer(transfer)))
}
