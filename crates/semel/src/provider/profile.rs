//! Providers by their names.
//!
//! Where a provider publishes several numbers, or different ones on different pages, the profile has the lowest.
//! `docs/reference/providers.md` cites each, and says what is not published.

use std::time::Duration;

use super::{Keys, Provider};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// How long PayPal keeps the request ids of the Orders API v2, unless your account manager arranged more.
pub const PAYPAL_ORDERS: Duration = Duration::from_hours(6);

/// How long PayPal keeps the request ids of the Payments API v2: capture, reauthorise, void, refund.
pub const PAYPAL_PAYMENTS: Duration = Duration::from_hours(45 * 24);

/// How long PayPal keeps the request ids of the Payouts API.
pub const PAYPAL_PAYOUTS: Duration = Duration::from_hours(30 * 24);

/// How long PayPal keeps the request ids of payment and setup tokens.
pub const PAYPAL_VAULT: Duration = Duration::from_hours(3);

impl Provider {
    /// Stripe's API v1: 24 hours, and a stored error 500 comes back under its key. What is searched by metadata may be
    /// an hour late.
    pub fn stripe() -> Provider {
        Provider::http("stripe", Keys::Kept(DAY)).replays_failures().settles_after(HOUR)
    }

    /// Stripe's API v2: 30 days, and work that failed is done again under its key.
    pub fn stripe_v2() -> Provider {
        Provider::http("stripe-v2", Keys::Kept(30 * DAY)).settles_after(HOUR)
    }

    /// Adyen: 7 days, for POST requests to one regional endpoint. A key in use is answered 409 or 422 with the error
    /// code 704: read the body, and call that retryable.
    pub fn adyen() -> Provider {
        Provider::http("adyen", Keys::Kept(7 * DAY)).header("idempotency-key")
    }

    /// PayPal's REST APIs. Each has a window of its own: [`PAYPAL_ORDERS`], [`PAYPAL_PAYMENTS`], [`PAYPAL_PAYOUTS`],
    /// [`PAYPAL_VAULT`], or what the API's reference says. What the transaction search finds may be three hours late.
    pub fn paypal(window: Duration) -> Provider {
        Provider::http("paypal", Keys::Kept(window)).header("PayPal-Request-Id").settles_after(3 * HOUR)
    }

    /// Square, with the key in the body. How long it keeps keys is not published, so you have to say what you rely on.
    pub fn square(window: Duration) -> Provider {
        Provider::http("square", Keys::Kept(window)).field("idempotency_key")
    }

    /// Twilio's messages and calls, which take no key: what may have been sent is looked up or held, never sent again.
    /// The header is sent all the same, and nothing reads it.
    pub fn twilio() -> Provider {
        Provider::http("twilio", Keys::None)
    }
}
