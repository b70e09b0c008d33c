//! Profiles, their bounds, and how they read a status and look a result up.

use std::time::Duration;

use super::*;
use crate::retention::MAX_RETENTION;

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

fn psp() -> Provider {
    Provider::http("psp", Keys::Kept(DAY))
}

#[test]
fn the_profiles_are_as_published() {
    let header = |name: &str| Carrier::Header(name.into());
    let cases = [
        (Provider::stripe(), "stripe", header("Idempotency-Key"), Keys::Kept(DAY), true),
        (Provider::stripe_v2(), "stripe-v2", header("Idempotency-Key"), Keys::Kept(30 * DAY), false),
        (Provider::adyen(), "adyen", header("idempotency-key"), Keys::Kept(7 * DAY), false),
        (Provider::paypal(PAYPAL_ORDERS), "paypal", header("PayPal-Request-Id"), Keys::Kept(6 * HOUR), false),
        (Provider::paypal(PAYPAL_PAYMENTS), "paypal", header("PayPal-Request-Id"), Keys::Kept(45 * DAY), false),
        (Provider::paypal(PAYPAL_PAYOUTS), "paypal", header("PayPal-Request-Id"), Keys::Kept(30 * DAY), false),
        (Provider::paypal(PAYPAL_VAULT), "paypal", header("PayPal-Request-Id"), Keys::Kept(3 * HOUR), false),
        (Provider::square(DAY), "square", Carrier::Field("idempotency_key".into()), Keys::Kept(DAY), false),
        (Provider::twilio(), "twilio", header("Idempotency-Key"), Keys::None, false),
    ];
    for (provider, name, carrier, keys, replays_failures) in cases {
        assert_eq!(provider.check(), Ok(()));
        assert_eq!((provider.name.as_str(), &provider.carrier, provider.keys), (name, &carrier, keys));
        assert_eq!(provider.replays_failures, replays_failures, "{name}");
        assert_eq!((provider.absent, provider.looks_up()), (Absent::Hold, false), "{name}");
    }
}

#[test]
fn a_margin_is_kept_before_the_window_ends() {
    for (window, margin) in [(HOUR, Duration::from_mins(5)), (DAY, Duration::from_mins(72)), (20 * DAY, DAY)] {
        let (keys, timeout, moment) = (Keys::Kept(window), Duration::from_secs(30), Duration::from_millis(1));
        assert_eq!(keys.margin(), margin);
        assert!(keys.recognise(window - margin - timeout - moment, timeout));
        assert!(!keys.recognise(window - margin - timeout, timeout));
        assert!(!keys.recognise(Duration::MAX, timeout));
    }
    assert!(!Keys::Kept(Duration::from_mins(5)).recognise(Duration::ZERO, Duration::from_secs(1)));
    assert!(!Keys::None.recognise(Duration::ZERO, Duration::ZERO));
    assert!(Keys::Forever.recognise(Duration::MAX, Duration::MAX));
}

#[test]
fn a_status_says_what_an_attempt_came_to() {
    let repeating = psp().replays_failures();
    for status in 100..=600 {
        let expected = match status {
            200..=299 => None,
            402 => Some(Fault::Terminal),
            408 | 409 | 425 | 429 => Some(Fault::Retryable),
            400..=499 => Some(Fault::Refused),
            _ => Some(Fault::Unknown),
        };
        assert_eq!(psp().fault(status), expected, "{status}");
        let expected = if status == 500 { Some(Fault::UnknownForGood) } else { expected };
        assert_eq!(repeating.fault(status), expected, "{status}");
    }
}

#[test]
fn flows_kept_for_less_than_the_providers_window_are_refused() {
    let refused = psp().outlived_by(DAY - Duration::from_secs(1)).unwrap_err().to_string();
    assert!(refused.contains("kept for 86399 s") && refused.contains("psp recognises keys for 86400 s"), "{refused}");
    assert_eq!(psp().outlived_by(DAY), Ok(()));
    for keys in [Keys::None, Keys::Forever] {
        assert_eq!(Provider::http("psp", keys).outlived_by(HOUR), Ok(()));
    }
}

