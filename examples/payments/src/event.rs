//! What the service tells the world: events, emitted in the transaction that moves the money.
//!
//! An event is published if and only if its movement committed (I4): a refused request emits nothing, and a retried one
//! emits nothing again. Payloads are JSON objects; amounts and balances are in minor units.
//!
//! - `charge.created` to the topic `charges`: a charge was captured, by `POST` or `PUT`, or by an order. Ordered by the
//!   credited account.
//!
//!   ```json
//!   {"tenant":"a","id":"ch_1","account":"cash","amount":100,"currency":"EUR","status":"captured"}
//!   ```
//! - `transfer.created` to the topic `transfers`: money moved between two accounts, by `POST` or as a referral. Ordered
//!   by the debited account.
//!
//!   ```json
//!   {"tenant":"a","id":"tr_1","from":"cash","to":"savings","amount":60,"currency":"EUR"}
//!   ```
//! - `account.credited` and `account.debited` to the topic `accounts`: an account's balance changed by `amount`, and
//!   `balance` is what it held then. `version` counts the changes of this account, from one and without gaps. `kind` is
//!   `charge`, `transfer` or `bank`, and `reference` the id of the charge, the transfer or the bank's transaction.
//!   Ordered by the account.
//!
//!   ```json
//!   {"tenant":"a","account":"savings","amount":60,"currency":"EUR","balance":60,"version":1,"kind":"transfer",
//!    "reference":"tr_1"}
//!   ```
//! - `order.completed` to the topic `orders`: an order was paid. `charge` is the card processor's id of the payment,
//!   and `referrer` the account that gets a referral for it, or null. Ordered by the order's id.
//!
//!   ```json
//!   {"tenant":"a","id":"or_1","account":"shop","sku":"tea","quantity":2,"amount":1200,"currency":"EUR",
//!    "referrer":"alice","status":"completed","charge":"ch_9"}
//!   ```
//!
//! An account's ordering key is `tenant/account`: accounts of two tenants may have the same id, and one tenant's events
//! must not hold up another's (I11). The account is locked when an event is made, so the events of one account carry
//! its balances in the order in which they came about (I5).
//!
//! Where the request carries a W3C `traceparent`, its events carry it on.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use semel::event::{Invalid, MAX_NAME_BYTES};
use semel::{Event, flow};
use semel_tower::Problem;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ledger::{Account, Charge, Movement, Order, Transfer};
use crate::problem::problem;

/// The longest `tracestate` that is passed on: what the recommendation asks everybody to pass on at least.
const MAX_TRACESTATE_BYTES: usize = 512;

/// The type of the event of a charge.
pub const CHARGE_CREATED: &str = "charge.created";

/// The type of the event of a transfer.
pub const TRANSFER_CREATED: &str = "transfer.created";

/// The type of the event of an account that got money.
pub const ACCOUNT_CREDITED: &str = "account.credited";

/// The type of the event of an account that gave money.
pub const ACCOUNT_DEBITED: &str = "account.debited";

/// The type of the event of an order that was paid.
pub const ORDER_COMPLETED: &str = "order.completed";

/// Why an event cannot be written: a mistake in the service. What it would have told of is rolled back.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Unwritable(#[from] Invalid);

impl From<Unwritable> for Problem {
    fn from(Unwritable(invalid): Unwritable) -> Problem {
        tracing::error!(%invalid, "an event cannot be written; its movement is rolled back");
        problem(&semel_tower::code::INTERNAL_ERROR, "The service failed; everything was rolled back.")
    }
}

impl From<Unwritable> for flow::Error {
    fn from(Unwritable(invalid): Unwritable) -> flow::Error {
        invalid.into()
    }
}

/// A payload that says whose it is.
#[derive(Serialize)]
struct Of<'a, T> {
    tenant: &'a str,
    #[serde(flatten)]
    what: T,
}

#[derive(Serialize)]
struct Changed<'a> {
    account: &'a str,
    amount: i64,
    currency: &'a str,
    balance: i64,
    version: i64,
    kind: &'static str,
    reference: &'a str,
}

/// `charge.created`.
pub(crate) fn charge_created(trace: &Trace, tenant: &str, charge: &Charge) -> Result<Event, Unwritable> {
    let payload = Of { tenant, what: charge };
    written(trace, Event::new("charges", ordering_key(tenant, &charge.account), CHARGE_CREATED, &payload))
}

/// `transfer.created`.
pub(crate) fn transfer_created(trace: &Trace, tenant: &str, transfer: &Transfer) -> Result<Event, Unwritable> {
    let payload = Of { tenant, what: transfer };
    written(trace, Event::new("transfers", ordering_key(tenant, &transfer.from), TRANSFER_CREATED, &payload))
}

/// `order.completed`.
pub(crate) fn order_completed(trace: &Trace, tenant: &str, order: &Order) -> Result<Event, Unwritable> {
    let payload = Of { tenant, what: order };
    written(trace, Event::new("orders", order.id.as_str(), ORDER_COMPLETED, &payload))
}

