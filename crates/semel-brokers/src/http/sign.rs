//! Signatures of Standard Webhooks: `v1` by a shared secret, `v1a` by a private key.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer, SigningKey};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::Error;

/// What a webhook is signed with. It is never shown: `Debug` names its kind only.
#[derive(Clone)]
pub struct Secret(Kind);

#[derive(Clone)]
enum Kind {
    Shared(Hmac<Sha256>),
    Private(Box<SigningKey>),
}

impl Secret {
    /// Reads `whsec_` and the base64 of 24 to 64 bytes, which signs with HMAC-SHA256 (`v1`); or `whsk_` and the base64
    /// of an ed25519 seed of 32 bytes, or of that seed and its public key, which signs with ed25519 (`v1a`).
    pub fn parse(text: &str) -> Result<Secret, Error> {
        let text = text.trim();
        if let Some(encoded) = text.strip_prefix("whsec_") {
            Ok(Secret(Kind::Shared(shared(encoded)?)))
        } else if let Some(encoded) = text.strip_prefix("whsk_") {
            let bytes = STANDARD.decode(encoded).map_err(|_| Error::Secret("it is not base64"))?;
            let key = if let Ok(seed) = <&[u8; 32]>::try_from(bytes.as_slice()) {
                SigningKey::from_bytes(seed)
            } else if let Ok(pair) = <&[u8; 64]>::try_from(bytes.as_slice()) {
                SigningKey::from_keypair_bytes(pair)
                    .map_err(|_| Error::Secret("its public half does not belong to its private half"))?
            } else {
                return Err(Error::Secret("a private key has 32 or 64 bytes"));
            };
            Ok(Secret(Kind::Private(Box::new(key))))
        } else {
            Err(Error::Secret("it begins with neither whsec_ nor whsk_"))
        }
    }

    /// The public key, as `whpk_` and base64, that receivers verify with; `None` for a shared secret.
    pub fn public_key(&self) -> Option<String> {
        match &self.0 {
            Kind::Shared(_) => None,
            Kind::Private(key) => Some(format!("whpk_{}", STANDARD.encode(key.verifying_key().as_bytes()))),
        }
    }

    /// The signature over id, timestamp and the body's bytes as they are sent, whether they are text or not.
    pub(super) fn sign(&self, id: &str, timestamp_s: i64, body: &[u8]) -> String {
        let head = head(id, timestamp_s);
        match &self.0 {
            Kind::Shared(hmac) => {
                let mac = hmac.clone().chain_update(head.as_bytes()).chain_update(body);
                format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
            }
            Kind::Private(key) => {
                let signed = [head.as_bytes(), body].concat();
                format!("v1a,{}", STANDARD.encode(key.sign(&signed).to_bytes()))
            }
        }
    }
}

/// A shared secret, from what follows `whsec_`.
pub(super) fn shared(encoded: &str) -> Result<Hmac<Sha256>, Error> {
    let bytes = STANDARD.decode(encoded).map_err(|_| Error::Secret("it is not base64"))?;
    if !(24..=64).contains(&bytes.len()) {
        return Err(Error::Secret("a shared secret has 24 to 64 bytes"));
    }
    Hmac::new_from_slice(&bytes).map_err(|_| Error::Secret("its length is not usable"))
}

/// What is signed before the body.
pub(super) fn head(id: &str, timestamp_s: i64) -> String {
    format!("{id}.{timestamp_s}.")
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Kind::Shared(_) => "Secret(whsec_…)",
            Kind::Private(_) => "Secret(whsk_…)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIMESTAMP_S: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SHARED: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const PAIR: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
    const SEED: &str = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbc=";

    #[test]
    fn a_shared_secret_signs_as_the_published_vector() {
        let secret = Secret::parse(SHARED).expect("a secret");
        assert_eq!(secret.sign(ID, TIMESTAMP_S, BODY), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(secret.public_key(), None);
    }

    #[test]
    fn a_private_key_signs_as_the_published_vector() {
        let expected = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==";
        for text in [PAIR, SEED] {
            let secret = Secret::parse(text).expect("a key");
            assert_eq!(secret.sign(ID, TIMESTAMP_S, BODY), expected);
            assert_eq!(secret.public_key().as_deref(), Some("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="));
        }
    }

    #[test]
    fn a_broken_secret_is_refused_and_never_shown() {
        let mismatched = format!("whsk_{}", STANDARD.encode([7; 64]));
        for text in
            ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_***", "whsk_c2hvcnQ=", &mismatched]
        {
            let error = Secret::parse(text).expect_err(text);
            let shown = format!("{error} {error:?}");
            assert!(text.len() < 7 || !shown.contains(&text[6..]), "{shown}");
        }
        let shown = format!("{:?} {:?}", Secret::parse(SHARED).expect("a secret"), Secret::parse(PAIR).expect("a key"));
        assert_eq!(shown, "Secret(whsec_…) Secret(whsk_…)");
    }
}