#[test]
fn a_profile_out_of_bounds_is_refused_by_name() {
    let retry = |attempts, least, most| psp().retry(Retry { attempts, least, most });
    let (second, zero) = (Duration::from_secs(1), Duration::ZERO);
    let cases = [
        (psp().named(""), "the name of a provider"),
        (psp().named("p".repeat(101)), "the name of a provider"),
        (psp().header("a b"), "the carrier of a provider"),
        (psp().field(""), "the carrier of a provider"),
        (Provider::http("psp", Keys::Kept(zero)), "the window of the provider psp"),
        (Provider::http("psp", Keys::Kept(MAX_RETENTION + second)), "the window of the provider psp"),
        (psp().timeout(zero), "the timeout of the provider psp"),
        (psp().timeout(MAX_TIMEOUT + second), "the timeout of the provider psp"),
        (psp().settles_after(MAX_RETENTION + second), "the settling time of the provider psp"),
        (retry(0, second, second), "attempts of the provider psp must be 1 to 100"),
        (retry(MAX_ATTEMPTS + 1, second, second), "attempts of the provider psp"),
        (retry(1, zero, second), "the least pause of the provider psp"),
        (retry(1, 2 * second, second), "the least pause of the provider psp"),
        (retry(1, second, DAY + second), "the longest pause of the provider psp"),
    ];
    for (provider, expected) in cases {
        let refused = provider.check().unwrap_err().to_string();
        assert!(refused.starts_with(expected), "{refused}");
    }
    assert_eq!(retry(MAX_ATTEMPTS, second, DAY).timeout(MAX_TIMEOUT).check(), Ok(()));
    assert_eq!(Provider::http("psp", Keys::Kept(MAX_RETENTION)).check(), Ok(()));
}

#[test]
fn pauses_double_up_to_the_longest() {
    let retry = Retry::default();
    for (failures, milliseconds) in [(0, 0), (1, 200), (2, 400), (9, 51_200), (12, 300_000), (u32::MAX, 300_000)] {
        assert_eq!(retry.pause(failures), Duration::from_millis(milliseconds), "after {failures}");
    }
    assert_eq!((1..retry.attempts).map(|failures| retry.pause(failures)).sum::<Duration>().as_secs(), 102);
}

#[test]
fn a_call_knows_its_key_its_place_and_its_time() {
    let call = Call::new(&Provider::square(DAY), "charge", "k", 3);
    assert_eq!((call.key(), call.step(), call.attempt()), ("k", "charge", 3));
    assert_eq!((call.header(), call.carrier()), ("idempotency_key", &Carrier::Field("idempotency_key".into())));
    assert!(call.left() <= Duration::from_secs(30) && call.left() > Duration::from_secs(1));
    assert_eq!(Call::new(&psp().timeout(Duration::ZERO), "charge", "k", 1).left(), Duration::ZERO);
}

#[tokio::test]
async fn a_look_up_is_given_the_key_of_the_call() {
    let found = |call: Call| async move { Ok(Found::Done(serde_json::json!({ "id": call.key() }))) };
    let provider = psp().look_up(found);
    assert!(provider.looks_up());
    let found = provider.ask(Call::new(&provider, "charge", "k", 1)).await.unwrap();
    assert_eq!(found, Found::Done(serde_json::json!({ "id": "k" })));
}

#[tokio::test]
async fn a_look_up_that_fails_hangs_or_is_missing_learns_nothing() {
    let failing = psp().look_up(|_| async { Err("no route".into()) });
    let hanging = psp().timeout(Duration::from_millis(5)).look_up(|_| std::future::pending());
    for (provider, expected) in [(failing, "no route"), (hanging, "took longer than 5ms"), (psp(), "has no look-up")] {
        let error = provider.ask(Call::new(&provider, "charge", "k", 1)).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
