//! Orders: pieces of an article, paid by card.
//!
//! An order reserves stock, charges a card at somebody else's, and books the money. No commit can hold all three, so it
//! is a flow: its steps are recorded, a crash between any two of them is resumed, and a card is charged once for one
//! key (I8). The confirmation is a job that the last commit stages, so the answer does not wait for the mailer.

pub(crate) mod flow;
pub(crate) mod mail;

use axum::Json as Answer;
use axum::extract::State;
use semel::Flows;
use semel_tower::{FlowAnswer, FlowAsk, Problem};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::code;
use crate::event::Trace;
use crate::ledger::{Ledger, Order};
use crate::problem::problem;
use crate::request::{self, Json, PathId};
use crate::tokens::Tenant;
use flow::Input;

// Without Debug: what it holds of a customer belongs in no log.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOrder {
    account: String,
    sku: String,
    quantity: Box<RawValue>,
    amount: Box<RawValue>,
    currency: String,
    card: String,
    email: String,
    referrer: Option<String>,
}

impl NewOrder {
    /// Checks what was sent, before a flow begins.
    fn checked(self, trace: Trace) -> Result<Input, Problem> {
        let input = Input {
            account: request::account_id(self.account)?,
            sku: request::id(&code::SKU_INVALID, self.sku)?,
            quantity: request::quantity(&self.quantity, 1)?,
            amount: request::amount(&self.amount)?,
            currency: request::currency(self.currency)?,
            card: request::card(self.card)?,
            email: request::email(self.email)?,
            referrer: self.referrer.map(request::account_id).transpose()?,
            trace,
        };
        if input.referrer.as_ref() == Some(&input.account) {
            let detail = "`referrer` names the order's own account.";
            return Err(problem(&code::SAME_ACCOUNT, detail));
        }
        Ok(input)
    }
}

/// `POST /orders` with an idempotency key: runs the flow [`flow::ORDER`]. 201 once the card is charged and the money is
/// booked; the mail, and the referral if there is one, follow. What a crash interrupts goes on by itself, and the same
/// request with the same key gets the reply.
pub(crate) async fn create<S: Ledger>(
    State(flows): State<Option<Flows<S>>>,
    trace: Trace,
    ask: FlowAsk,
    Json(body): Json<NewOrder>,
) -> Result<FlowAnswer, Problem> {
    let Some(flows) = flows else {
        let detail = "The service was started without the address of a card processor; set provider.url.";
        return Err(problem(&code::PROVIDER_MISSING, detail));
    };
    let input = body.checked(trace)?;
    Ok(flows.run(flow::ORDER, &ask, &input).await.into())
}

/// `GET /orders/{id}`: an order as last committed. It is *pending* while its flow is under way, and *failed* once that
/// was undone.
pub(crate) async fn show<S: Ledger>(
    State(ledger): State<S>,
    tenant: Tenant,
    PathId(id): PathId,
) -> Result<Answer<Order>, Problem> {
    let id = request::id(&code::ORDER_NOT_FOUND, id)?;
    let order = ledger.find_order(&tenant, &id).await?;
    order.map(Answer).ok_or_else(|| problem(&code::ORDER_NOT_FOUND, "There is no such order."))
}
