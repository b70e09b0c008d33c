//! The flow of an order: reserve, charge, book.

use semel::flow::{self, Error};
use semel::provider::Call;
use semel::{Flow, Reply, Tx as _};
use semel_tower::Problem;
use serde::{Deserialize, Serialize};

use super::mail;
use crate::account::{check_credit, not_found};
use crate::code;
use crate::event::{self, Trace};
use crate::ledger::{Account, Charge, Ledger, Movement, Order, Party};
use crate::outside::{Client, Executed, NewCharge};
use crate::problem::problem;

/// The flow's name.
pub(crate) const ORDER: &str = "order";

/// The step that takes pieces out of the stock.
pub(crate) const RESERVE: &str = "reserve";

/// The step that charges the card.
pub(crate) const CHARGE: &str = "charge";

/// What the client is told, as a `flow-failed`, if the card processor did not answer to the charge.
const UNASKED: &str =
    "The card processor could not be asked; nothing was charged, and the pieces are back in the stock.";

/// What an order begins with. It is stored as JSON with the flow, sealed where replies are.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Input {
    pub(crate) account: String,
    pub(crate) sku: String,
    pub(crate) quantity: i64,
    pub(crate) amount: i64,
    pub(crate) currency: String,
    pub(crate) card: String,
    pub(crate) email: String,
    pub(crate) referrer: Option<String>,
    #[serde(default)]
    pub(crate) trace: Trace,
}

/// What an order answers.
#[derive(Serialize)]
struct Placed<'a> {
    id: &'a str,
    status: &'a str,
    charge: &'a str,
}

/// Reserves the pieces, charges the card, and books the money.
///
/// | step | after its commit | undone by |
/// |---|---|---|
/// | `reserve` | the pieces are taken and the order is *pending* | pieces given back, order *failed* |
/// | `charge` | the processor's id of the charge is recorded | a refund |
/// | finish | money booked, order *completed*, event and mail on their way, reply stored | |
///
/// A crash before a commit leaves the step undone and unrecorded, one after it leaves it done and recorded (I1). One
/// around the charge is settled by the key that its intent has: the processor knows it (I8).
pub(crate) async fn order<S: Ledger>(flow: Flow<S>, input: Input, client: Client) -> flow::Result<Reply> {
    let tenant = flow.scope().tenant().to_owned();
    let order = Order {
        id: format!("or_{}", flow.execution().as_uuid().simple()),
        account: input.account,
        sku: input.sku,
        quantity: input.quantity,
        amount: input.amount,
        currency: input.currency,
        referrer: input.referrer,
        status: "pending".to_owned(),
        charge: None,
    };

    let reserved = (tenant.clone(), order.clone());
    let reserving = async move |tx: &mut S::Tx| reserve::<S>(tx, &reserved.0, &reserved.1).await;
    flow.commit(RESERVE, reserving).await?;
    let taken = (tenant.clone(), order.clone());
    flow.compensate(RESERVE, move |tx| {
        let (tenant, order) = taken.clone();
        Box::pin(async move {
            S::return_stock(tx, &tenant, &order.sku, order.quantity);
            S::fail_order(tx, &tenant, &order.id);
            Ok(())
        })
    })?;

    let wanted = NewCharge {
        amount: order.amount,
        currency: order.currency.clone(),
        card: input.card,
        reference: flow.key().as_str().to_owned(),
    };
    let processor = client.clone();
    let charging = move |call: Call| {
        let (processor, wanted) = (processor.clone(), wanted.clone());
        async move { processor.charge(&wanted, &call).await }
    };
    let processor = client.clone();
    let refunding = move |call: Call, paid: Executed| {
        let processor = processor.clone();
        async move { processor.refund(&paid.id, &call).await }
    };
    let paid = flow.call(CHARGE, client.processor(), charging).compensate(refunding).await.map_err(unpaid)?;

    let completed = Order { status: "completed".to_owned(), charge: Some(paid.id), ..order };
    let money = format!("ch_{}", flow.execution().as_uuid().simple());
    let (email, trace) = (input.email, input.trace);
    let booking = async move |tx: &mut S::Tx| {
        book::<S>(tx, &tenant, &completed, &money, &trace).await?;
        tx.stage(mail::job(&tenant, &completed, &email)?);
        placed(&completed)
    };
    flow.finish(booking).await
}

