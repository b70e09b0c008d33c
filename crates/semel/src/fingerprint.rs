//! What a client asked for, as a hash.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::canonical;

/// How many bytes a fingerprint takes: one for the version, 32 for the hash. The database checks the same bound (I12).
pub const BYTES: usize = 33;

const VERSION: u8 = 1;

/// A versioned hash of what a client asked for. It tells a retry from a key that was reused for another request; it
/// never is the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; BYTES]);

impl Fingerprint {
    /// The fingerprint of an HTTP request: method, target with query, content type and body, each behind its length.
    ///
    /// A JSON body is taken in its canonical form (RFC 8785), so that another order of members or other white space is
    /// the same request. A body with duplicate members, invalid UTF-8, or a number that a double cannot hold exactly
    /// is taken byte by byte, because its canonical form would lose what tells two requests apart.
    ///
    /// # The exact form
    ///
    /// Other languages that share the tables compute the same 33 bytes: the version byte `0x01`, then the SHA-256 of
    /// five fields, each preceded by its length in bytes as a big-endian integer of eight bytes:
    ///
    /// 1. the method as sent, such as `POST`;
    /// 2. the target as sent, path and query, such as `/charges?dry=1`;
    /// 3. the media type: the content type up to the first `;`, without white space around it, in lower case; empty if
    ///    there is none;
    /// 4. the form of the body: `json` or `raw`;
    /// 5. the body: canonical for `json`, byte by byte for `raw`.
    ///
    /// The form is `json` if the media type is `application/json` or ends in `+json` and the body has a canonical form:
    /// it is valid JSON in UTF-8, nests no deeper than 128 levels, names no member twice, and each number, read as a
    /// double and printed as ECMAScript prints it, keeps its decimal value (`1.0` is `1`, but `9007199254740993` has no
    /// double). `POST`, `/charges`, `application/json` and `{"amount": 100, "account": "a"}` make
    /// `0133f185293624ccffcddf5404797fb6047a10daee5075560e6f26c34e6d53107f`.
    pub fn of_request(method: &str, target: &str, content_type: Option<&str>, body: &[u8]) -> Fingerprint {
        let media_type = content_type.unwrap_or("").split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        let is_json = media_type == "application/json" || media_type.ends_with("+json");
        let canonical = if is_json { canonical::json(body) } else { None };
        let (form, body) = match &canonical {
            Some(canonical) => (b"json".as_slice(), canonical.as_slice()),
            None => (b"raw".as_slice(), body),
        };
        Fingerprint::of_fields(&[method.as_bytes(), target.as_bytes(), media_type.as_bytes(), form, body])
    }

    /// The fingerprint of anything else, for callers without HTTP: serialise what makes two intents different.
    pub fn of_bytes(bytes: &[u8]) -> Fingerprint {
        Fingerprint::of_fields(&[b"bytes", bytes])
    }

    /// The version byte and the hash.
    pub fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// Reads back what a store kept.
    pub fn from_bytes(bytes: [u8; BYTES]) -> Fingerprint {
        Fingerprint(bytes)
    }

