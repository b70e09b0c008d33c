//! Executing an order once for its key, or once more.

use axum::http::StatusCode;
use rusqlite::{OptionalExtension, Transaction};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::fault::Fault;
use crate::order::{Order, Wanted};
use crate::webhook::Event;
use crate::{Error, Keys};

/// An order and what decides whether it is executed.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) order: Order,
    pub(crate) key: Option<String>,
    pub(crate) keys: Keys,
    pub(crate) fault: Option<Fault>,
    pub(crate) received_at_ms: i64,
}

/// What came of an attempt.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The ledger has one more row, which commits together with the answer under the key and the webhook to send.
    Executed { answer: Answer, event: Option<Event> },
    /// The key is known and nothing was executed.
    Replayed(Answer),
    /// The key is known from another request. Nothing was executed.
    KeyReused,
    /// There is no charge to refund. Nothing was executed, and the key stays new.
    ChargeUnknown,
}

/// What is kept under a key.
struct Kept {
    kind: String,
    request: String,
    answer: Answer,
    received_at_ms: i64,
}

impl Attempt {
    /// Executes the order, unless the key says that this has been done. Everything it writes commits with `tx`, or
    /// nothing does.
    pub(crate) fn run(&self, tx: &Transaction<'_>, now_ms: i64) -> Result<Outcome, Error> {
        let key = self.key.as_deref().filter(|_| self.keys != Keys::Off);
        if let Some(key) = key
            && let Some(known) = self.recognise(tx, key)?
        {
            return Ok(known);
        }
        let kind = self.order.kind;
        let id = kind.new_id();
        let Some((outcome, answer)) = self.decide(tx, &id)? else { return Ok(Outcome::ChargeUnknown) };
        let request = self.order.request.to_string();
        // The row has the key that came along, also where keys are ignored.
        let row = (&id, kind.as_str(), self.key.as_deref(), &request, outcome, &answer.body, now_ms);
        tx.prepare_cached(include_str!("../sql/execution_insert.sql"))?.execute(row)?;
        if let Some(key) = key {
            let sticky = matches!(self.fault, Some(Fault::ErrorAfter { sticky: true }));
            let kept = if sticky { Answer::failure() } else { answer.clone() };
            let row =
                (kind.desk(), key, kind.as_str(), &request, kept.status.as_u16(), &kept.body, self.received_at_ms);
            tx.prepare_cached(include_str!("../sql/key_keep.sql"))?.execute(row)?;
        }
        let event = self.event(&answer)?;
        if let Some(event) = &event {
            event.insert(tx)?;
        }
        Ok(Outcome::Executed { answer, event })
    }

    /// What the key says, if it is known and its window is not over.
    fn recognise(&self, tx: &Transaction<'_>, key: &str) -> Result<Option<Outcome>, Error> {
        let mut find = tx.prepare_cached(include_str!("../sql/key_find.sql"))?;
        let kept = find.query_row((self.order.kind.desk(), key), |row| {
            let status = StatusCode::from_u16(row.get("status")?).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Ok(Kept {
                kind: row.get("kind")?,
                request: row.get("request")?,
                answer: Answer { status, body: row.get("body")?, replayed: true },
                received_at_ms: row.get("received_at_ms")?,
            })
        });
        // A repeat is judged by when it arrived, however long it took to get here.
        let age_ms = |kept: &Kept| self.received_at_ms.saturating_sub(kept.received_at_ms);
        let Some(kept) = kept.optional()?.filter(|kept| self.keys.recognise(age_ms(kept))) else { return Ok(None) };
        let same_kind = kept.kind == self.order.kind.as_str();
        if same_kind && serde_json::from_str::<Value>(&kept.request)? == self.order.request {
            return Ok(Some(Outcome::Replayed(kept.answer)));
        }
        Ok(Some(Outcome::KeyReused))
    }

    /// The ledger's word for what happens and the answer, or `None` if the order cannot be executed.
    fn decide(&self, tx: &Transaction<'_>, id: &str) -> Result<Option<(&'static str, Answer)>, Error> {
        let (status, body) = match &self.order.wanted {
            Wanted::Charge { declined: true, .. } => {
                let answer = Answer::new(StatusCode::PAYMENT_REQUIRED, &json!({ "code": "card_declined" }));
                return Ok(Some(("declined", answer)));
            }
            Wanted::Charge { amount, currency, .. } => {
                let body = json!({ "id": id, "amount": amount, "currency": currency, "status": "succeeded" });
                (StatusCode::CREATED, body)
            }
            Wanted::Refund { charge } => {
                let mut known = tx.prepare_cached(include_str!("../sql/charge_known.sql"))?;
                if !known.query_row((charge,), |row| row.get::<_, bool>(0))? {
                    return Ok(None);
                }
                (StatusCode::CREATED, json!({ "id": id, "charge": charge }))
            }
            Wanted::Mail => (StatusCode::ACCEPTED, json!({ "id": id })),
        };
        Ok(Some(("succeeded", Answer::new(status, &body))))
    }

    /// The webhook that follows a charge that succeeded, where one is wanted.
    fn event(&self, answer: &Answer) -> Result<Option<Event>, Error> {
        let Wanted::Charge { declined: false, webhook, .. } = &self.order.wanted else { return Ok(None) };
        let (times, instead) = match &self.fault {
            Some(Fault::WebhookTwice { url }) => (2, url.as_ref()),
            _ => (1, None),
        };
        let Some(url) = webhook.as_ref().or(instead) else { return Ok(None) };
        Ok(Some(Event::charge_succeeded(url, &serde_json::from_str(&answer.body)?, times)))
    }
}
