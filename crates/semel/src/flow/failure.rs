//! Why a flow failed for good.

use serde::{Deserialize, Serialize};

use super::error::cut;
use super::journal::MAX_KEPT_BYTES;
use crate::disposition::Disposition;
use crate::{Reply, reply};

/// The code of a flow that an operator had undone.
pub(super) const CANCELLED: &str = "flow-cancelled";

/// The code of a flow whose life was over before it ended.
pub(super) const EXPIRED: &str = "flow-expired";

/// The problem of every other flow that failed.
const FAILED: &str = "flow-failed";

/// The status of a failure that brings no reply of its own.
const STATUS: u16 = 422;

/// Why a step, or a flow, failed for good.
///
/// It is stored before anything is undone, and with the step that failed, so that every run undoes for the same reason
/// and gives the same answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{reason}")]
pub struct Failure {
    /// The step that failed, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What failed, for programs.
    pub code: String,
    /// What failed, for people.
    #[serde(default)]
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "stored")]
    reply: Option<Box<Reply>>,
}

/// What a client is told of a failure that brings no reply of its own.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    failure: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'a str>,
}

impl Failure {
    /// A failure of this code, for this reason.
    pub fn new(code: impl Into<String>, reason: impl Into<String>) -> Failure {
        Failure { step: None, code: cut(code.into()), reason: cut(reason.into()), reply: None }
    }

    /// Says what the flow answers, once it is undone.
    #[must_use]
    pub fn replying(mut self, reply: Reply) -> Failure {
        self.reply = Some(Box::new(reply));
        self
    }

    /// What the flow answers, if the failure says so.
    pub fn reply(&self) -> Option<&Reply> {
        self.reply.as_deref()
    }

    /// The failure of this step, unless it names one already.
    pub(super) fn of_step(mut self, step: &str) -> Failure {
        self.step.get_or_insert_with(|| step.to_owned());
        self
    }

    pub(super) fn cancelled() -> Failure {
        Failure::new(CANCELLED, "an operator had the work undone")
    }

    pub(super) fn expired() -> Failure {
        Failure::new(EXPIRED, "the work took longer than it may and was undone")
    }

    /// What the flow answers: the failure's own reply, or a problem document if it has none, or one whose status is
    /// never stored.
    pub(super) fn answer(&self) -> std::result::Result<Reply, reply::Invalid> {
        if let Some(reply) = &self.reply
            && Disposition::of(reply.status(), reply.mark(), true) != Disposition::Forget
        {
            return Ok((**reply).clone());
        }
        self.problem()
    }

    /// The failure as a problem document.
    pub(super) fn problem(&self) -> std::result::Result<Reply, reply::Invalid> {
        let code = match self.code.as_str() {
            code @ (CANCELLED | EXPIRED) => code,
            _ => FAILED,
        };
        let problem = Problem {
            r#type: format!("urn:semel:problem:{code}"),
            title: "The work failed and was undone",
            status: STATUS,
            detail: &self.reason,
            code,
            failure: &self.code,
            step: self.step.as_deref(),
        };
        Reply::new(STATUS, serde_json::to_vec(&problem)?)?.header("content-type", "application/problem+json")
    }

    /// The failure as JSON that fits a row (I12). A reply that does not fit is given up, here and for good, so that
    /// this run answers as every later one would.
    pub(super) fn bounded_json(&mut self) -> serde_json::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        if json.len() <= MAX_KEPT_BYTES || self.reply.is_none() {
            return Ok(json);
        }
        let code = self.code.as_str();
        tracing::warn!(code, "the reply of a failure is too large to be kept; a problem is answered instead");
        self.reply = None;
        serde_json::to_vec(self)
    }
}

/// A reply inside JSON. Bytes that are text are kept as text, so that people can read them.
mod stored {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::Reply;

    #[derive(Serialize, Deserialize)]
    struct Stored {
        status: u16,
        headers: Octets,
        body: Octets,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Octets {
        Text(String),
        Bytes(Vec<u8>),
    }

