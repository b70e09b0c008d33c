//! Reading a sink's URL: who, where, and checked parameters.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

#[cfg(any(test, feature = "kafka", feature = "nats"))]
use percent_encoding::percent_decode_str;

use crate::Error;

/// How long a broker may take to answer, unless `timeout_ms` says otherwise.
const DEFAULT_TIMEOUT_MS: u64 = 10_000;

/// A URL whose parameters are taken one by one, so that one nobody knows is refused by name.
pub(crate) struct SinkUrl {
    url: ::url::Url,
    parameters: BTreeMap<String, String>,
    known: Vec<&'static str>,
}

impl SinkUrl {
    /// Reads `text`. Errors never repeat it, because it may hold a password.
    pub(crate) fn parse(text: &str) -> Result<SinkUrl, Error> {
        let mut url = ::url::Url::parse(text).map_err(|error| Error::Url(error.to_string()))?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(Error::Url("it names no host".to_owned()));
        }
        let mut parameters = BTreeMap::new();
        for (name, value) in url.query_pairs() {
            if parameters.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                return Err(Error::Url(format!("the parameter `{name}` is given twice")));
            }
        }
        url.set_query(None);
        url.set_fragment(None);
        Ok(SinkUrl { url, parameters, known: Vec::new() })
    }

    /// The URL without its parameters, password included: for a client library only.
    #[cfg(any(feature = "rabbitmq", feature = "redis"))]
    pub(crate) fn with_secrets(&self) -> &str {
        self.url.as_str()
    }

    /// The scheme.
    pub(crate) fn scheme(&self) -> &str {
        self.url.scheme()
    }

    /// The host, with brackets around an IPv6 address, and the port.
    pub(crate) fn authority(&self, default_port: u16) -> String {
        format!("{}:{}", self.url.host_str().unwrap_or_default(), self.url.port().unwrap_or(default_port))
    }

    /// The path without its first slash, as written.
    #[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq"))]
    pub(crate) fn path(&self) -> &str {
        self.url.path().trim_start_matches('/')
    }

    /// The user's name and password, decoded.
    #[cfg(any(test, feature = "kafka", feature = "nats"))]
    pub(crate) fn credentials(&self) -> Result<(Option<String>, Option<String>), Error> {
        let decode = |text: &str| match percent_decode_str(text).decode_utf8() {
            Ok(text) => Ok(text.into_owned()),
            Err(_) => Err(Error::Url("user name and password must be UTF-8".to_owned())),
        };
        let user = Some(self.url.username()).filter(|name| !name.is_empty()).map(decode).transpose()?;
        Ok((user, self.url.password().map(decode).transpose()?))
    }

    /// A parameter's text.
    pub(crate) fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        self.parameters.remove(name)
    }

    /// A parameter that is a whole number.
    pub(crate) fn number(&mut self, name: &'static str) -> Result<Option<u64>, Error> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Error::Url(format!("`{name}={text}` must be a whole number"))),
        }
    }

    /// A parameter that is `true` or `false`; false if it is not there.
    #[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq"))]
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, Error> {
        match self.text(name).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(Error::Url(format!("`{name}={other}` must be `true` or `false`"))),
        }
    }

    /// A parameter that is a length of time, as people write it: `30s`, `7d`.
    pub(crate) fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, Error> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match humantime::parse_duration(&text) {
            Ok(duration) if !duration.is_zero() => Ok(Some(duration)),
            _ => Err(Error::Url(format!("`{name}={text}` must be a length of time, such as 30s or 7d"))),
        }
    }

    /// The parameter `timeout_ms`: how long the broker may take to answer.
    pub(crate) fn timeout(&mut self) -> Result<Duration, Error> {
        match self.number("timeout_ms")?.unwrap_or(DEFAULT_TIMEOUT_MS) {
            milliseconds @ 1..=600_000 => Ok(Duration::from_millis(milliseconds)),
            other => Err(Error::Url(format!("`timeout_ms={other}` must be between 1 and 600000"))),
        }
    }

    /// Refuses parameters that nobody took.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let Some(name) = self.parameters.keys().next() else { return Ok(()) };
        let known = self.known.join(", ");
        Err(Error::Url(format!("`{}:` URLs have no parameter `{name}`; they have: {known}", self.scheme())))
    }
}

impl fmt::Debug for SinkUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.url.host_str().unwrap_or_default())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_parameter_is_refused_by_name() {
        let mut url = SinkUrl::parse("redis://h/?maxlen=5&maxlne=6").unwrap();
        assert_eq!(url.number("maxlen").unwrap(), Some(5));
        let error = url.finish().unwrap_err().to_string();
        assert!(error.contains("`maxlne`") && error.contains("maxlen"), "{error}");
    }

    #[test]
    fn no_error_and_no_debug_output_holds_the_password() {
        for text in ["nats://u:hidden@h:99999/", "nats://u:hidden@/", "nats://u:hidden@h/?a=1&a=2", "nats//u:hidden@h"]
        {
            let error = SinkUrl::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hidden"), "{error:?}");
        }
        assert_eq!(format!("{:?}", SinkUrl::parse("nats://u:hidden@h/").unwrap()), "nats://h");
    }

    #[test]
    fn credentials_are_percent_decoded() {
        let url = SinkUrl::parse("nats://us%40er:p%2Fw@h").unwrap();
        assert_eq!(url.credentials().unwrap(), (Some("us@er".to_owned()), Some("p/w".to_owned())));
    }
}
