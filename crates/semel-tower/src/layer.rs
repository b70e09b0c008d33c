//! The layer.

use std::sync::Arc;

use semel::{Semel, Store};
use tower::Layer;

use crate::policy::{Invalid, Policy};
use crate::service::{IdempotencyService, Shared};

/// Protects routes by their `Idempotency-Key`. Put it on a route or router with `route_layer` or `layer`, inside the
/// authentication (add it *before* the authentication's layer: axum runs the layer added last first).
///
/// After a protected request was answered with a stored reply, effect and reply are durable together (I1), and each
/// retry within retention gets the same reply without running anything (I2, I3). After any other answer nothing was
/// committed, save where a 503 says that the same key tells. A crash at any point leaves either both or neither.
#[derive(Debug)]
pub struct IdempotencyLayer<S> {
    shared: Arc<Shared<S>>,
}

impl<S: Store> IdempotencyLayer<S> {
    /// A layer on this store under this policy. Fails if the policy cannot work.
    pub fn new(semel: Semel<S>, policy: Policy) -> Result<IdempotencyLayer<S>, Invalid> {
        policy.check()?;
        Ok(IdempotencyLayer { shared: Arc::new(Shared { semel, policy }) })
    }

    /// The policy, for [`crate::policy_document`].
    pub fn policy(&self) -> &Policy {
        &self.shared.policy
    }
}

impl<S> Clone for IdempotencyLayer<S> {
    fn clone(&self) -> IdempotencyLayer<S> {
        IdempotencyLayer { shared: Arc::clone(&self.shared) }
    }
}

impl<I, S> Layer<I> for IdempotencyLayer<S> {
    type Service = IdempotencyService<I, S>;

    fn layer(&self, inner: I) -> IdempotencyService<I, S> {
        IdempotencyService::new(inner, Arc::clone(&self.shared))
    }
}
