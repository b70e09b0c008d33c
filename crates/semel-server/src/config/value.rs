//! Readers of single values. Each says only what is wrong; the caller names the setting and what is accepted.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use semel::provider::Keys;
use semel::retention::MAX_RETENTION;
use semel::{Keyring, SealingKey};
use semel_payments::Tokens;
use semel_payments::tokens::{self, MAX_TOKEN_BYTES};

/// A duration within bounds (I12).
pub(crate) fn duration(text: &str, bounds: RangeInclusive<Duration>) -> Result<Duration> {
    let duration = humantime::parse_duration(text).context("it is not a duration")?;
    let shown = humantime::format_duration;
    ensure!(bounds.contains(&duration), "it must be between {} and {}", shown(*bounds.start()), shown(*bounds.end()));
    Ok(duration)
}

/// How long a provider recognises a key.
pub(crate) fn keys(text: &str) -> Result<Keys> {
    match text {
        "none" => Ok(Keys::None),
        "forever" => Ok(Keys::Forever),
        _ => duration(text, Duration::from_millis(1)..=MAX_RETENTION).map(Keys::Kept),
    }
}

/// A size in bytes, at most `limit` (I12).
pub(crate) fn size(text: &str, limit: usize) -> Result<usize> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim_start() {
        "" | "B" => 1,
        "KiB" => 1024,
        "MiB" => 1024 * 1024,
        _ => bail!("it is not a number with B, KiB or MiB"),
    };
    let number: usize = number.parse().context("it does not start with a whole number")?;
    let bytes = number.checked_mul(factor).filter(|bytes| (1..=limit).contains(bytes));
    bytes.with_context(|| format!("it must be between 1 and {limit} bytes"))
}

/// A whole number within bounds (I12).
pub(crate) fn number<N: FromStr + PartialOrd>(text: &str, bounds: RangeInclusive<N>) -> Result<N> {
    text.parse().ok().filter(|number| bounds.contains(number)).context("it is not a number within these bounds")
}

/// One of several words.
pub(crate) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T> {
    let found = words.iter().find(|(word, _)| *word == text);
    Ok(found.context("it is none of these words")?.1)
}

/// Sealing keys as `ID:BASE64`, separated by commas or lines. Messages name ids and positions, never a key.
pub(crate) fn keyring(text: &str) -> Result<Keyring> {
    let entries = text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty());
    let keys = entries.enumerate().map(|(position, entry)| {
        let position = position + 1;
        let (id, secret) = entry.split_once(':').with_context(|| format!("key {position} has no ':' after its id"))?;
        let secret = BASE64_STANDARD.decode(secret).ok().with_context(|| format!("key {position} is not base64"))?;
        let bytes = secret.len();
        let secret = <[u8; 32]>::try_from(secret).ok();
        let secret = secret.with_context(|| format!("key {position} has {bytes} bytes instead of 32"))?;
        Ok(SealingKey::new(id, secret)?)
    });
    Ok(Keyring::new(keys.collect::<Result<Vec<_>>>()?)?)
}

