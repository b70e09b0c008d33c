//! Accounts.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use semel_tower::Problem;
use serde::Deserialize;

use crate::code;
use crate::ledger::{Account, Ledger};
use crate::natural::transact;
use crate::problem::problem;
use crate::request::{self, Json, PathId};
use crate::tokens::Tenant;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAccount {
    currency: String,
}

/// `PUT /accounts/{id}`: opens an account under an id of the client's choice. The id is the natural key: 201 the first
/// time, 200 after that, 409 if it exists with another currency.
pub(crate) async fn open<S: Ledger>(
    State(ledger): State<S>,
    tenant: Tenant,
    PathId(id): PathId,
    Json(body): Json<NewAccount>,
) -> Result<(StatusCode, Answer<Account>), Problem> {
    let id = request::account_id(id)?;
    let currency = request::currency(body.currency)?;
    let (status, account) = transact(&ledger, async move |tx: &mut S::Tx| {
        let opened = S::insert_account(tx, &tenant, &id, &currency).await?;
        let account = locked::<S>(tx, &tenant, &id).await?;
        if account.currency != currency {
            let detail = format!("The account exists and its currency is {}.", account.currency);
            return Err(problem(&code::ACCOUNT_DIFFERS, detail));
        }
        Ok((if opened { StatusCode::CREATED } else { StatusCode::OK }, account))
    })
    .await?;
    Ok((status, Answer(account)))
}

/// `GET /accounts/{id}`: an account as last committed. Another tenant's account does not exist for this one.
pub(crate) async fn show<S: Ledger>(
    State(ledger): State<S>,
    tenant: Tenant,
    PathId(id): PathId,
) -> Result<Answer<Account>, Problem> {
    let id = request::account_id(id)?;
    let account = ledger.find_account(&tenant, &id).await?;
    account.map(Answer).ok_or_else(not_found)
}

/// Locks one account to the end of the transaction.
pub(crate) async fn locked<S: Ledger>(tx: &mut S::Tx, tenant: &str, id: &str) -> Result<Account, Problem> {
    let accounts = S::lock_accounts(tx, tenant, id, id).await?;
    accounts.into_iter().next().ok_or_else(not_found)
}

/// Refuses a credit that would take the balance past what a JSON client can read.
pub(crate) fn check_credit(account: &Account, amount: i64) -> Result<(), Problem> {
    if account.balance <= crate::ledger::MAX_AMOUNT - amount {
        return Ok(());
    }
    let detail = format!("The balance would pass {}, the most an account can hold.", crate::ledger::MAX_AMOUNT);
    Err(problem(&code::BALANCE_LIMIT, detail))
}

pub(crate) fn not_found() -> Problem {
    problem(&code::ACCOUNT_NOT_FOUND, "There is no such account; open it with PUT /accounts/{id}.")
}
