//! What a route promises about keys.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::MatchedPath;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderName, Method, StatusCode};
use semel::{OnExpiry, Scope, key};

use crate::header::Mode;
use crate::replay;

/// The largest request body that can be configured (I12).
pub const MAX_BODY_LIMIT: usize = 64 * 1024 * 1024;

/// The longest bounded wait that can be configured (I12).
pub const MAX_WAIT: Duration = Duration::from_secs(60);

/// The shortest and the longest lease that can be configured (I12).
pub const LEASE_BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));

/// The longest that leased work can be allowed to run (I12).
pub const MAX_LEASED: Duration = Duration::from_secs(24 * 3600);

/// The longest that a request can wait for its flow (I12).
pub const MAX_ANSWER: Duration = Duration::from_secs(3600);

/// Whether a route's requests need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Requirement {
    /// A request without a key is refused.
    #[default]
    Required,
    /// A request without a key runs unprotected; its handler takes `Option<Tx<S>>`.
    Optional,
    /// Keys are ignored and requests pass through.
    Off,
}

/// What the authorise hook returns: `Err` is answered to the client as it stands.
pub type Authorisation<'a> = Pin<Box<dyn Future<Output = Result<(), Response>> + Send + 'a>>;

type Authorise = Arc<dyn for<'a> Fn(&'a Parts) -> Authorisation<'a> + Send + Sync>;

/// What a route promises about keys: cheap to clone, so that one base policy can be varied per route.
///
/// Setters take any value; [`Policy::check`], which [`crate::IdempotencyLayer::new`] calls, refuses what cannot work.
#[derive(Clone)]
pub struct Policy {
    pub(crate) operation: Option<String>,
    pub(crate) mode: Mode,
    pub(crate) requirement: Requirement,
    pub(crate) methods: Vec<Method>,
    pub(crate) min_key_length: usize,
    pub(crate) wait: Duration,
    pub(crate) body_limit: usize,
    pub(crate) extra_headers: Vec<String>,
    pub(crate) terminal: Vec<StatusCode>,
    pub(crate) leased: Option<Leased>,
    /// How long a request waits for its flow, where keys belong to flows.
    pub(crate) flow: Option<Duration>,
    authorise: Option<Authorise>,
}

/// How leased work is done: the key is held by a lease over several transactions instead of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leased {
    pub(crate) lease_for: Duration,
    pub(crate) on_expiry: OnExpiry,
    pub(crate) limit: Duration,
    pub(crate) holder: String,
}

impl Leased {
    /// Leases for `lease_for`, renewed while the handler runs. Work whose worker is gone is resumed at its recovery
    /// point.
    pub fn new(lease_for: Duration) -> Leased {
        let holder = format!("process {}", std::process::id());
        Leased { lease_for, on_expiry: OnExpiry::Resume, limit: Duration::from_secs(300), holder }
    }

    /// What becomes of work whose worker is gone.
    #[must_use]
    pub fn on_expiry(mut self, on_expiry: OnExpiry) -> Leased {
        self.on_expiry = on_expiry;
        self
    }

    /// How long one handler may run in all, renewals included; five minutes if nothing is said (I12).
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Leased {
        self.limit = limit;
        self
    }

    /// Who holds the leases, for operators to read; the process id if nothing is said.
    #[must_use]
    pub fn holder(mut self, holder: impl Into<String>) -> Leased {
        self.holder = holder.into();
        self
    }
}

