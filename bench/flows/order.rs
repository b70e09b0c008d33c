//! What every flow does: an order, by its number. The peers have the same.

use anyhow::{Result, bail};
use semel::flow;
use semel::{Ask, Fingerprint, Key, Outcome, Reply, Scope, once};
use serde::{Deserialize, Serialize};

/// The name that the flow is registered under.
pub(crate) const FLOW: &str = "order";

/// The input of a flow.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) number: i64,
    pub(crate) amount: i64,
}

#[derive(Debug, Serialize)]
struct Receipt {
    id: String,
    status: &'static str,
    order: Order,
}

impl Order {
    /// The order with this number.
    pub(crate) fn numbered(number: u64) -> Order {
        Order { number: number.cast_signed(), amount: 42 }
    }

    /// A client's question, under a key that is new.
    pub(crate) fn ask(self, scope: &Scope) -> Ask {
        let body = format!(r#"{{"number":{},"amount":{}}}"#, self.number, self.amount);
        Ask::new(scope, &Key::random(), &Fingerprint::of_bytes(body.as_bytes()))
    }

    /// What its flow answers.
    pub(crate) fn reply(self) -> flow::Result<Reply> {
        let receipt = Receipt { id: format!("or_{:016}", self.number), status: "completed", order: self };
        Ok(Reply::json(201, &receipt)?)
    }
}

/// Fails unless the flow ran now and was completed.
pub(crate) fn completed(ended: Result<Outcome, once::Error<flow::Error>>) -> Result<()> {
    match ended {
        Ok(Outcome::Fresh(reply)) if reply.status() == 201 => Ok(()),
        other => bail!("a flow under a key that nobody had used ended otherwise: {other:?}"),
    }
}
