//! What a request carries, taken apart so that every refusal is a problem with its own code.

use std::ops::RangeInclusive;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use semel_tower::code::Code;
use semel_tower::{FlowAsk, Keyed, Problem, read_body};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::code;
use crate::ledger::MAX_AMOUNT;
use crate::problem::problem;

/// The most pieces that a stock or an order may have.
const MAX_QUANTITY: i64 = 1_000_000_000;

/// The longest card token, in characters, and the longest mail address, in bytes.
const MAX_CARD_CHARACTERS: usize = 255;
const MAX_EMAIL_BYTES: usize = 254;

/// The most bytes that a request with a natural key may have; what it carries takes a few hundred.
const NATURAL_BODY_LIMIT: usize = 64 * 1024;

/// How long a body may take to arrive.
const BODY_DEADLINE: Duration = Duration::from_secs(30);

/// How much of a parser's message is told, so that a hostile member name does not fill the answer.
const MAX_DETAIL_CHARACTERS: usize = 200;

/// A JSON body. Refused before any statement runs, so a keyed request with a bad body leaves its key new.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Json<T>, Problem> {
        if !is_json(request.headers()) {
            let detail = "Send the body as `Content-Type: application/json`.";
            return Err(problem(&code::CONTENT_TYPE_UNSUPPORTED, detail));
        }
        let (parts, body) = request.into_parts();
        // The layer has read the body of a keyed request already, by its own limit.
        let keyed = parts.extensions.get::<Keyed>().is_some() || parts.extensions.get::<FlowAsk>().is_some();
        let limit = if keyed { usize::MAX } else { NATURAL_BODY_LIMIT };
        let body = read_body(&parts.headers, body, limit, BODY_DEADLINE).await?;
        serde_json::from_slice(&body).map(Json).map_err(|error| {
            let message: String = error.to_string().chars().take(MAX_DETAIL_CHARACTERS).collect();
            match error.classify() {
                Category::Data => problem(&code::BODY_INVALID, format!("The body is refused: {message}")),
                _ => problem(&code::JSON_INVALID, format!("The body is not JSON: {message}")),
            }
        })
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
        || essence.get(..12).is_some_and(|start| start.eq_ignore_ascii_case("application/"))
            && essence.get(essence.len() - 5..).is_some_and(|end| end.eq_ignore_ascii_case("+json"))
}

/// The id in the path, not yet checked.
#[derive(Debug)]
pub(crate) struct PathId(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathId, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(id)) => Ok(PathId(id)),
            Err(_) => Err(problem(&code::NOT_FOUND, "The path is not valid UTF-8.")),
        }
    }
}

/// Checks the id of an account, a charge, an article or an order; `code` names which.
pub(crate) fn id(code: &Code, text: String) -> Result<String, Problem> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    if (1..=64).contains(&text.len()) && text.bytes().all(allowed) {
        return Ok(text);
    }
    let detail = "An id has 1 to 64 characters out of A-Z a-z 0-9 _ . - and this one does not.";
    Err(problem(code, detail))
}

/// Checks the id of an account.
pub(crate) fn account_id(text: String) -> Result<String, Problem> {
    id(&code::ACCOUNT_INVALID, text)
}

/// Checks the id that a bank gave a transaction.
pub(crate) fn transaction_id(text: String) -> Result<String, Problem> {
    if (1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(text);
    }
    let detail = "`transaction_id` must be 1 to 255 visible ASCII characters.";
    Err(problem(&code::TRANSACTION_ID_INVALID, detail))
}

/// Checks a currency.
pub(crate) fn currency(text: String) -> Result<String, Problem> {
    if text.len() == 3 && text.bytes().all(|b| b.is_ascii_uppercase()) {
        return Ok(text);
    }
    let detail = "`currency` must be three upper-case letters, such as EUR.";
    Err(problem(&code::CURRENCY_INVALID, detail))
}

/// Checks an amount as it was written.
pub(crate) fn amount(literal: &RawValue) -> Result<i64, Problem> {
    whole(literal, 1..=MAX_AMOUNT).map_err(|wrong| {
        let detail = format!("`amount` must be a whole number of minor units between 1 and {MAX_AMOUNT}, but {wrong}.");
        problem(&code::AMOUNT_INVALID, detail)
    })
}

/// Checks a number of pieces as it was written; a stock may have none of them, an order may not.
pub(crate) fn quantity(literal: &RawValue, least: i64) -> Result<i64, Problem> {
    whole(literal, least..=MAX_QUANTITY).map_err(|wrong| {
        let detail = format!("`quantity` must be a whole number between {least} and {MAX_QUANTITY}, but {wrong}.");
        problem(&code::QUANTITY_INVALID, detail)
    })
}

