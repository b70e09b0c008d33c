//! Verifies signatures of Standard Webhooks: `v1` by a shared secret, `v1a` by a public key.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, VerifyingKey};
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::{Error, sign};

/// The most signatures of one message that are looked at (I12).
const MAX_SIGNATURES: usize = 16;

/// What a message may be signed with. It is never shown: `Debug` names the kinds only.
#[derive(Clone)]
pub(super) struct Trusted(Kind);

#[derive(Clone)]
enum Kind {
    Shared(Hmac<Sha256>),
    Public(Box<VerifyingKey>),
}

/// Why a message is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It names no time, or none that is a number.
    Timestamp,
    /// It is too old, or from the future.
    Tolerance,
    /// No signature is by a key that is trusted.
    Signature,
}

impl Trusted {
    /// Reads `whsec_` and the base64 of a shared secret, or `whpk_` and the base64 of an ed25519 public key.
    pub(super) fn parse(text: &str) -> Result<Trusted, Error> {
        let text = text.trim();
        if let Some(encoded) = text.strip_prefix("whsec_") {
            return Ok(Trusted(Kind::Shared(sign::shared(encoded)?)));
        }
        let encoded = text.strip_prefix("whpk_").ok_or(Error::Secret("it begins with neither whsec_ nor whpk_"))?;
        let bytes = STANDARD.decode(encoded).map_err(|_| Error::Secret("it is not base64"))?;
        let bytes = <&[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| Error::Secret("a public key has 32 bytes"))?;
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| Error::Secret("it is no public key"))?;
        Ok(Trusted(Kind::Public(Box::new(key))))
    }

    /// Whether it made this signature. A shared secret takes the same time for every wrong one.
    fn made(&self, version: &str, signature: &[u8], head: &str, body: &[u8]) -> bool {
        match (&self.0, version) {
            (Kind::Shared(hmac), "v1") => {
                hmac.clone().chain_update(head.as_bytes()).chain_update(body).verify_slice(signature).is_ok()
            }
            (Kind::Public(key), "v1a") => Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify_strict(&[head.as_bytes(), body].concat(), &signature).is_ok()),
            _ => false,
        }
    }
}

impl std::fmt::Debug for Trusted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Kind::Shared(_) => "Trusted(whsec_…)",
            Kind::Public(_) => "Trusted(whpk_…)",
        })
    }
}

