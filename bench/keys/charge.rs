//! The operation that everybody runs: a charge, by its number.

use anyhow::Result;
use bytes::Bytes;
use semel::{Event, Fingerprint, Key, Reply};
use semel_bench::drive::scattered;

/// How many accounts there are. The schema fills in as many.
const ACCOUNTS: u64 = 1024;

/// What a charge adds to a balance.
pub(crate) const AMOUNT: i64 = 42;

/// A charge, as its request says.
#[derive(Debug, Clone)]
pub(crate) struct Charge {
    pub(crate) account: i64,
    pub(crate) key: Key,
    pub(crate) fingerprint: Fingerprint,
    /// What its events carry.
    pub(crate) payload: Bytes,
    /// The body of the answer.
    pub(crate) reply: Bytes,
}

impl Charge {
    /// The charge with this number, under a key that is new.
    pub(crate) fn numbered(number: u64) -> Charge {
        let account = scattered(number) % ACCOUNTS;
        let body = format!(r#"{{"account":{account},"amount":{AMOUNT},"currency":"EUR","number":{number}}}"#);
        let reply = format!(r#"{{"id":"ch_{number:016}","status":"succeeded","charge":{body}}}"#);
        Charge {
            account: account.cast_signed(),
            key: Key::random(),
            fingerprint: Fingerprint::of_bytes(body.as_bytes()),
            payload: reply.clone().into(),
            reply: reply.into(),
        }
    }

    /// Events of one account stay in order.
    pub(crate) fn ordering_key(&self) -> String {
        format!("account-{}", self.account)
    }

    pub(crate) fn event(&self) -> Result<Event> {
        let json = "application/json";
        Ok(Event::bytes("charges", self.ordering_key(), "charge.created", json, self.payload.clone())?)
    }

    pub(crate) fn answer(&self) -> Result<Reply> {
        Ok(Reply::new(201, self.reply.clone())?)
    }
}