/// `account.credited`. `account` is the one that `movement` credits, as it was locked before.
pub(crate) fn account_credited(
    trace: &Trace,
    tenant: &str,
    account: &Account,
    movement: &Movement<'_>,
) -> Result<Event, Unwritable> {
    account_changed(trace, tenant, account, movement, ACCOUNT_CREDITED, movement.amount)
}

/// `account.debited`. `account` is the one that `movement` debits, as it was locked before.
pub(crate) fn account_debited(
    trace: &Trace,
    tenant: &str,
    account: &Account,
    movement: &Movement<'_>,
) -> Result<Event, Unwritable> {
    account_changed(trace, tenant, account, movement, ACCOUNT_DEBITED, -movement.amount)
}

fn account_changed(
    trace: &Trace,
    tenant: &str,
    account: &Account,
    movement: &Movement<'_>,
    event_type: &str,
    change: i64,
) -> Result<Event, Unwritable> {
    let what = Changed {
        account: &account.id,
        amount: movement.amount,
        currency: &account.currency,
        balance: account.balance + change,
        version: account.version + 1,
        kind: movement.kind,
        reference: movement.reference,
    };
    let payload = Of { tenant, what };
    written(trace, Event::new("accounts", ordering_key(tenant, &account.id), event_type, &payload))
}

/// The ordering key of an account. A tenant whose name leaves no room for the account's gets a digest of both.
pub(crate) fn ordering_key(tenant: &str, account: &str) -> String {
    let key = format!("{tenant}/{account}");
    if key.len() <= MAX_NAME_BYTES {
        return key;
    }
    Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn written(trace: &Trace, event: Result<Event, Invalid>) -> Result<Event, Unwritable> {
    Ok(trace.follow(event?))
}

/// The trace that a request belongs to, by its W3C headers, if it has one. What is malformed is taken as absent, as the
/// recommendation wants it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trace {
    parent: Option<String>,
    state: Option<String>,
}

impl Trace {
    fn of(headers: &HeaderMap) -> Trace {
        let mut parents = headers.get_all("traceparent").into_iter();
        let parent = match (parents.next(), parents.next()) {
            (Some(value), None) => value.to_str().ok().filter(|value| is_traceparent(value)),
            _ => None,
        };
        let Some(parent) = parent else { return Trace::default() };
        let states: Result<Vec<&str>, _> = headers.get_all("tracestate").into_iter().map(|v| v.to_str()).collect();
        let state = states.ok().map(|states| states.join(","));
        let state = state.filter(|state| (1..=MAX_TRACESTATE_BYTES).contains(&state.len()) && !state.contains('\t'));
        Trace { parent: Some(parent.to_owned()), state }
    }

    fn follow(&self, event: Event) -> Event {
        match &self.parent {
            Some(parent) => event.traced(parent, self.state.clone()),
            None => event,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Trace {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Trace, Infallible> {
        Ok(Trace::of(&parts.headers))
    }
}

/// Whether this is a `traceparent` of the recommendation's version 00.
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let hexadecimal = |part: &str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let [version, trace, parent, flags] = parts.as_slice() else { return false };
    *version == "00"
        && (trace.len(), parent.len(), flags.len()) == (32, 16, 2)
        && parts.iter().all(|part| hexadecimal(part))
        && [trace, parent].iter().all(|id| id.bytes().any(|b| b != b'0'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn trace(lines: &[(&'static str, &str)]) -> Trace {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        Trace::of(&headers)
    }

    #[test]
    fn a_trace_is_taken_over_whole() {
        let whole = trace(&[("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]);
        assert_eq!(whole, Trace { parent: Some(PARENT.to_owned()), state: Some("a=1,b=2".to_owned()) });
        assert_eq!(trace(&[("traceparent", PARENT)]), Trace { parent: Some(PARENT.to_owned()), state: None });
    }

    #[test]
    fn what_is_malformed_is_absent() {
        for malformed in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        ] {
            assert_eq!(trace(&[("traceparent", malformed), ("tracestate", "a=1")]), Trace::default(), "{malformed}");
        }
        assert_eq!(trace(&[("traceparent", PARENT), ("traceparent", PARENT)]), Trace::default());
        let long = "x".repeat(MAX_TRACESTATE_BYTES + 1);
        assert_eq!(trace(&[("traceparent", PARENT), ("tracestate", &long)]).state, None);
    }

    #[test]
    fn every_account_has_an_ordering_key_of_its_own() {
        assert_eq!(ordering_key("a", "cash"), "a/cash");
        let tenant = "t".repeat(255);
        let (one, other) = (ordering_key(&tenant, "cash"), ordering_key(&tenant, "other"));
        assert_ne!(one, other);
        assert_eq!(one.len(), 64);
    }
}
