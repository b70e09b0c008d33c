//! The `Idempotency-Key` header, as many providers read it: bare, or in quotes.

use axum::http::HeaderMap;

const HEADER: &str = "idempotency-key";

const MAX_CHARACTERS: usize = 255;

/// Why a header was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Invalid {
    #[error("the header Idempotency-Key was sent more than once")]
    Repeated,
    #[error("the quotes of the header Idempotency-Key do not close, or something stands behind them")]
    Quoting,
    #[error("a key has 1 to 255 visible ASCII characters")]
    Characters,
}

/// Reads the key of a request; `None` if there is no such header. `k` and `"k"` are the same key.
pub(crate) fn read(headers: &HeaderMap) -> Result<Option<String>, Invalid> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Invalid::Repeated);
    }
    let key = match value.as_bytes().trim_ascii() {
        [b'"', rest @ ..] => unquoted(rest)?,
        bare if bare.contains(&b'"') => return Err(Invalid::Quoting),
        bare => bare.to_vec(),
    };
    let key = String::from_utf8(key).map_err(|_| Invalid::Characters)?;
    let well_formed = (1..=MAX_CHARACTERS).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    if well_formed { Ok(Some(key)) } else { Err(Invalid::Characters) }
}

/// What stands between the quotes; the first of them is gone already.
fn unquoted(rest: &[u8]) -> Result<Vec<u8>, Invalid> {
    let mut key = Vec::with_capacity(rest.len());
    let mut bytes = rest.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return if bytes.len() == 0 { Ok(key) } else { Err(Invalid::Quoting) },
            b'\\' => match bytes.next() {
                Some(escaped @ (b'"' | b'\\')) => key.push(escaped),
                _ => return Err(Invalid::Quoting),
            },
            plain => key.push(plain),
        }
    }
    Err(Invalid::Quoting)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read_one(value: &[u8]) -> Result<Option<String>, Invalid> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_bytes(value).unwrap());
        read(&headers)
    }

    #[test]
    fn a_key_is_the_same_bare_and_quoted() {
        for value in ["k-1", " k-1 ", "\"k-1\""] {
            assert_eq!(read_one(value.as_bytes()), Ok(Some("k-1".to_owned())), "{value}");
        }
        assert_eq!(read_one(br#""a\"b\\c""#), Ok(Some(r#"a"b\c"#.to_owned())));
        assert_eq!(read(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn what_is_not_a_key_is_refused() {
        for value in ["\"", "\"k", "k\"", "\"k\"x", "\"k\";v=1", "\"a\\b\"", "a\"b"] {
            assert_eq!(read_one(value.as_bytes()), Err(Invalid::Quoting), "{value}");
        }
        let long = "x".repeat(256);
        for value in [b"".as_slice(), b"\"\"", b"a b", b"\xc3\xa9", b"\xff", long.as_bytes()] {
            assert_eq!(read_one(value), Err(Invalid::Characters), "{value:?}");
        }
        assert_eq!(read_one(&long.as_bytes()[1..]), Ok(Some("x".repeat(255))));
    }

    #[test]
    fn the_header_twice_is_refused() {
        let mut headers = HeaderMap::new();
        headers.append(HEADER, HeaderValue::from_static("k"));
        headers.append(HEADER, HeaderValue::from_static("k"));
        assert_eq!(read(&headers), Err(Invalid::Repeated));
    }
}
