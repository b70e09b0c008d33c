//! The receiver as a URL names it.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use super::Error;

/// One receiver. Credentials have left the URL for the header they belong in.
pub(super) struct Target {
    pub(super) uri: Uri,
    pub(super) host: Host<String>,
    pub(super) port: u16,
    pub(super) tls: bool,
    pub(super) authorization: Option<HeaderValue>,
}

impl Target {
    /// Reads a URL as browsers do: a host of digits in any base, full-width dots or percent-encoding becomes the
    /// address it means, and only what follows the last `@` is the host.
    pub(super) fn parse(url: &str) -> Result<Target, Error> {
        let mut url = parsed(url)?;
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(Error::Url("its scheme is neither http nor https")),
        };
        let host = url.host().ok_or(Error::Url("it names no host"))?.to_owned();
        let port = url.port_or_known_default().ok_or(Error::Url("it names no port"))?;
        let authorization = authorization(&url)?;
        let unusable = |()| Error::Url("its credentials cannot be taken out");
        url.set_username("").map_err(unusable)?;
        url.set_password(None).map_err(unusable)?;
        url.set_fragment(None);
        let uri = url.as_str().parse().map_err(|_| Error::Url("it is not usable as a request's target"))?;
        Ok(Target { uri, host, port, tls, authorization })
    }

    /// The address, where the URL names one instead of a name.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self.host {
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
            Host::Domain(_) => None,
        }
    }

    /// Scheme, host and port: what may be shown. A path or query often holds a token.
    pub(super) fn origin(&self) -> String {
        format!("{}://{}:{}", if self.tls { "https" } else { "http" }, self.host, self.port)
    }
}

/// A URL, in parts.
pub(super) fn parsed(url: &str) -> Result<Url, Error> {
    // The parser's message could repeat a part of the URL, and any part may be a secret.
    Url::parse(url).map_err(|_| Error::Url("it cannot be read"))
}

fn authorization(url: &Url) -> Result<Option<HeaderValue>, Error> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let user: Vec<u8> = percent_decode_str(url.username()).collect();
    if user.contains(&b':') {
        return Err(Error::Url("a user name cannot hold a colon"));
    }
    let password: Vec<u8> = percent_decode_str(url.password().unwrap_or_default()).collect();
    let credentials = STANDARD.encode([user.as_slice(), b":", &password].concat());
    let mut value = HeaderValue::from_str(&format!("Basic {credentials}"))
        .map_err(|_| Error::Url("its credentials are not usable"))?;
    value.set_sensitive(true);
    Ok(Some(value))
}
