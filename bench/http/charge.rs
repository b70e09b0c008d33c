//! What everybody is asked for: a charge, by its number.

use anyhow::Result;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use semel::{Event, Key};
use semel_bench::drive::scattered;
use semel_tower::header::IDEMPOTENCY_KEY;
use serde::{Deserialize, Serialize};

/// How many accounts there are. The schema fills in as many.
const ACCOUNTS: u64 = 1024;

/// The cookie that holds a session.
pub(crate) const SESSION: &str = "session";

/// A charge, as the handler reads it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Charge {
    pub(crate) account: i64,
    pub(crate) amount: i64,
    currency: String,
    number: u64,
}

/// What the handler answers.
#[derive(Debug, Serialize)]
pub(crate) struct Receipt {
    id: String,
    status: &'static str,
    charge: Charge,
}

/// A request for a charge. All are the same to everybody: who knows no keys or no sessions does not look at them.
#[derive(Debug)]
pub(crate) struct Order {
    key: String,
    cookie: String,
    body: Bytes,
}

impl Charge {
    /// The answer to it.
    pub(crate) fn receipt(self) -> Receipt {
        Receipt { id: format!("ch_{:016}", self.number), status: "succeeded", charge: self }
    }
}

impl Receipt {
    /// Says that the charge was made. Events of one account stay in order.
    pub(crate) fn event(&self) -> Result<Event> {
        Ok(Event::new("charges", format!("account-{}", self.charge.account), "charge.created", self)?)
    }
}

impl Order {
    /// The charge with this number, under a key that is new.
    pub(crate) fn numbered(number: u64) -> Order {
        let account = scattered(number) % ACCOUNTS;
        let body = format!(r#"{{"account":{account},"amount":42,"currency":"EUR","number":{number}}}"#);
        Order {
            key: format!("\"{}\"", Key::random().as_str()),
            // A session for each account: whenever an answer is put into one, all that are in it are looked at. Its id
            // stands for 16 bytes in base64.
            cookie: format!("{SESSION}={account:021}A"),
            body: body.into(),
        }
    }

    /// As it is sent.
    pub(crate) fn request(&self) -> Result<Request<Full<Bytes>>> {
        let request = Request::post("/charges")
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::COOKIE, &self.cookie)
            .header(IDEMPOTENCY_KEY, &self.key);
        Ok(request.body(Full::new(self.body.clone()))?)
    }
}
