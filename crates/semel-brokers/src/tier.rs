//! What stands in front of an inbox, by its name.

use std::sync::Arc;

use semel::tier::{Filter, Tier};

use crate::Error;

/// How many ids a filter remembers unless it is told.
const FILTER_IDS: usize = 1_000_000;

/// The share of ids that a filter takes for seen by mistake.
const FILTER_MISTAKEN: f64 = 0.01;

/// Opens the tier that `text` names: `filter` for one in this process that remembers the last million ids, `filter:IDS`
/// for another number, or `redis://…` for a [`RedisTier`](crate::redis::RedisTier).
///
/// A Redis that cannot be reached is no error: a tier decides nothing, so its consumer works without it.
pub async fn open_tier(text: &str) -> Result<Arc<dyn Tier>, Error> {
    let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
    match scheme.to_ascii_lowercase().as_str() {
        "filter" if !text.contains(':') => Ok(Arc::new(Filter::new(FILTER_IDS, FILTER_MISTAKEN))),
        "filter" => match rest.parse() {
            Ok(ids @ 1..=100_000_000) => Ok(Arc::new(Filter::new(ids, FILTER_MISTAKEN))),
            _ => Err(Error::Url("a filter remembers between 1 and 100000000 ids, such as filter:1000000".to_owned())),
        },
        #[cfg(feature = "redis")]
        "redis" | "rediss" => Ok(Arc::new(crate::redis::RedisTier::connect(text).await?)),
        #[cfg(not(feature = "redis"))]
        scheme @ ("redis" | "rediss") => Err(Error::NotBuilt { scheme: scheme.to_owned(), feature: "redis" }),
        _ => Err(Error::Url("a tier is filter, filter:IDS, or begins with redis: or rediss:".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_filter_is_as_large_as_it_is_told() {
        for (text, bytes) in [("filter", 2_000_000..4_000_000), ("FILTER:1000", 2_000..4_000)] {
            let told = format!("{:?}", open_tier(text).await.unwrap());
            let told = told.split_once("bytes: ").and_then(|(_, rest)| rest.split_once(',')).map(|(bytes, _)| bytes);
            let told: u32 = told.and_then(|bytes| bytes.parse().ok()).unwrap();
            assert!(bytes.contains(&told), "{text}: {told}");
        }
    }

    #[tokio::test]
    async fn what_is_no_tier_is_refused_without_its_secrets() {
        for (text, told) in [
            ("", "a tier is filter"),
            ("bloom", "a tier is filter"),
            ("filter:", "between 1 and"),
            ("filter:0", "between 1 and"),
            ("filter:many", "between 1 and"),
            ("memcached://u:hunter2@h/", "a tier is filter"),
        ] {
            let refused = open_tier(text).await.unwrap_err().to_string();
            assert!(refused.contains(told) && !refused.contains("hunter2"), "{text}: {refused}");
        }
    }
}
