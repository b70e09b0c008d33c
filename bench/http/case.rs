//! Who answers, and what is asked.

use std::fmt;

/// What stands around the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Nothing: the handler begins and commits its transaction itself.
    Bare,
    /// Semel's layer. The handler does the same in the layer's transaction, and emits so many events.
    Layer { events: u32 },
    /// `axum-idempotent` around the bare handler.
    ///
    /// It looks for an answer under the key in the client's session, and puts the handler's answer there once it has
    /// it. So a process that ends in between, or later, has forgotten a charge that was made; of two requests with one
    /// key that come together, both run; a key that comes with another body gets the first one's answer; and a request
    /// whose session cannot be had runs unprotected.
    AxumIdempotent,
}

/// One who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contestant {
    pub(crate) service: Service,
    /// Whether it is asked for what it has answered before. Otherwise each request has a new key.
    pub(crate) replays: bool,
}

impl Contestant {
    /// Whoever has no keys.
    pub(crate) const BARE: Contestant = Contestant { service: Service::Bare, replays: false };

    /// Whoever keeps answers in memory.
    pub(crate) const AXUM_IDEMPOTENT: Contestant = Contestant { service: Service::AxumIdempotent, replays: false };

    /// Everybody.
    pub(crate) const ALL: [Contestant; 6] = [
        Contestant::BARE,
        Contestant::layer(0),
        Contestant::layer(1),
        Contestant::AXUM_IDEMPOTENT,
        Contestant::layer(0).replaying(),
        Contestant::AXUM_IDEMPOTENT.replaying(),
    ];

    /// Semel's layer, with so many events.
    pub(crate) const fn layer(events: u32) -> Contestant {
        Contestant { service: Service::Layer { events }, replays: false }
    }

    /// The same, asked for what it has answered before.
    pub(crate) const fn replaying(self) -> Contestant {
        Contestant { service: self.service, replays: true }
    }

    /// How many keys and events one charge leaves in the database.
    pub(crate) fn leaves(self) -> (u64, u64) {
        match self.service {
            Service::Bare | Service::AxumIdempotent => (0, 0),
            Service::Layer { events } => (1, events.into()),
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.service, self.replays) {
            (Service::Bare, _) => f.write_str("bare"),
            (Service::Layer { .. }, true) => f.write_str("layer, replay"),
            (Service::Layer { events: 0 }, false) => f.write_str("layer, no event"),
            (Service::Layer { events: 1 }, false) => f.write_str("layer, one event"),
            (Service::Layer { events }, false) => write!(f, "layer, {events} events"),
            (Service::AxumIdempotent, false) => f.write_str("axum-idempotent"),
            (Service::AxumIdempotent, true) => f.write_str("axum-idempotent, replay"),
        }
    }
}
