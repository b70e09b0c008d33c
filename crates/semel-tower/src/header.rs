//! The `Idempotency-Key` request header.

use http::{HeaderMap, HeaderName};
use semel::{Key, key};
use sfv::{BareItem, Item, Parser};

/// The header that carries the key.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The most bytes the header's value may take: a key of full length with every character escaped, and room for
/// parameters, which are ignored (I12).
pub const MAX_VALUE_BYTES: usize = 1024;

/// Which spellings of a key are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// A structured String, `"k"`, or the bare characters, `k`: both name the same key.
    #[default]
    Lenient,
    /// Only a structured String (RFC 9651), `"k"`.
    Strict,
}

impl Mode {
    /// The name that the policy document and configuration use.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Lenient => "lenient",
            Mode::Strict => "strict",
        }
    }
}

/// Why a header was refused. The message tells the client what to send instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The header stands more than once, so it is not clear which key is meant.
    #[error("the header Idempotency-Key was sent {0} times; send it once")]
    Repeated(usize),
    /// The value is longer than any key can be.
    #[error("the header Idempotency-Key has {0} bytes; the limit is {MAX_VALUE_BYTES}")]
    TooLong(usize),
    /// The quotes or escapes do not make a structured String.
    #[error("the header Idempotency-Key is not a well-formed quoted string ({0}); send it as \"key\"")]
    Quoting(String),
    /// A bare value, where only a String is accepted.
    #[error("the header Idempotency-Key must be a quoted string (RFC 9651); send it as \"key\", with the quotes")]
    NotQuoted,
    /// The characters do not make a key.
    #[error(transparent)]
    Key(#[from] key::Invalid),
    /// The key is shorter than this route allows.
    #[error("the key has {characters} characters; this route needs at least {minimum}, for example a UUID")]
    TooShort {
        /// How many it has.
        characters: usize,
        /// How many it needs.
        minimum: usize,
    },
}

/// Reads the key from a request's headers; `None` if there is no such header.
pub fn parse(headers: &HeaderMap, mode: Mode) -> Result<Option<Key>, Invalid> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let more = values.count();
    if more > 0 {
        return Err(Invalid::Repeated(more + 1));
    }
    parse_value(value.as_bytes(), mode).map(Some)
}

fn parse_value(value: &[u8], mode: Mode) -> Result<Key, Invalid> {
    if value.len() > MAX_VALUE_BYTES {
        return Err(Invalid::TooLong(value.len()));
    }
    let value = value.trim_ascii();
    match (value.first(), mode) {
        (None, _) => Err(key::Invalid::Empty.into()),
        (Some(b'"'), _) => quoted(value),
        (Some(_), Mode::Strict) => Err(Invalid::NotQuoted),
        (Some(_), Mode::Lenient) => bare(value),
    }
}

fn quoted(value: &[u8]) -> Result<Key, Invalid> {
    let item: Item = Parser::new(value).parse().map_err(|error| Invalid::Quoting(error.to_string()))?;
    match item.bare_item {
        BareItem::String(text) => Ok(Key::new(text.as_str())?),
        _ => Err(Invalid::NotQuoted),
    }
}

/// A quote inside a bare value is half of a broken String rather than part of a key, so it is refused.
fn bare(value: &[u8]) -> Result<Key, Invalid> {
    if value.contains(&b'"') {
        return Err(Invalid::Quoting("a quote stands inside the value".to_owned()));
    }
    Ok(Key::new(String::from_utf8_lossy(value))?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn both(value: &[u8]) -> [Result<String, Invalid>; 2] {
        [Mode::Strict, Mode::Lenient].map(|mode| parse_value(value, mode).map(|key| key.to_string()))
    }

    #[test]
    fn a_quoted_string_is_its_characters_and_parameters_are_ignored() {
        for value in [r#""k""#, r#" "k" "#, r#""k";v=1"#, r#""k"; a="x"; b"#] {
            assert_eq!(both(value.as_bytes()), [Ok("k".to_owned()), Ok("k".to_owned())], "{value}");
        }
        assert_eq!(both(br#""a\"b\\c""#)[0], Ok(r#"a"b\c"#.to_owned()));
    }

    #[test]
    fn a_bare_key_is_for_lenient_only() {
        for value in ["k", "8e03978e-40d5-43dd-bc93-6894a57f9324", "123", ":YWJj:", "?1", "a,b"] {
            assert_eq!(both(value.as_bytes()), [Err(Invalid::NotQuoted), Ok(value.to_owned())], "{value}");
        }
    }

    #[test]
    fn an_empty_key_is_refused() {
        for value in ["", "  ", "\"\"", "\"\";a=1"] {
            let empty = Err(Invalid::Key(key::Invalid::Empty));
            assert_eq!(both(value.as_bytes()), [empty.clone(), empty], "{value}");
        }
    }

    #[test]
    fn a_key_over_255_characters_is_refused() {
        let (long, longest) = ("x".repeat(256), "x".repeat(255));
        assert_eq!(both(format!("\"{long}\"").as_bytes())[0], Err(Invalid::Key(key::Invalid::TooLong(256))));
        assert_eq!(both(long.as_bytes())[1], Err(Invalid::Key(key::Invalid::TooLong(256))));
        assert_eq!(both(format!("\"{longest}\"").as_bytes())[0], Ok(longest.clone()));
        assert_eq!(both(longest.as_bytes())[1], Ok(longest));
        assert_eq!(both(&[b'x'; 1025])[1], Err(Invalid::TooLong(1025)));
    }

    #[test]
    fn characters_outside_visible_ascii_are_refused() {
        for value in ["a b".as_bytes(), "a\tb".as_bytes(), "é".as_bytes(), b"\xff", b"\"a b\"", b"\"\xc3\xa9\""] {
            assert!(both(value).iter().all(Result::is_err), "{value:?}");
        }
    }

    #[test]
    fn broken_quoting_is_refused() {
        for value in [r#"""#, r#""k"#, r#"k""#, r#""k"x"#, r#""a", "b""#, r#""a\b""#, r#""k" x"#] {
            assert!(both(value.as_bytes()).iter().all(Result::is_err), "{value}");
        }
    }

    #[test]
    fn the_header_twice_is_refused_even_with_equal_values() {
        let mut headers = HeaderMap::new();
        assert_eq!(parse(&headers, Mode::Lenient), Ok(None));
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("k"));
        assert_eq!(parse(&headers, Mode::Lenient), Ok(Some(Key::new("k").unwrap())));
        headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("k"));
        assert_eq!(parse(&headers, Mode::Lenient), Err(Invalid::Repeated(2)));
    }

    proptest! {
        #[test]
        fn a_bare_key_and_the_same_key_quoted_agree(text in "[!#-~]{1,255}") {
            let quoted = format!("\"{}\"", text.replace('\\', "\\\\"));
            let bare = parse_value(text.as_bytes(), Mode::Lenient);
            prop_assert_eq!(bare.as_ref().map(|key| key.as_str()), Ok(text.as_str()));
            prop_assert_eq!(&bare, &parse_value(quoted.as_bytes(), Mode::Lenient));
            prop_assert_eq!(&bare, &parse_value(quoted.as_bytes(), Mode::Strict));
        }

        #[test]
        fn no_value_panics_or_makes_a_key_out_of_bounds(value in prop::collection::vec(any::<u8>(), 0..600)) {
            for key in [Mode::Lenient, Mode::Strict].into_iter().filter_map(|mode| parse_value(&value, mode).ok()) {
                prop_assert!((1..=255).contains(&key.as_str().len()));
            }
        }
    }
}
