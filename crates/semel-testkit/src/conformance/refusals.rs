//! Which replies are stored, what becomes of their effects, and how they rest.

use std::time::Duration;

use semel::once::{Error as OnceError, Settings};
use semel::operator::KeyState;
use semel::{Error, Key, Keyring, Outcome, Reply, SealingKey, Semel, Store};

use super::harness::{Harness, Lab, reply};

/// The refusal is remembered, what was done before it is not.
pub async fn a_4xx_after_execution_began_is_stored_without_its_effect<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    assert_eq!(lab.charge(&key, 402).await.unwrap(), Outcome::Fresh(reply(402, &key)));
    assert_eq!(lab.effects(&key).await, 0);
    assert_eq!(lab.charge(&key, 201).await.unwrap(), Outcome::Replayed(reply(402, &key)));
}

/// A refusal takes the place of what has expired.
pub async fn a_4xx_of_an_expired_key_is_stored_in_its_place<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    lab.charge(&key, 201).await.unwrap();
    lab.harness.age(Duration::from_secs(25 * 60 * 60)).await;
    assert_eq!(lab.charge(&key, 402).await.unwrap(), Outcome::Fresh(reply(402, &key)));
    assert_eq!(lab.effects(&key).await, 1);
    assert_eq!(lab.charge(&key, 201).await.unwrap(), Outcome::Replayed(reply(402, &key)));
}

/// A request that was refused before it did anything may be mended and sent again.
pub async fn a_4xx_before_execution_began_is_not_stored<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let refusal = reply(422, &key);
    let refused =
        lab.semel.once(&lab.scope, &key, &lab.fingerprint, async move |_tx| Ok::<Reply, Error>(refusal.clone()));
    assert_eq!(refused.await.unwrap(), Outcome::Forgotten(reply(422, &key)));
    assert!(matches!(lab.charge(&key, 201).await.unwrap(), Outcome::Fresh(_)));
}

/// The handler may say that its 4xx has an effect.
pub async fn a_kept_4xx_is_stored_with_its_effect<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let kept = lab.answer_with(&lab.semel, &key, reply(402, &key).keep()).await.unwrap();
    assert!(matches!(kept, Outcome::Fresh(_)));
    assert_eq!(lab.effects(&key).await, 1);
    assert_eq!(lab.charge(&key, 201).await.unwrap(), Outcome::Replayed(reply(402, &key)));
}

/// Statuses that ask the client to come back are not the end of the key.
pub async fn a_409_or_429_is_not_stored<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for status in [408, 409, 425, 429] {
        let key = Key::random();
        assert!(matches!(lab.charge(&key, status).await.unwrap(), Outcome::Forgotten(_)));
        assert_eq!(lab.effects(&key).await, 0);
        assert!(matches!(lab.charge(&key, 201).await.unwrap(), Outcome::Fresh(_)));
    }
}

/// A failure may get better.
pub async fn a_5xx_is_not_stored<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    assert!(matches!(lab.charge(&key, 500).await.unwrap(), Outcome::Forgotten(_)));
    assert_eq!(lab.effects(&key).await, 0);
    assert!(matches!(lab.charge(&key, 201).await.unwrap(), Outcome::Fresh(_)));
}

/// Unless the handler knows that it will not.
pub async fn a_terminal_5xx_is_stored_as_failed_without_its_effect<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    lab.answer_with(&lab.semel, &key, reply(500, &key).terminal()).await.unwrap();
    assert_eq!(lab.effects(&key).await, 0);
    assert_eq!(lab.charge(&key, 201).await.unwrap(), Outcome::Replayed(reply(500, &key)));
    let record = lab.semel.store().show_key(&lab.scope, &key).await.unwrap().unwrap();
    assert_eq!(record.state, KeyState::Failed);
}

/// An effect whose reply cannot be replayed never commits.
pub async fn a_reply_over_the_limit_commits_nothing<H: Harness>() {
    let settings = Settings { reply_limit: 100, ..Settings::default() };
    let (lab, key) = (Lab::<H>::open_with(settings).await, Key::random());
    let large = Reply::new(201, vec![b'x'; 101]).unwrap();
    let refused = lab.answer_with(&lab.semel, &key, large).await;
    assert!(matches!(refused, Err(OnceError::Store(Error::ReplyTooLarge { bytes: 101, limit: 100 }))));
    assert_eq!(lab.effects(&key).await, 0);
    let small = Reply::new(201, vec![b'x'; 100]).unwrap();
    assert!(matches!(lab.answer_with(&lab.semel, &key, small).await.unwrap(), Outcome::Fresh(_)));
}

/// What lies in the database does not tell what was answered.
pub async fn a_sealed_reply_is_unreadable_at_rest_and_replays<H: Harness>() {
    let (lab, key) = (Lab::<H>::open_with(sealed(&[("one", 1)])).await, Key::random());
    lab.charge(&key, 201).await.unwrap();
    let raw = lab.harness.raw_body(&key).await;
    let secret = key.as_str().as_bytes();
    assert!(!raw.windows(secret.len()).any(|window| window == secret), "the body lies open");
    assert_eq!(lab.charge(&key, 201).await.unwrap(), Outcome::Replayed(reply(201, &key)));
    let reopened = Semel::with_settings(lab.harness.store().clone(), sealed(&[("one", 1)])).await;
    assert!(reopened.is_ok(), "the same keyring may start again");
    // The control: without a keyring it does lie open.
    let (open_lab, open_key) = (Lab::<H>::open().await, Key::random());
    open_lab.charge(&open_key, 201).await.unwrap();
    let raw = open_lab.harness.raw_body(&open_key).await;
    let visible = open_key.as_str().as_bytes();
    assert!(raw.windows(visible.len()).any(|window| window == visible));
}

/// Old replies stay readable under a new key, and the old key cannot go before them.
pub async fn sealing_keys_rotate_and_cannot_retire_while_rows_need_them<H: Harness>() {
    let (lab, old_key, new_key) = (Lab::<H>::open_with(sealed(&[("one", 1)])).await, Key::random(), Key::random());
    lab.charge(&old_key, 201).await.unwrap();
    let store = lab.harness.store().clone();

    let rotated = Semel::with_settings(store.clone(), sealed(&[("two", 2), ("one", 1)])).await.unwrap();
    assert_eq!(lab.charge_with(&rotated, &old_key, 201).await.unwrap(), Outcome::Replayed(reply(201, &old_key)));
    lab.charge_with(&rotated, &new_key, 201).await.unwrap();
    let record = store.show_key(&lab.scope, &new_key).await.unwrap().unwrap();
    assert_eq!(record.sealed_by.as_deref(), Some("two"));

    for settings in [sealed(&[("two", 2)]), Settings::default()] {
        let refused = Semel::with_settings(store.clone(), settings).await;
        let message = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains("\"one\"") || message.contains("\"two\""), "{message}");
    }
    lab.harness.age(Duration::from_secs(25 * 60 * 60)).await;
    Semel::with_settings(store, sealed(&[("three", 3)])).await.expect("nothing needs the old keys any more");
}

fn sealed(keys: &[(&str, u8)]) -> Settings {
    let keys = keys.iter().map(|(id, byte)| SealingKey::new(*id, [*byte; 32]).unwrap());
    Settings { keyring: Some(Keyring::new(keys).unwrap()), ..Settings::default() }
}
