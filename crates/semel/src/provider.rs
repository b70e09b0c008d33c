//! Somebody else's API: how it treats keys, and how to ask it what happened.
//!
//! A [`Provider`] is a profile, plain data and one hook. [`intent::next`](crate::intent::next) decides by it what to do
//! when a call brought no certain answer. There are profiles for Stripe, Adyen, PayPal, Square and Twilio, and
//! [`Provider::http`] for everybody else; `docs/reference/providers.md` says where their numbers come from.

mod call;
mod check;
mod keys;
mod look_up;
mod profile;
mod retry;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use call::{Call, Carrier};
pub use check::{Invalid, MAX_NAME_CHARACTERS, MAX_TIMEOUT};
pub use keys::{Absent, Keys};
pub use look_up::Found;
pub use profile::{PAYPAL_ORDERS, PAYPAL_PAYMENTS, PAYPAL_PAYOUTS, PAYPAL_VAULT};
pub use retry::{MAX_ATTEMPTS, Retry};

use crate::error::Source;
use crate::intent::Fault;
use look_up::Hook;

/// How a provider treats keys, how long calls may take, how they are retried, and how their results are looked up.
#[derive(Clone)]
pub struct Provider {
    /// What journals, operators and metrics call it. Profiles that differ need names that differ.
    pub name: String,
    /// How long the provider recognises a key.
    pub keys: Keys,
    /// Where the key stands in a request.
    pub carrier: Carrier,
    /// How long a call, or a look-up, may take. A call that takes longer is *unknown*.
    pub timeout: Duration,
    /// How often, and how far apart, calls and look-ups are tried.
    pub retry: Retry,
    /// How long after a call was received at the latest its result can be looked up.
    pub settles_after: Duration,
    /// Whether the provider stores an error 500 under the key and repeats it, so that asking again teaches nothing.
    pub replays_failures: bool,
    /// What it allows if a look-up finds nothing.
    pub absent: Absent,
    look_up: Option<Hook>,
}

impl Provider {
    /// A provider that takes keys in the header `Idempotency-Key` and keeps them for as long as you say. Calls take 30
    /// seconds at most and are tried ten times; where there is a look-up, results can be found after five minutes, and
    /// if nothing is found, a person decides.
    pub fn http(name: impl Into<String>, keys: Keys) -> Provider {
        Provider {
            name: name.into(),
            keys,
            carrier: Carrier::Header("Idempotency-Key".into()),
            timeout: Duration::from_secs(30),
            retry: Retry::default(),
            settles_after: Duration::from_mins(5),
            replays_failures: false,
            absent: Absent::Hold,
            look_up: None,
        }
    }

    /// Gives it another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Provider {
        self.name = name.into();
        self
    }

    /// The key stands in this header.
    #[must_use]
    pub fn header(mut self, name: &str) -> Provider {
        self.carrier = Carrier::Header(name.into());
        self
    }

    /// The key stands in this member of the body.
    #[must_use]
    pub fn field(mut self, name: &str) -> Provider {
        self.carrier = Carrier::Field(name.into());
        self
    }

    /// Sets how long a call, or a look-up, may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Provider {
        self.timeout = timeout;
        self
    }

    /// Sets how calls and look-ups are tried again.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Provider {
        self.retry = retry;
        self
    }

    /// Sets how long after a call was received at the latest its result can be looked up.
    #[must_use]
    pub fn settles_after(mut self, settles_after: Duration) -> Provider {
        self.settles_after = settles_after;
        self
    }

    /// Says that the provider repeats a stored error 500.
    #[must_use]
    pub fn replays_failures(mut self) -> Provider {
        self.replays_failures = true;
        self
    }

    /// Takes a settled *nothing found* for the proof that it did not happen, and sends again. Right only if a call that
    /// was received can always be found after [`settles_after`](Provider::settles_after).
    #[must_use]
    pub fn resend_when_absent(mut self) -> Provider {
        self.absent = Absent::Resend;
        self
    }

    /// Sets how a result is looked up by the key of its call. Where the provider has no query by key, send the key
    /// along as a reference or in metadata, and look for that.
    ///
    /// The hook must change nothing at the provider. Any error of it, and its taking longer than the timeout, means
    /// that the look-up did not work; it never means that nothing was found.
    ///
    /// ```
    /// use semel::provider::{Found, Provider};
    ///
    /// # #[derive(Clone)]
    /// # struct Stripe;
    /// # impl Stripe {
    /// #     async fn charge_with(&self, _: &str, _: &str) -> std::io::Result<Option<serde_json::Value>> { Ok(None) }
    /// # }
    /// # let stripe = Stripe;
    /// // Each charge is made with the derived key in its metadata, too.
    /// let charges = Provider::stripe().named("stripe-charges").look_up(move |call| {
    ///     let stripe = stripe.clone();
    ///     async move {
    ///         let charge = stripe.charge_with("metadata['intent']", call.key()).await?;
    ///         Ok(charge.map_or(Found::Absent, Found::Done))
    ///     }
    /// });
    /// assert!(charges.looks_up());
    /// ```
    #[must_use]
    pub fn look_up<F, Fut>(mut self, look_up: F) -> Provider
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Found, Source>> + Send + 'static,
    {
        self.look_up = Some(Arc::new(move |call| Box::pin(look_up(call))));
        self
    }

    /// Whether results can be looked up.
    pub fn looks_up(&self) -> bool {
        self.look_up.is_some()
    }

    /// Looks a result up. An error says that nothing was learnt: the hook failed, took longer than the timeout, or
    /// there is none.
    pub async fn ask(&self, call: Call) -> Result<Found, Source> {
        let hook = self.look_up.as_ref().ok_or_else(|| format!("the provider {} has no look-up", self.name))?;
        match tokio::time::timeout(self.timeout, hook(call)).await {
            Ok(found) => found,
            Err(_) => Err(format!("the look-up at {} took longer than {:?}", self.name, self.timeout).into()),
        }
    }

    /// Reads an HTTP status: what the attempt came to, or `None` for a success.
    ///
    /// | status | fault |
    /// |---|---|
    /// | 2xx | none |
    /// | 402 | terminal |
    /// | 408, 409, 425, 429 | retryable |
    /// | other 4xx | refused |
    /// | 500 | unknown, or for good where the profile says that errors are [repeated](Provider::replays_failures) |
    /// | all else | unknown |
    ///
    /// A status is coarse. Where the body says more, as with a declined card under 400 or 422, or with a key in use
    /// under 422, classify by that: *terminal* if it is the answer to the intent, *retryable* if it is not.
    pub fn fault(&self, status: u16) -> Option<Fault> {
        match status {
            200..=299 => None,
            402 => Some(Fault::Terminal),
            408 | 409 | 425 | 429 => Some(Fault::Retryable),
            400..=499 => Some(Fault::Refused),
            500 if self.replays_failures => Some(Fault::UnknownForGood),
            _ => Some(Fault::Unknown),
        }
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.name)
            .field("keys", &self.keys)
            .field("carrier", &self.carrier)
            .field("timeout", &self.timeout)
            .field("retry", &self.retry)
            .field("settles_after", &self.settles_after)
            .field("replays_failures", &self.replays_failures)
            .field("absent", &self.absent)
            .field("looks_up", &self.looks_up())
            .finish()
    }
}
