//! Signatures, verified by other implementations than the ones that made them.

use axum::body::Bytes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{hmac, signature};
use semel::{Event, SystemClock};
use semel_brokers::http::{HttpSink, Options, Secret};

use crate::receiver::{Receiver, Seen, outgoing, publish_one};

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const PRIVATE: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";

/// Whether any signature of a request is good for `key`: a shared secret, or a public key.
fn verifies(seen: &Seen, key: &str) -> bool {
    let (id, timestamp) =
        (seen.header("webhook-id").expect("an id"), seen.header("webhook-timestamp").expect("a time"));
    let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", &seen.body].concat();
    let (kind, key) = key.split_once('_').expect("a prefix");
    let key = STANDARD.decode(key).expect("base64");
    seen.header("webhook-signature").expect("signatures").split(' ').any(|entry| {
        let (version, encoded) = entry.split_once(',').expect("a version");
        let given = STANDARD.decode(encoded).expect("base64");
        match (version, kind) {
            ("v1", "whsec") => hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed, &given).is_ok(),
            ("v1a", "whpk") => {
                signature::UnparsedPublicKey::new(&signature::ED25519, &key).verify(&signed, &given).is_ok()
            }
            _ => false,
        }
    })
}

#[tokio::test]
async fn a_receiver_verifies_with_any_of_the_secrets_whatever_the_bytes_are() {
    let receiver = Receiver::acknowledging().await;
    let secrets: Vec<_> = [OLD, NEW, PRIVATE].map(|text| Secret::parse(text).expect("a secret")).into();
    let public = secrets[2].public_key().expect("a public key");
    let sink = receiver.sink(Options { secrets, ..Options::default() });
    for (sequence, payload) in [&b"{\"test\": 2432232314}"[..], b"", b"\x00\xff\xfe\x80"].into_iter().enumerate() {
        let event = Event::bytes("t", "k", "e", "application/octet-stream", Bytes::from_static(payload));
        let sent = semel::sink::Outgoing { event: event.expect("an event"), ..outgoing("k", sequence as u64) };
        let before_s = semel::Clock::now_ms(&SystemClock) / 1000;
        publish_one(&sink, &sent).await.expect("acknowledged");
        let seen = receiver.seen().pop().expect("a request");
        let at_s: i64 = seen.header("webhook-timestamp").expect("a time").parse().expect("seconds");
        assert!((before_s..=semel::Clock::now_ms(&SystemClock) / 1000).contains(&at_s));
        assert!(verifies(&seen, OLD) && verifies(&seen, NEW) && verifies(&seen, &public));
        assert!(!verifies(&seen, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"));
        let mut tampered = seen.clone();
        tampered.body = [&seen.body[..], b" "].concat().into();
        assert!(!verifies(&tampered, OLD) && !verifies(&tampered, &public));
    }
}

#[tokio::test]
async fn secrets_come_from_the_url_and_from_a_file() {
    let receiver = Receiver::acknowledging().await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), format!("{OLD}\n\n{PRIVATE}\n")).expect("written");
    let url = format!(
        "{}?semel_secret={NEW}&semel_secret_file={}&semel_allow_loopback=true",
        receiver.url(),
        file.path().display()
    );
    publish_one(&HttpSink::from_url(&url).expect("a sink"), &outgoing("k", 1)).await.expect("acknowledged");
    let seen = receiver.seen().pop().expect("a request");
    let public = Secret::parse(PRIVATE).expect("a key").public_key().expect("a public key");
    assert!(verifies(&seen, OLD) && verifies(&seen, NEW) && verifies(&seen, &public));
    assert_eq!(seen.uri, "/hook");
}
