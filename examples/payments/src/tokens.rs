//! Who is asking: bearer tokens and the tenants they stand for.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use semel::Scope;
use semel_tower::{Principal, Problem};
use sha2::{Digest, Sha256};

use crate::code;
use crate::problem::problem;

/// The published tokens of the sandbox, and their tenants.
pub const DEMO: [(&str, &str); 3] = [("demo-a1", "a"), ("demo-a2", "a"), ("demo-b1", "b")];

/// The longest token, in bytes.
pub const MAX_TOKEN_BYTES: usize = 512;

/// Which bearer token stands for which tenant.
///
/// Several tokens may stand for one tenant. Keys belong to the tenant, so a client that rotates its token still gets
/// the replay of what it did before, and a revoked token gets 401 and never a replay (I11).
#[derive(Clone)]
pub struct Tokens {
    /// Looked up by digest: how long the lookup takes says nothing useful about the token.
    tenants: Arc<HashMap<[u8; 32], Arc<str>>>,
    demo: bool,
}

/// Why tokens were refused. No message repeats a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// There are none.
    #[error("no token is set, so nobody could use the service; set at least one")]
    Empty,
    /// A token is empty, too long, or has characters that a header cannot carry.
    #[error("the token for tenant {0:?} must be 1 to {MAX_TOKEN_BYTES} visible ASCII characters")]
    Token(String),
    /// The same token is set twice for different tenants.
    #[error("one token is set for two tenants, {0:?} and {1:?}; give each tenant its own")]
    Shared(String, String),
    /// The tenant's name cannot be used.
    #[error("the tenant {0:?} cannot be used: {1}")]
    Tenant(String, semel::scope::Invalid),
}

impl Tokens {
    /// Takes pairs of token and tenant.
    pub fn new<T, N>(pairs: impl IntoIterator<Item = (T, N)>) -> Result<Tokens, Invalid>
    where
        T: AsRef<str>,
        N: AsRef<str>,
    {
        let mut tenants: HashMap<[u8; 32], Arc<str>> = HashMap::new();
        let mut demo = false;
        for (token, tenant) in pairs {
            let (token, tenant) = (token.as_ref(), tenant.as_ref());
            if let Err(error) = Scope::new(tenant, "any") {
                return Err(Invalid::Tenant(tenant.to_owned(), error));
            }
            if !(1..=MAX_TOKEN_BYTES).contains(&token.len()) || !token.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(Invalid::Token(tenant.to_owned()));
            }
            demo |= DEMO.iter().any(|(known, _)| *known == token);
            if let Some(other) = tenants.insert(digest(token), tenant.into())
                && *other != *tenant
            {
                return Err(Invalid::Shared(other.to_string(), tenant.to_owned()));
            }
        }
        if tenants.is_empty() { Err(Invalid::Empty) } else { Ok(Tokens { tenants: Arc::new(tenants), demo }) }
    }

    /// The published tokens of [`DEMO`], for trying the service on loopback.
    pub fn demo() -> Tokens {
        let tenants = DEMO.iter().map(|(token, tenant)| (digest(token), Arc::from(*tenant))).collect();
        Tokens { tenants: Arc::new(tenants), demo: true }
    }

    /// Whether one of the published tokens is accepted. Such a service must not listen off loopback.
    pub fn is_demo(&self) -> bool {
        self.demo
    }

    fn tenant(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        let mut values = headers.get_all(header::AUTHORIZATION).into_iter();
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        let token = token.trim_start_matches(' ');
        if !scheme.eq_ignore_ascii_case("bearer") || token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        self.tenants.get(&digest(token)).cloned()
    }
}

impl Default for Tokens {
    fn default() -> Tokens {
        Tokens::demo()
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("count", &self.tenants.len()).field("demo", &self.demo).finish_non_exhaustive()
    }
}

/// The tenant that the request's token stands for.
#[derive(Debug, Clone)]
pub(crate) struct Tenant(Arc<str>);

impl std::ops::Deref for Tenant {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<T: Send + Sync> FromRequestParts<T> for Tenant {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &T) -> Result<Tenant, Problem> {
        parts.extensions.get::<Tenant>().cloned().ok_or_else(|| {
            tracing::error!("a route that needs a tenant stands outside the authentication");
            problem(&semel_tower::code::INTERNAL_ERROR, "The service is set up wrongly.")
        })
    }
}

/// Lets requests with a known token pass, as its tenant; all others get 401 before anything is read or claimed.
pub(crate) async fn authenticate(State(tokens): State<Tokens>, mut request: Request, next: Next) -> Response {
    let Some(tenant) = tokens.tenant(request.headers()) else {
        let detail = "Send `Authorization: Bearer <token>` with a token that this service knows.";
        let refused = problem(&code::UNAUTHORIZED, detail);
        return ([(header::WWW_AUTHENTICATE, "Bearer")], refused).into_response();
    };
    request.extensions_mut().insert(Principal::new(&*tenant));
    request.extensions_mut().insert(Tenant(tenant));
    next.run(request).await
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn ask(tokens: &Tokens, authorization: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, authorization.parse().unwrap());
        tokens.tenant(&headers).map(|tenant| tenant.to_string())
    }

    #[test]
    fn two_tokens_of_one_tenant_are_the_same_principal() {
        let tokens = Tokens::demo();
        assert_eq!(ask(&tokens, "Bearer demo-a1").as_deref(), Some("a"));
        assert_eq!(ask(&tokens, "bearer demo-a2").as_deref(), Some("a"));
        assert_eq!(ask(&tokens, "Bearer demo-b1").as_deref(), Some("b"));
    }

    #[test]
    fn what_is_not_a_known_bearer_token_is_nobody() {
        let tokens = Tokens::demo();
        for other in ["demo-a1", "Basic demo-a1", "Bearer", "Bearer demo-a", "Bearer demo-a1 x", ""] {
            assert_eq!(ask(&tokens, other), None, "{other:?}");
        }
        let mut twice = HeaderMap::new();
        twice.append(header::AUTHORIZATION, "Bearer demo-a1".parse().unwrap());
        twice.append(header::AUTHORIZATION, "Bearer demo-b1".parse().unwrap());
        assert_eq!(tokens.tenant(&twice), None);
    }

    #[test]
    fn a_published_token_among_others_still_makes_it_a_demo() {
        assert!(Tokens::demo().is_demo());
        assert!(Tokens::new([("secret", "a"), ("demo-b1", "b")]).unwrap().is_demo());
        assert!(!Tokens::new([("secret", "a")]).unwrap().is_demo());
    }

    #[test]
    fn tokens_that_cannot_work_are_refused_without_being_shown() {
        assert_eq!(Tokens::new(Vec::<(&str, &str)>::new()).unwrap_err(), Invalid::Empty);
        assert!(matches!(Tokens::new([("a b", "t")]), Err(Invalid::Token(_))));
        assert!(matches!(Tokens::new([("", "t")]), Err(Invalid::Token(_))));
        assert!(matches!(Tokens::new([("x", "")]), Err(Invalid::Tenant(..))));
        let shared = Tokens::new([("hidden", "t"), ("hidden", "u")]).unwrap_err().to_string();
        assert!(!shared.contains("hidden"));
        assert!(!format!("{:?}", Tokens::new([("hidden", "t")]).unwrap()).contains("hidden"));
    }
}
