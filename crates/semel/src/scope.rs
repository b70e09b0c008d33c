//! Whose key it is.

use std::fmt;
use std::sync::Arc;

/// The longest tenant or operation name, in bytes. The database checks the same bound (I12).
pub const MAX_PART_BYTES: usize = 255;

/// Whose key it is: a tenant (the authenticated principal) and an operation.
///
/// Two scopes never see, block or replay each other's keys (I11). The tenant must be stable when a token rotates: use
/// the principal's id, never the raw `Authorization` header.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    tenant: Arc<str>,
    operation: Arc<str>,
}

/// Why a scope was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {part} of a scope must be 1 to {MAX_PART_BYTES} bytes without control characters, but {problem}")]
pub struct Invalid {
    part: &'static str,
    problem: String,
}

impl Scope {
    /// Names a scope. Fails if either part is empty, longer than [`MAX_PART_BYTES`], or holds control characters.
    pub fn new(tenant: impl AsRef<str>, operation: impl AsRef<str>) -> Result<Scope, Invalid> {
        Ok(Scope { tenant: checked("tenant", tenant.as_ref())?, operation: checked("operation", operation.as_ref())? })
    }

    /// The authenticated principal that owns the key.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The operation the key belongs to, such as `POST /charges`. It labels metrics, so it must have few values.
    pub fn operation(&self) -> &str {
        &self.operation
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({:?}, {:?})", self.tenant, self.operation)
    }
}

fn checked(part: &'static str, text: &str) -> Result<Arc<str>, Invalid> {
    let problem = if text.is_empty() {
        "it is empty".to_owned()
    } else if text.len() > MAX_PART_BYTES {
        format!("it has {} bytes", text.len())
    } else if text.chars().any(char::is_control) {
        "it has a control character".to_owned()
    } else {
        return Ok(text.into());
    };
    Err(Invalid { part, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_needs_a_tenant_and_an_operation() {
        assert!(Scope::new("", "charge").is_err());
        assert!(Scope::new("a", "").is_err());
        assert!(Scope::new("a", "b\n").is_err());
        assert!(Scope::new("a".repeat(256), "b").is_err());
        assert!(Scope::new("a".repeat(255), "b").is_ok());
    }

    #[test]
    fn moving_a_character_between_the_parts_makes_another_scope() {
        assert_ne!(Scope::new("ab", "c").ok(), Scope::new("a", "bc").ok());
    }
}