/// Why a policy was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The method changes nothing, or is not one that carries keys.
    #[error("{0} requests cannot be protected by a key; leave it out of the policy's methods")]
    Method(Method),
    /// No method is protected.
    #[error("the policy protects no method; name one, or set the requirement to Off")]
    NoMethods,
    /// No key could be long enough.
    #[error("min_key_length is {0} and a key has at most {max} characters", max = key::MAX_CHARACTERS)]
    MinKeyLength(usize),
    /// The wait is too long.
    #[error("the bounded wait is {} ms and may be at most {} ms", .0.as_millis(), MAX_WAIT.as_millis())]
    Wait(Duration),
    /// Leased work is told at once that it is in flight.
    #[error("a leased route cannot have a bounded wait; set wait to zero")]
    WaitOnLease,
    /// A flow under way is told at once, too.
    #[error("a route that runs flows cannot have a bounded wait; set wait to zero")]
    WaitOnFlow,
    /// A key is held by a handler's lease or by a flow's.
    #[error("a route cannot both lease its keys and hand them to flows; keep one")]
    LeasedFlow,
    /// The flow could not answer, or its request could wait for ever.
    #[error("a request must wait for its flow between 1 ms and {} s, not {} ms", MAX_ANSWER.as_secs(), .0.as_millis())]
    AnswerWithin(Duration),
    /// The body limit is too large.
    #[error("the request body limit is {0} bytes and may be at most {MAX_BODY_LIMIT}")]
    BodyLimit(usize),
    /// The header is never stored, whoever asks for it.
    #[error("the header {0:?} is never stored in a reply: it belongs to one client or one connection")]
    Header(String),
    /// Not the name of a header.
    #[error("{0:?} is not the name of an HTTP header")]
    HeaderName(String),
    /// Only a 5xx can be terminal.
    #[error("status {0} cannot be terminal; only 5xx can")]
    Terminal(u16),
    /// The lease is too short or too long.
    #[error(
        "a lease must run between {} ms and {} s, not {} ms",
        LEASE_BOUNDS.0.as_millis(), LEASE_BOUNDS.1.as_secs(), .0.as_millis()
    )]
    Lease(Duration),
    /// Leased work could not run, or could run for ever.
    #[error("the limit on leased work must be between 1 ms and {} s, not {} ms", MAX_LEASED.as_secs(), .0.as_millis())]
    LeaseLimit(Duration),
    /// The operation's name cannot stand in a scope.
    #[error("the operation's name cannot be used: {0}")]
    Operation(String),
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            operation: None,
            mode: Mode::default(),
            requirement: Requirement::default(),
            methods: vec![Method::POST, Method::PATCH],
            min_key_length: 1,
            wait: Duration::ZERO,
            body_limit: 1024 * 1024,
            extra_headers: Vec::new(),
            terminal: Vec::new(),
            leased: None,
            flow: None,
            authorise: None,
        }
    }
}

impl Policy {
    /// The defaults: a key is required on POST and PATCH, lenient spelling, no wait, bodies up to 1 MiB, one
    /// transaction.
    pub fn new() -> Policy {
        Policy::default()
    }

    /// Names the operation that keys belong to, instead of method and matched path. Keep it when a path is renamed, or
    /// retries over the rename would run again.
    #[must_use]
    pub fn operation(mut self, name: impl Into<String>) -> Policy {
        self.operation = Some(name.into());
        self
    }

    /// Which spellings of a key are accepted.
    #[must_use]
    pub fn header_mode(mut self, mode: Mode) -> Policy {
        self.mode = mode;
        self
    }

    /// Whether requests need a key.
    #[must_use]
    pub fn requirement(mut self, requirement: Requirement) -> Policy {
        self.requirement = requirement;
        self
    }