/// Reads a whole number from the literal, because a parsed number may have been rounded; or says what is wrong with it.
fn whole(literal: &RawValue, bounds: RangeInclusive<i64>) -> Result<i64, &'static str> {
    let text = literal.get();
    Err(match text.as_bytes() {
        [b'-', ..] => "it is negative",
        [b'"', ..] => "it is a string",
        [b'{' | b'[' | b't' | b'f' | b'n', ..] => "it is not a number",
        digits if !digits.iter().all(u8::is_ascii_digit) => "it has a fraction or an exponent",
        _ => match text.parse::<i64>() {
            Ok(number) if bounds.contains(&number) => return Ok(number),
            Ok(0) => "it is zero",
            _ => "it is too large",
        },
    })
}

/// Checks the token of a card. Messages do not repeat it.
pub(crate) fn card(text: String) -> Result<String, Problem> {
    if (1..=MAX_CARD_CHARACTERS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(text);
    }
    let detail = format!("`card` must be 1 to {MAX_CARD_CHARACTERS} visible ASCII characters.");
    Err(problem(&code::CARD_INVALID, detail))
}

/// Checks a mail address, for what would break a mail rather than for what a mailer accepts.
pub(crate) fn email(text: String) -> Result<String, Problem> {
    let parted = text.split_once('@').is_some_and(|(to, at)| !to.is_empty() && !at.is_empty() && !at.contains('@'));
    if parted && text.len() <= MAX_EMAIL_BYTES && !text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Ok(text);
    }
    let detail = format!("`email` must be NAME@HOST, at most {MAX_EMAIL_BYTES} bytes, without spaces.");
    Err(problem(&code::EMAIL_INVALID, detail))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(literal: &str) -> Option<i64> {
        amount(&serde_json::from_str::<Box<RawValue>>(literal).unwrap()).ok()
    }

    #[test]
    fn an_amount_is_a_whole_number_between_1_and_2_to_the_53() {
        assert_eq!(read("1"), Some(1));
        assert_eq!(read("9007199254740992"), Some(MAX_AMOUNT));
        for refused in
            ["0", "-0", "-1", "1.0", "1.5", "1e3", "9007199254740993", "1e400", "\"1\"", "null", "true", "[1]", "{}"]
        {
            assert_eq!(read(refused), None, "{refused}");
        }
        assert_eq!(read(&"9".repeat(10_000)), None);
    }

    #[test]
    fn a_stock_may_be_empty_and_an_order_may_not() {
        let read = |literal: &str, least| quantity(&serde_json::from_str::<Box<RawValue>>(literal).unwrap(), least);
        assert_eq!((read("0", 0).ok(), read("0", 1).ok()), (Some(0), None));
        assert_eq!((read("1000000000", 1).ok(), read("1000000001", 0).ok()), (Some(MAX_QUANTITY), None));
        assert_eq!((read("-1", 0).ok(), read("1.0", 0).ok()), (None, None));
    }

    #[test]
    fn an_address_that_would_break_a_mail_is_refused() {
        for allowed in ["a@b", "ann.o'neil+shop@example.com", "jörg@example.de"] {
            assert!(email(allowed.to_owned()).is_ok(), "{allowed}");
        }
        for refused in ["", "a", "@b", "a@", "a@b@c", "a b@c", "a@b\r\nBcc: x@y", &format!("a@{}", "b".repeat(254))] {
            assert!(email(refused.to_owned()).is_err(), "{refused:?}");
        }
        let told = card("hunter 2".to_owned()).unwrap_err();
        assert!(card("tok_visa".to_owned()).is_ok() && !told.to_string().contains("hunter"), "{told}");
    }

    #[test]
    fn an_id_cannot_leave_its_alphabet() {
        for allowed in ["a", "A-1_b.c", &"x".repeat(64)] {
            assert!(account_id(allowed.to_owned()).is_ok(), "{allowed}");
        }
        for refused in ["", "a b", "a/b", "external:card", "é", "a\0", &"x".repeat(65)] {
            assert!(account_id(refused.to_owned()).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn only_json_is_read_as_json() {
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            is_json(&headers)
        };
        assert!(with("application/json") && with("Application/JSON; charset=utf-8") && with("application/x+json"));
        assert!(!with("text/plain") && !with("application/jsonp") && !with("") && !is_json(&HeaderMap::new()));
    }
}
