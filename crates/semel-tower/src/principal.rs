//! Who asks.

use std::fmt;
use std::sync::Arc;

/// The authenticated principal whose keys a request uses. The application's authentication, which stands outside the
/// layer, puts it into the request's extensions.
///
/// It must name the same tenant when a token rotates: the account or tenant id, never the raw `Authorization` header.
/// Two principals never see, block or replay each other's keys (I11).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    /// Names the principal: 1 to 255 bytes without control characters. A request whose principal is something else is
    /// refused before anything runs.
    pub fn new(tenant: impl AsRef<str>) -> Principal {
        Principal(tenant.as_ref().into())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({:?})", self.0)
    }
}