    fn of_fields(fields: &[&[u8]]) -> Fingerprint {
        let mut hash = Sha256::new();
        for field in fields {
            hash.update((field.len() as u64).to_be_bytes());
            hash.update(field);
        }
        let mut bytes = [VERSION; BYTES];
        bytes[1..].copy_from_slice(&hash.finalize());
        Fingerprint(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const JSON: Option<&str> = Some("application/json");

    fn charge(body: &str) -> Fingerprint {
        Fingerprint::of_request("POST", "/charges", JSON, body.as_bytes())
    }

    #[test]
    fn order_of_members_and_white_space_do_not_matter() {
        let plain = charge(r#"{"account":"a","amount":100}"#);
        assert_eq!(plain, charge("{ \"amount\": 1e2,\n\t\"account\" : \"\\u0061\" }"));
    }

    #[test]
    fn parameters_and_case_of_the_content_type_do_not_matter() {
        let plain = charge("{}");
        for content_type in ["application/json; charset=utf-8", "Application/JSON", " application/json ;x"] {
            assert_eq!(plain, Fingerprint::of_request("POST", "/charges", Some(content_type), b"{ }"));
        }
    }

    #[test]
    fn another_request_has_another_fingerprint() {
        let body = br#"{"amount":100}"#;
        let requests = [
            Fingerprint::of_request("POST", "/charges", JSON, body),
            Fingerprint::of_request("PATCH", "/charges", JSON, body),
            Fingerprint::of_request("POST", "/charges?dry=1", JSON, body),
            Fingerprint::of_request("POST", "/refunds", JSON, body),
            Fingerprint::of_request("POST", "/charges", Some("application/merge-patch+json"), body),
            Fingerprint::of_request("POST", "/charges", Some("text/plain"), body),
            Fingerprint::of_request("POST", "/charges", None, body),
            Fingerprint::of_request("POST", "/charges", JSON, br#"{"amount":101}"#),
            Fingerprint::of_request("POST", "/charges", JSON, br#"{"amount":"100"}"#),
            Fingerprint::of_request("POST", "/charges", JSON, b""),
        ];
        assert_eq!(requests.iter().collect::<HashSet<_>>().len(), requests.len());
    }

    #[test]
    fn bytes_moved_between_fields_make_another_fingerprint() {
        let requests = [
            Fingerprint::of_request("POST", "/charges", Some("text/plain"), b"abc"),
            Fingerprint::of_request("POST/", "charges", Some("text/plain"), b"abc"),
            Fingerprint::of_request("POST", "/chargestext", Some("/plain"), b"abc"),
            Fingerprint::of_request("POST", "/charges", Some("text/plainraw"), b"abc"),
            Fingerprint::of_request("POST", "/charges", Some("text/plai"), b"nabc"),
            Fingerprint::of_bytes(b"POST/chargestext/plainrawabc"),
        ];
        assert_eq!(requests.iter().collect::<HashSet<_>>().len(), requests.len());
    }

    #[test]
    fn raw_bytes_that_look_canonical_are_not_taken_for_json() {
        let body = br#"{"a":1}"#;
        let raw = Fingerprint::of_fields(&[b"POST", b"/charges", b"application/json", b"raw", body]);
        assert_ne!(Fingerprint::of_request("POST", "/charges", JSON, body), raw);
    }

    #[test]
    fn what_has_no_canonical_form_is_taken_byte_by_byte() {
        assert_ne!(charge(r#"{"amount":1,"amount":2}"#), charge(r#"{"amount":2,"amount":1}"#));
        assert_ne!(charge(r#"{"amount":9007199254740993}"#), charge(r#"{"amount":9007199254740992}"#));
        assert_ne!(charge(r#"{"a":1,"a":1}"#), charge(r#"{"a":1, "a":1}"#));
        let broken = |body: &[u8]| Fingerprint::of_request("POST", "/charges", JSON, body);
        assert_ne!(broken(b"\"\xff\""), broken(b"\"\xfe\""));
    }

    #[test]
    fn other_bodies_are_taken_byte_by_byte() {
        let text = |body: &[u8]| Fingerprint::of_request("POST", "/notes", Some("text/plain"), body);
        assert_ne!(text(b"{\"a\":1}"), text(b"{\"a\": 1}"));
    }

    #[test]
    fn other_languages_can_check_theirs_against_these() {
        for (body, expected) in [
            (
                r#"{"amount": 100, "account": "a"}"#,
                "0133f185293624ccffcddf5404797fb6047a10daee5075560e6f26c34e6d53107f",
            ),
            (r#"{"amount": 1, "amount": 2}"#, "010ca5a1ef7a007ccf712378f56d050ec76a922285c24fb02c5a0145fdab01ab6e"),
        ] {
            assert_eq!(charge(body).to_string(), expected);
        }
        let text = Fingerprint::of_request("POST", "/notes?draft=1", None, b"hello");
        assert_eq!(text.to_string(), "01485b6b761a240f0976c79690fa4033b3e37ff711eb03581a07b6dd7224bba0e8");
        assert_eq!(
            Fingerprint::of_bytes(b"hello").to_string(),
            "013d353c7e8e38c3edd8f498cef94fd0feb1e9bbef36a63f2bbe978dcb2adc2065"
        );
        assert_eq!(Fingerprint::from_bytes(*text.as_bytes()), text);
    }
}