/// Believes a message if one of its signatures is by one of the trusted keys, over its id, its time and its body, and
/// its time is within `tolerance` of now: what was recorded cannot be played back later.
pub(super) fn verify(
    trusted: &[Trusted],
    id: &str,
    timestamp: &str,
    signatures: &str,
    body: &[u8],
    now_ms: i64,
    tolerance: Duration,
) -> Result<(), Wrong> {
    // A sign or leading zeros would be another text than the one that was signed.
    let timestamp_s: i64 = timestamp.parse().map_err(|_| Wrong::Timestamp)?;
    if timestamp_s.to_string() != timestamp {
        return Err(Wrong::Timestamp);
    }
    let apart_s = now_ms.div_euclid(1000).abs_diff(timestamp_s);
    if apart_s > tolerance.as_secs() {
        return Err(Wrong::Tolerance);
    }
    let head = sign::head(id, timestamp_s);
    let made_by_one = |signature: &str| {
        let Some((version, encoded)) = signature.split_once(',') else { return false };
        let Ok(signature) = STANDARD.decode(encoded) else { return false };
        trusted.iter().any(|key| key.made(version, &signature, &head, body))
    };
    match signatures.split_ascii_whitespace().take(MAX_SIGNATURES).any(made_by_one) {
        true => Ok(()),
        false => Err(Wrong::Signature),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Secret;
    use super::*;

    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const AT: &str = "1614265330";
    const NOW_MS: i64 = 1_614_265_330_999;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SHARED: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const OTHER: &str = "whsec_AAAQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const PUBLIC: &str = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=";
    const BY_SHARED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const BY_PRIVATE: &str =
        "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==";

    fn keys(texts: &[&str]) -> Vec<Trusted> {
        texts.iter().map(|text| Trusted::parse(text).unwrap()).collect()
    }

    fn judged(trusted: &[&str], at: &str, signatures: &str, body: &[u8]) -> Result<(), Wrong> {
        verify(&keys(trusted), ID, at, signatures, body, NOW_MS, Duration::from_secs(300))
    }

    #[test]
    fn the_published_vectors_are_believed() {
        assert_eq!(judged(&[SHARED], AT, BY_SHARED, BODY), Ok(()));
        assert_eq!(judged(&[PUBLIC], AT, BY_PRIVATE, BODY), Ok(()));
    }

    #[test]
    fn while_secrets_change_one_of_either_side_is_enough() {
        assert_eq!(judged(&[OTHER, SHARED], AT, BY_SHARED, BODY), Ok(()));
        assert_eq!(judged(&[SHARED], AT, &format!("v1,AAAA {BY_PRIVATE} {BY_SHARED}"), BODY), Ok(()));
        assert_eq!(judged(&[SHARED, PUBLIC], AT, BY_PRIVATE, BODY), Ok(()));
    }

    #[test]
    fn what_is_signed_otherwise_is_not_believed() {
        let wrong = Err(Wrong::Signature);
        assert_eq!(judged(&[SHARED], AT, BY_SHARED, b"{}"), wrong);
        assert_eq!(judged(&[OTHER], AT, BY_SHARED, BODY), wrong);
        assert_eq!(judged(&[], AT, BY_SHARED, BODY), wrong);
        assert_eq!(judged(&[SHARED], "1614265331", BY_SHARED, BODY), wrong);
        for signatures in ["", "v1", "v1,", "v1,g0hM", &BY_SHARED.replace("v1,", "v1a,"), &BY_SHARED[3..]] {
            assert_eq!(judged(&[SHARED, PUBLIC], AT, signatures, BODY), wrong, "{signatures}");
        }
        let other_id = verify(&keys(&[SHARED]), "msg_2", AT, BY_SHARED, BODY, NOW_MS, Duration::from_secs(300));
        assert_eq!(other_id, wrong);
    }

    #[test]
    fn what_was_recorded_is_not_believed_later() {
        let at = |now_s: i64| verify(&keys(&[SHARED]), ID, AT, BY_SHARED, BODY, now_s * 1000, Duration::from_secs(300));
        let signed = 1_614_265_330;
        assert_eq!([at(signed + 300), at(signed - 300)], [Ok(()); 2]);
        assert_eq!([at(signed + 301), at(signed - 301)], [Err(Wrong::Tolerance); 2]);
        for timestamp in ["", "soon", "+1614265330", "01614265330", "1614265330.0", "99999999999999999999"] {
            assert_eq!(judged(&[SHARED], timestamp, BY_SHARED, BODY), Err(Wrong::Timestamp), "{timestamp}");
        }
    }

    #[test]
    fn what_the_sink_signs_is_believed() {
        for (secret, trusted) in
            [(SHARED.to_owned(), SHARED), (format!("whsk_{}", "6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc="), PUBLIC)]
        {
            let signed = Secret::parse(&secret).unwrap().sign(ID, 1_614_265_330, b"\xff\x00");
            assert_eq!(judged(&[trusted], AT, &signed, b"\xff\x00"), Ok(()));
        }
    }

    #[test]
    fn a_broken_key_is_refused_and_never_shown() {
        for text in
            ["", "whsec_c2hvcnQ=", "whpk_c2hvcnQ=", "whpk_***", "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc="]
        {
            let error = Trusted::parse(text).unwrap_err();
            assert!(text.len() < 7 || !format!("{error} {error:?}").contains(&text[6..]), "{error:?}");
        }
        assert_eq!(format!("{:?}", keys(&[SHARED, PUBLIC])), "[Trusted(whsec_…), Trusted(whpk_…)]");
    }
}