/// Bearer tokens and their tenants as `TOKEN:TENANT`, separated by commas. Messages name positions and show neither
/// part, since the two may have been swapped.
pub(crate) fn tokens(text: &str) -> Result<Tokens> {
    let mut pairs = Vec::new();
    for (position, entry) in text.split(',').enumerate() {
        let position = position + 1;
        let mut parts = entry.trim().split(':');
        let (Some(token), Some(tenant), None) = (parts.next(), parts.next(), parts.next()) else {
            bail!("entry {position} must have one ':', between its token and its tenant");
        };
        if let Err(invalid) = Tokens::new([(token, tenant)]) {
            bail!(match invalid {
                tokens::Invalid::Tenant(_, reason) => format!("entry {position} cannot be used: {reason}"),
                _ => format!("the token of entry {position} must be 1 to {MAX_TOKEN_BYTES} visible ASCII characters"),
            });
        }
        pairs.push((token, tenant));
    }
    Tokens::new(pairs).ok().context("one token stands for two tenants; give each tenant its own")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: RangeInclusive<Duration> = Duration::ZERO..=Duration::MAX;

    #[test]
    fn durations_carry_a_unit_and_keep_their_bounds() {
        assert_eq!(duration("500ms", ANY).unwrap(), Duration::from_millis(500));
        assert_eq!(duration("24h", ANY).unwrap(), Duration::from_secs(24 * 3600));
        assert_eq!(duration("7d", ANY).unwrap(), Duration::from_secs(7 * 24 * 3600));
        assert_eq!(duration("0s", ANY).unwrap(), Duration::ZERO);
        for wrong in ["", "30", "-1s", "1 fortnight", "99999999999999999999s"] {
            assert!(duration(wrong, ANY).is_err(), "{wrong}");
        }
        let refused = duration("2m", Duration::ZERO..=Duration::from_secs(60)).unwrap_err().to_string();
        assert_eq!(refused, "it must be between 0s and 1m");
    }

    #[test]
    fn a_providers_keys_are_kept_for_a_while_for_ever_or_not_at_all() {
        assert_eq!(keys("none").unwrap(), Keys::None);
        assert_eq!(keys("forever").unwrap(), Keys::Forever);
        assert_eq!(keys("36h").unwrap(), Keys::Kept(Duration::from_hours(36)));
        for wrong in ["", "0s", "on", "99999d"] {
            assert!(keys(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_binary_and_bounded() {
        assert_eq!(size("64KiB", usize::MAX).unwrap(), 65536);
        assert_eq!(size("1 MiB", usize::MAX).unwrap(), 1024 * 1024);
        assert_eq!(size("4096", usize::MAX).unwrap(), 4096);
        for wrong in ["", "MiB", "1MB", "0", "2MiB", "-1", "1.5KiB", "99999999999999999999"] {
            assert!(size(wrong, 1024 * 1024).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_broken_sealing_key_is_named_by_position_and_never_shown() {
        let good = BASE64_STANDARD.encode([7; 32]);
        assert_eq!(keyring(&format!("new:{good},old:{good}")).unwrap().ids(), ["new", "old"]);
        assert_eq!(keyring(&format!("new:{good}\nold:{good}\n")).unwrap().ids(), ["new", "old"]);
        let short = BASE64_STANDARD.encode([7; 16]);
        let refused = format!("{:#}", keyring(&format!("new:{good},old:{short}")).unwrap_err());
        assert_eq!(refused, "key 2 has 16 bytes instead of 32");
        assert!(keyring(&good).is_err());
        assert!(keyring("").is_err());
        assert!(keyring(&format!("new:{good},new:{good}")).is_err());
    }

    #[test]
    fn tokens_map_to_tenants() {
        assert!(!tokens("token-one:a, token-two:b").unwrap().is_demo());
        assert!(tokens("token-one:a,demo-a1:a").unwrap().is_demo());
        for wrong in ["", "token-one", "token-one:", "token one:a", "token-one:a,", "token-one:a,token-one:b"] {
            assert!(tokens(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_broken_token_is_named_by_position_and_neither_part_is_shown() {
        let long = "hunter2".repeat(100);
        for (entry, told) in [
            ("hunter2", "entry 2 must have one ':'"),
            ("hunter2:a:b", "entry 2 must have one ':'"),
            ("a:hunter2:b", "entry 2 must have one ':'"),
            ("a b:hunter2", "the token of entry 2 must be 1 to 512 visible ASCII characters"),
            (":hunter2", "the token of entry 2 must be"),
            ("hunter2:", "entry 2 cannot be used: the tenant of a scope must be"),
            ("a:hunter2\u{7}", "entry 2 cannot be used: the tenant"),
            (&format!("a:{long}"), "but it has 700 bytes"),
            ("one:hunter2", "one token stands for two tenants"),
        ] {
            let refused = format!("{:?}", tokens(&format!("one:a,{entry}")).unwrap_err());
            assert!(refused.contains(told) && !refused.contains("hunter2"), "{refused}");
        }
    }
}
