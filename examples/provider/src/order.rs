//! What a request asks for, checked.

use axum::body::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kind::Kind;
use crate::webhook;

/// The card that is always declined.
const DECLINED_CARD: &str = "tok_declined";

/// 2^53: what every JSON client can hold exactly.
const MAX_AMOUNT: i64 = 1 << 53;

const MAX_TEXT_CHARACTERS: usize = 255;

/// A well-formed request.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) kind: Kind,
    /// All of the body, which is what a repeat is compared with and what the ledger shows.
    pub(crate) request: Value,
    pub(crate) wanted: Wanted,
}

/// What is wanted, as far as it decides the answer.
#[derive(Debug)]
pub(crate) enum Wanted {
    Charge { amount: i64, currency: String, declined: bool, webhook: Option<String> },
    Refund { charge: String },
    Mail,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewCharge {
    amount: i64,
    currency: String,
    card: String,
    reference: Option<String>,
    webhook: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewRefund {
    charge: String,
    reference: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewMail {
    to: String,
    subject: String,
    /// Read so that it must be there; the ledger takes it from the body.
    #[serde(rename = "text")]
    _text: String,
    reference: Option<String>,
}

impl Order {
    /// Reads a body; if it is refused, `Err` says why.
    pub(crate) fn read(kind: Kind, body: &Bytes) -> Result<Order, String> {
        let wanted = match kind {
            Kind::Charge => charge(parse(body)?)?,
            Kind::Refund => refund(parse(body)?)?,
            Kind::Mail => mail(&parse(body)?)?,
        };
        // A struct can be read from an array as well, and that is not what anybody means to send.
        let request: Value = parse(body)?;
        if !request.is_object() {
            return Err("the body must be an object".to_owned());
        }
        Ok(Order { kind, request, wanted })
    }
}

fn charge(new: NewCharge) -> Result<Wanted, String> {
    if !(1..=MAX_AMOUNT).contains(&new.amount) {
        return Err(format!("`amount` must be a whole number of minor units between 1 and {MAX_AMOUNT}"));
    }
    if new.currency.len() != 3 || !new.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err("`currency` must be three upper-case letters, such as EUR".to_owned());
    }
    if !new.card.starts_with("tok_") {
        return Err("`card` must be a token, which begins with tok_".to_owned());
    }
    text("card", &new.card)?;
    reference(new.reference.as_deref())?;
    if let Some(url) = &new.webhook {
        webhook::require_loopback(url)?;
    }
    let declined = new.card == DECLINED_CARD;
    Ok(Wanted::Charge { amount: new.amount, currency: new.currency, declined, webhook: new.webhook })
}

fn refund(new: NewRefund) -> Result<Wanted, String> {
    text("charge", &new.charge)?;
    reference(new.reference.as_deref())?;
    Ok(Wanted::Refund { charge: new.charge })
}

fn mail(new: &NewMail) -> Result<Wanted, String> {
    text("to", &new.to)?;
    text("subject", &new.subject)?;
    reference(new.reference.as_deref())?;
    if !new.to.contains('@') {
        return Err("`to` must be an address with an @".to_owned());
    }
    Ok(Wanted::Mail)
}

fn reference(value: Option<&str>) -> Result<(), String> {
    value.map_or(Ok(()), |value| text("reference", value))
}

fn text(name: &str, value: &str) -> Result<(), String> {
    if (1..=MAX_TEXT_CHARACTERS).contains(&value.chars().count()) {
        return Ok(());
    }
    Err(format!("`{name}` must have 1 to {MAX_TEXT_CHARACTERS} characters"))
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}
