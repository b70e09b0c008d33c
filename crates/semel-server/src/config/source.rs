//! Where messages come from, and how to name it without its secrets.

use std::fmt;
use std::net::SocketAddr;

use anyhow::Result;

use super::SinkUrl;

/// The URL of a source. Shown as a sink's is: scheme, host and port, because the rest may hold passwords and secrets.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SourceUrl(SinkUrl);

impl SourceUrl {
    /// Takes a URL. What it names is looked at when it is opened.
    pub(crate) fn parse(text: &str) -> Result<SourceUrl> {
        SinkUrl::parse(text).map(SourceUrl)
    }

    /// The URL with all its secrets, for whoever opens it.
    pub(crate) fn with_secrets(&self) -> &str {
        self.0.with_secrets()
    }

    /// The same URL at an address: a source that listens where there was room goes on listening there.
    pub(crate) fn at(&self, address: SocketAddr) -> Result<SourceUrl> {
        let (scheme, rest) = self.with_secrets().split_once("://").unwrap_or_default();
        let path = rest.find(['/', '?', '#']).map_or("", |start| &rest[start..]);
        SourceUrl::parse(&format!("{scheme}://{address}{path}"))
    }
}

impl fmt::Display for SourceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for SourceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_listens_stays_where_it_is() {
        let address = "127.0.0.1:4711".parse().unwrap();
        for (url, moved) in [
            ("http://127.0.0.1:0/hooks?secret=hunter2", "http://127.0.0.1:4711/hooks?secret=hunter2"),
            ("http://127.0.0.1:0?secret=hunter2", "http://127.0.0.1:4711?secret=hunter2"),
            ("http://127.0.0.1:0", "http://127.0.0.1:4711"),
        ] {
            let moved_to = SourceUrl::parse(url).unwrap().at(address).unwrap();
            assert_eq!(moved_to.with_secrets(), moved);
            assert_eq!(format!("{moved_to} {moved_to:?}"), "http://127.0.0.1:4711 http://127.0.0.1:4711");
        }
    }
}