    /// The protected methods. PUT and DELETE are protected only if named here.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Policy {
        self.methods = methods.into_iter().collect();
        self
    }

    /// The fewest characters a key may have. A floor keeps out counters and other keys that collide.
    #[must_use]
    pub fn min_key_length(mut self, characters: usize) -> Policy {
        self.min_key_length = characters;
        self
    }

    /// How long a request waits for a run in flight to end before it is answered 409. Zero answers at once.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Policy {
        self.wait = wait;
        self
    }

    /// The most bytes a request body may have.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Policy {
        self.body_limit = bytes;
        self
    }

    /// Stores and replays one more header of the handler's.
    #[must_use]
    pub fn allow_header(mut self, name: impl Into<String>) -> Policy {
        self.extra_headers.push(name.into().to_ascii_lowercase());
        self
    }

    /// Marks 5xx statuses that will not get better: the effect is rolled back, and retries get the same answer.
    #[must_use]
    pub fn terminal(mut self, statuses: impl IntoIterator<Item = StatusCode>) -> Policy {
        self.terminal = statuses.into_iter().collect();
        self
    }

    /// Holds the key by a lease over several transactions instead of one; the handler takes a
    /// [`crate::LeaseHandle`].
    #[must_use]
    pub fn leased(mut self, leased: Leased) -> Policy {
        self.leased = Some(leased);
        self
    }

    /// Hands the key to a flow: the layer reads and checks it, authorises the request and computes the fingerprint, but
    /// claims nothing. The handler takes a [`crate::FlowAsk`], runs a registered flow with it, and answers with a
    /// [`crate::FlowAnswer`].
    ///
    /// A request waits at most `answer_within` for its flow. After that the client is told that the key is in flight,
    /// and the flow goes on without it; the same request gets the reply later. The flow's reply is stored as the flow
    /// made it, so [`Policy::allow_header`] and [`Policy::terminal`] have no say in it.
    #[must_use]
    pub fn flow(mut self, answer_within: Duration) -> Policy {
        self.flow = Some(answer_within);
        self
    }

    /// Runs `hook` before a protected request is looked at, so that neither a first run nor a replay reaches somebody
    /// who may not have it (I11). Its refusal is answered as it stands and nothing is stored. It sees what the
    /// authentication put into the extensions. Requests that the policy lets pass through do not meet it.
    #[must_use]
    pub fn authorise<F>(mut self, hook: F) -> Policy
    where
        F: for<'a> Fn(&'a Parts) -> Authorisation<'a> + Send + Sync + 'static,
    {
        self.authorise = Some(Arc::new(hook));
        self
    }

    /// Refuses what cannot work.
    pub fn check(&self) -> Result<(), Invalid> {
        let unfit = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::CONNECT];
        if let Some(method) = self.methods.iter().find(|method| unfit.contains(method)) {
            return Err(Invalid::Method(method.clone()));
        }
        if self.methods.is_empty() && self.requirement != Requirement::Off {
            return Err(Invalid::NoMethods);
        }
        if self.min_key_length > key::MAX_CHARACTERS {
            return Err(Invalid::MinKeyLength(self.min_key_length));
        }
        if self.wait > MAX_WAIT {
            return Err(Invalid::Wait(self.wait));
        }
        if self.body_limit > MAX_BODY_LIMIT {
            return Err(Invalid::BodyLimit(self.body_limit));
        }
        for name in &self.extra_headers {
            if HeaderName::from_bytes(name.as_bytes()).is_err() {
                return Err(Invalid::HeaderName(name.clone()));
            }
            if replay::NEVER_STORED.contains(&name.as_str()) {
                return Err(Invalid::Header(name.clone()));
            }
        }
        if let Some(status) = self.terminal.iter().find(|status| !status.is_server_error()) {
            return Err(Invalid::Terminal(status.as_u16()));
        }
        if let Some(operation) = &self.operation {
            Scope::new("tenant", operation).map_err(|invalid| Invalid::Operation(invalid.to_string()))?;
        }
        self.flow.map_or(Ok(()), |answer_within| self.check_flow(answer_within))?;
        self.leased.as_ref().map_or(Ok(()), |leased| self.check_leased(leased))
    }

    fn check_flow(&self, answer_within: Duration) -> Result<(), Invalid> {
        if self.leased.is_some() {
            return Err(Invalid::LeasedFlow);
        }
        if !self.wait.is_zero() {
            return Err(Invalid::WaitOnFlow);
        }
        if answer_within < Duration::from_millis(1) || answer_within > MAX_ANSWER {
            return Err(Invalid::AnswerWithin(answer_within));
        }
        Ok(())
    }

    fn check_leased(&self, leased: &Leased) -> Result<(), Invalid> {
        if !self.wait.is_zero() {
            return Err(Invalid::WaitOnLease);
        }
        if leased.lease_for < LEASE_BOUNDS.0 || leased.lease_for > LEASE_BOUNDS.1 {
            return Err(Invalid::Lease(leased.lease_for));
        }
        if leased.limit < Duration::from_millis(1) || leased.limit > MAX_LEASED {
            return Err(Invalid::LeaseLimit(leased.limit));
        }
        Ok(())
    }

    /// Whether requests with this method are looked at.
    pub(crate) fn protects(&self, method: &Method) -> bool {
        self.requirement != Requirement::Off && self.methods.contains(method)
    }

    /// Whether the reply's header is stored and replayed.
    pub(crate) fn allows(&self, header: &HeaderName) -> bool {
        replay::ALLOWED.contains(&header.as_str()) || self.extra_headers.iter().any(|name| name == header.as_str())
    }

    /// The operation of a request. Where no path was matched, all such requests of a method share one, so that the
    /// operation never takes a value that a client chose.
    pub(crate) fn operation_of(&self, parts: &Parts) -> String {
        match (&self.operation, parts.extensions.get::<MatchedPath>()) {
            (Some(name), _) => name.clone(),
            (None, Some(path)) => format!("{} {}", parts.method, path.as_str()),
            (None, None) => format!("{} *", parts.method),
        }
    }

    pub(crate) async fn authorised(&self, parts: &Parts) -> Result<(), Response> {
        match &self.authorise {
            Some(hook) => hook(parts).await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("operation", &self.operation)
            .field("mode", &self.mode)
            .field("requirement", &self.requirement)
            .field("methods", &self.methods)
            .field("min_key_length", &self.min_key_length)
            .field("wait", &self.wait)
            .field("body_limit", &self.body_limit)
            .field("extra_headers", &self.extra_headers)
            .field("terminal", &self.terminal)
            .field("leased", &self.leased)
            .field("flow", &self.flow)
            .field("authorise", &self.authorise.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_work() {
        assert_eq!(Policy::new().check(), Ok(()));
        assert!(Policy::new().protects(&Method::POST) && Policy::new().protects(&Method::PATCH));
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE] {
            assert!(!Policy::new().protects(&method), "{method}");
        }
        assert!(!Policy::new().requirement(Requirement::Off).protects(&Method::POST));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let second = Duration::from_secs(1);
        let refused = |policy: Policy, invalid: Invalid| assert_eq!(policy.check(), Err(invalid));
        refused(Policy::new().methods([Method::POST, Method::GET]), Invalid::Method(Method::GET));
        refused(Policy::new().methods([]), Invalid::NoMethods);
        refused(Policy::new().min_key_length(256), Invalid::MinKeyLength(256));
        refused(Policy::new().wait(MAX_WAIT + second), Invalid::Wait(MAX_WAIT + second));
        refused(Policy::new().body_limit(MAX_BODY_LIMIT + 1), Invalid::BodyLimit(MAX_BODY_LIMIT + 1));
        refused(Policy::new().allow_header("x y"), Invalid::HeaderName("x y".to_owned()));
        refused(Policy::new().terminal([StatusCode::CONFLICT]), Invalid::Terminal(409));
        refused(Policy::new().leased(Leased::new(second)).wait(second), Invalid::WaitOnLease);
        refused(Policy::new().leased(Leased::new(Duration::ZERO)), Invalid::Lease(Duration::ZERO));
        refused(Policy::new().leased(Leased::new(second).limit(Duration::ZERO)), Invalid::LeaseLimit(Duration::ZERO));
        refused(Policy::new().flow(second).wait(second), Invalid::WaitOnFlow);
        refused(Policy::new().flow(second).leased(Leased::new(second)), Invalid::LeasedFlow);
        refused(Policy::new().flow(Duration::ZERO), Invalid::AnswerWithin(Duration::ZERO));
        refused(Policy::new().flow(MAX_ANSWER + second), Invalid::AnswerWithin(MAX_ANSWER + second));
        assert!(matches!(Policy::new().operation("").check(), Err(Invalid::Operation(_))));
    }

    #[test]
    fn a_header_that_belongs_to_one_client_or_connection_is_never_stored() {
        for name in ["Set-Cookie", "authorization", "WWW-Authenticate", "Connection", "Transfer-Encoding", "Date"] {
            let refused = Policy::new().allow_header(name).check();
            assert_eq!(refused, Err(Invalid::Header(name.to_ascii_lowercase())));
        }
        let policy = Policy::new().allow_header("X-Request-Cost");
        assert_eq!(policy.check(), Ok(()));
        assert!(policy.allows(&HeaderName::from_static("x-request-cost")));
        assert!(!policy.allows(&HeaderName::from_static("x-other")));
    }
}