/// Takes the pieces, if the money could be booked and there are enough of them.
async fn reserve<S: Ledger>(tx: &mut S::Tx, tenant: &str, order: &Order) -> flow::Result<()> {
    payable::<S>(tx, tenant, order).await?;
    if !S::take_stock(tx, tenant, &order.sku, order.quantity).await? {
        let detail = format!("There are fewer than {} pieces of {}.", order.quantity, order.sku);
        return Err(refused(&problem(&code::OUT_OF_STOCK, detail)));
    }
    S::insert_order(tx, tenant, order);
    Ok(())
}

/// The account that gets the money, locked to the end of the transaction.
async fn payable<S: Ledger>(tx: &mut S::Tx, tenant: &str, order: &Order) -> flow::Result<Account> {
    let accounts = S::lock_accounts(tx, tenant, &order.account, &order.account).await?;
    let account = accounts.into_iter().next().ok_or_else(|| refused(&not_found()))?;
    if account.currency != order.currency {
        let detail = format!("The account's currency is {} and the order's is {}.", account.currency, order.currency);
        return Err(refused(&problem(&code::CURRENCY_MISMATCH, detail)));
    }
    check_credit(&account, order.amount).map_err(|problem| refused(&problem))?;
    Ok(account)
}

/// Books what the card paid as the charge `money`, and tells of it.
async fn book<S: Ledger>(tx: &mut S::Tx, tenant: &str, order: &Order, money: &str, trace: &Trace) -> flow::Result<()> {
    let account = payable::<S>(tx, tenant, order).await?;
    let charge = Charge {
        id: money.to_owned(),
        account: order.account.clone(),
        amount: order.amount,
        currency: order.currency.clone(),
        status: "captured",
    };
    if !S::insert_charge(tx, tenant, &charge).await? {
        return Err(Error::retry(format!("the id of the charge {money} is taken")));
    }
    S::complete_order(tx, tenant, &order.id, order.charge.as_deref().unwrap_or_default());
    let movement = Movement {
        kind: "charge",
        reference: money,
        from: Party::Card,
        to: Party::Account(&order.account),
        amount: order.amount,
        currency: &order.currency,
    };
    S::post(tx, tenant, &movement);
    tx.emit(event::charge_created(trace, tenant, &charge)?);
    tx.emit(event::account_credited(trace, tenant, &account, &movement)?);
    tx.emit(event::order_completed(trace, tenant, order)?);
    Ok(())
}

fn placed(order: &Order) -> flow::Result<Reply> {
    let charge = order.charge.as_deref().unwrap_or_default();
    Ok(Reply::json(201, &Placed { id: &order.id, status: &order.status, charge })?)
}

/// A failure for good that answers with this problem, once the order is undone.
fn refused(problem: &Problem) -> Error {
    match problem.reply() {
        Ok(reply) => Error::fail(problem.code(), problem.detail()).replying(reply),
        Err(invalid) => invalid.into(),
    }
}

/// What the client is told of a charge that will not happen. Only an answer to the charge itself has declined a card; a
/// processor that was not reached, or did not understand, has not. Why not is for the operator, who finds it with the
/// step. A flow that is undone for another reason, or that a person has settled, keeps what it says.
fn unpaid(error: Error) -> Error {
    let Error::Failed(mut failure) = error else { return error };
    if failure.step.as_deref() != Some(CHARGE) {
        return Error::Failed(failure);
    }
    match failure.code.as_str() {
        "terminal" | "found-failed" => {
            let detail = "The card processor declined the charge; the pieces are back in the stock.";
            match problem(&code::CARD_DECLINED, detail).reply() {
                Ok(reply) => Error::Failed(failure.replying(reply)),
                Err(invalid) => invalid.into(),
            }
        }
        "refused" | "gave-up" => {
            failure.reason = UNASKED.to_owned();
            Error::Failed(failure)
        }
        _ => Error::Failed(failure),
    }
}
