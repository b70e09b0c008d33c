//! What a call is given.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Provider;

/// Where the key stands in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carrier {
    /// In a header of this name.
    Header(Arc<str>),
    /// In a member of this name of the body.
    Field(Arc<str>),
}

impl Carrier {
    /// The name of the header or member.
    pub fn name(&self) -> &str {
        match self {
            Carrier::Header(name) | Carrier::Field(name) => name,
        }
    }
}

/// What an attempt, or a look-up, is given: the stored key, where to put it, and how much time there is. Clones share
/// their text.
#[derive(Debug, Clone)]
pub struct Call {
    key: Arc<str>,
    step: Arc<str>,
    carrier: Carrier,
    attempt: u32,
    deadline: Instant,
}

impl Call {
    /// Attempt number `attempt`, counted from one, under this key. Its time begins now.
    pub fn new(provider: &Provider, step: &str, key: &str, attempt: u32) -> Call {
        let (key, step, carrier) = (key.into(), step.into(), provider.carrier.clone());
        Call { key, step, carrier, attempt, deadline: Instant::now() + provider.timeout }
    }

    /// The key to send, the same on every attempt (I8).
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The name of the header that carries the key; where [it stands in the body](Carrier::Field), of the member.
    pub fn header(&self) -> &str {
        self.carrier.name()
    }

    /// Where the key stands in a request.
    pub fn carrier(&self) -> &Carrier {
        &self.carrier
    }

    /// The step that calls.
    pub fn step(&self) -> &str {
        &self.step
    }

    /// Which attempt it is, counted from one.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How much of the timeout is left.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}