    impl Octets {
        fn of(bytes: &[u8]) -> Octets {
            match std::str::from_utf8(bytes) {
                Ok(text) => Octets::Text(text.to_owned()),
                Err(_) => Octets::Bytes(bytes.to_vec()),
            }
        }

        fn into_bytes(self) -> Vec<u8> {
            match self {
                Octets::Text(text) => text.into_bytes(),
                Octets::Bytes(bytes) => bytes,
            }
        }
    }

    pub(super) fn serialize<S: Serializer>(reply: &Option<Box<Reply>>, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = reply.as_ref().map(|reply| Stored {
            status: reply.status(),
            headers: Octets::of(&reply.header_lines()),
            body: Octets::of(reply.body()),
        });
        stored.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<Reply>>, D::Error> {
        let Some(stored) = Option::<Stored>::deserialize(deserializer)? else { return Ok(None) };
        let (headers, body) = (stored.headers.into_bytes(), stored.body.into_bytes());
        let reply = Reply::from_stored(stored.status, &headers, body.into()).map_err(D::Error::custom)?;
        Ok(Some(Box::new(reply)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &[u8]) -> Failure {
        serde_json::from_slice(json).unwrap()
    }

    #[test]
    fn a_failure_reads_back_with_its_reply_byte_for_byte() {
        let reply = |body: &[u8]| Reply::new(402, body.to_vec()).unwrap().header("x-a", b"\xff".to_vec()).unwrap();
        for body in [&b"{\"a\":1}"[..], b"", b"\xff\x00\r\n"] {
            let mut failure = Failure::new("declined", "the card was declined").of_step("charge").replying(reply(body));
            let back = read(&failure.bounded_json().unwrap());
            assert_eq!(back, failure);
            assert_eq!(back.answer().unwrap(), reply(body));
        }
    }

    #[test]
    fn what_an_operator_resolved_is_read_as_a_failure() {
        let failure = read(br#"{"step":"charge","reason":"the card \"was\" blocked","code":"resolved"}"#);
        assert_eq!((failure.step.as_deref(), failure.code.as_str()), (Some("charge"), "resolved"));
        assert_eq!(failure.reason, "the card \"was\" blocked");
        assert_eq!(failure.reply(), None);
    }

    #[test]
    fn a_failure_without_a_reply_is_answered_as_a_problem() {
        let cases = [
            (Failure::new("out-of-stock", "none left").of_step("reserve"), "flow-failed", Some("reserve")),
            (Failure::cancelled(), "flow-cancelled", None),
            (Failure::expired(), "flow-expired", None),
        ];
        for (failure, code, step) in cases {
            let reply = failure.answer().unwrap();
            assert_eq!(reply.status(), 422);
            assert_eq!(reply.headers().next(), Some(("content-type", &b"application/problem+json"[..])));
            let body: serde_json::Value = serde_json::from_slice(reply.body()).unwrap();
            assert_eq!(body["type"], format!("urn:semel:problem:{code}"));
            assert_eq!((&body["code"], &body["status"]), (&code.into(), &422.into()));
            assert_eq!((&body["detail"], body["step"].as_str()), (&failure.reason.as_str().into(), step));
        }
    }

    #[test]
    fn a_failure_names_the_first_step_that_failed() {
        assert_eq!(Failure::new("a", "b").of_step("one").of_step("two").step.as_deref(), Some("one"));
    }

    #[test]
    fn a_reply_that_does_not_fit_a_row_is_given_up() {
        let large = Reply::new(402, vec![b'x'; MAX_KEPT_BYTES]).unwrap();
        let mut failure = Failure::new("declined", "no").replying(large);
        let json = failure.bounded_json().unwrap();
        assert!(json.len() <= MAX_KEPT_BYTES);
        assert_eq!((failure.reply(), read(&json)), (None, failure.clone()));
        assert_eq!(failure.answer().unwrap().status(), 422);
    }
}
