//! Charges: money from a card to an account.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use semel::Tx as _;
use semel_tower::{Problem, Tx};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::account;
use crate::code;
use crate::event::{self, Trace};
use crate::ledger::{Charge, Ledger, Movement, Party};
use crate::natural::transact;
use crate::problem::problem;
use crate::request::{self, Json, PathId};
use crate::tokens::Tenant;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewCharge {
    account: String,
    amount: Box<RawValue>,
    currency: String,
}

impl NewCharge {
    /// Checks what was sent, before any statement runs.
    fn under(self, id: String) -> Result<Charge, Problem> {
        Ok(Charge {
            id,
            account: request::account_id(self.account)?,
            amount: request::amount(&self.amount)?,
            currency: request::currency(self.currency)?,
            status: "captured",
        })
    }
}

/// `POST /charges` with an idempotency key: the charge, its entries, its events and this answer commit together or not
/// at all (I1).
///
/// The id follows from the execution, so nothing here differs between two runs but what the database decides.
pub(crate) async fn create<S: Ledger>(
    tenant: Tenant,
    trace: Trace,
    mut tx: Tx<S>,
    Json(body): Json<NewCharge>,
) -> Result<(StatusCode, Answer<Charge>), Problem> {
    let charge = body.under(format!("ch_{}", tx.execution().as_uuid().simple()))?;
    if !S::insert_charge(&mut tx, &tenant, &charge).await? {
        tracing::error!(charge = charge.id, "an execution's charge id was taken");
        return Err(problem(&semel_tower::code::INTERNAL_ERROR, "The charge's id was taken."));
    }
    capture::<S>(&mut tx, &trace, &tenant, &charge).await?;
    Ok((StatusCode::CREATED, Answer(charge)))
}

/// `PUT /charges/{id}` without an idempotency key: the client's id is the natural key. 201 the first time, 200 with the
/// same representation after that, 409 if it exists with another body.
pub(crate) async fn put<S: Ledger>(
    State(ledger): State<S>,
    tenant: Tenant,
    trace: Trace,
    PathId(id): PathId,
    Json(body): Json<NewCharge>,
) -> Result<(StatusCode, Answer<Charge>), Problem> {
    let wanted = body.under(request::id(&code::CHARGE_INVALID, id)?)?;
    let (status, charge) = transact(&ledger, async move |tx: &mut S::Tx| {
        // The primary key decides, not a question asked before: of two at once, the later waits here for the first.
        if S::insert_charge(tx, &tenant, &wanted).await? {
            capture::<S>(tx, &trace, &tenant, &wanted).await?;
            return Ok((StatusCode::CREATED, wanted.clone()));
        }
        match S::charge(tx, &tenant, &wanted.id).await? {
            Some(existing) if existing == wanted => Ok((StatusCode::OK, existing)),
            _ => {
                let detail = "A charge with this id exists and its account, amount or currency is another.";
                Err(problem(&code::CHARGE_DIFFERS, detail))
            }
        }
    })
    .await?;
    Ok((status, Answer(charge)))
}

/// Credits the account from the outside, and says so. The caller has recorded the charge in the same transaction.
async fn capture<S: Ledger>(tx: &mut S::Tx, trace: &Trace, tenant: &str, charge: &Charge) -> Result<(), Problem> {
    let account = account::locked::<S>(tx, tenant, &charge.account).await?;
    if account.currency != charge.currency {
        let detail = format!("The account's currency is {} and the charge's is {}.", account.currency, charge.currency);
        return Err(problem(&code::CURRENCY_MISMATCH, detail));
    }
    account::check_credit(&account, charge.amount)?;
    let movement = Movement {
        kind: "charge",
        reference: &charge.id,
        from: Party::Card,
        to: Party::Account(&charge.account),
        amount: charge.amount,
        currency: &charge.currency,
    };
    S::post(tx, tenant, &movement);
    tx.emit(event::charge_created(trace, tenant, charge)?);
    tx.emit(event::account_credited(trace, tenant, &account, &movement)?);
    Ok(())
}
