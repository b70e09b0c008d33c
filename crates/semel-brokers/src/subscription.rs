//! Who reads a source.

use std::fmt::{Debug, Write};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use semel::source::Recognition;

/// Who reads a source, and what they tell messages apart by.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// The consumer's name. All who read under it share the messages; others get their own.
    pub consumer: String,
    /// The generation, counted from zero. Another one begins where the broker's history begins.
    pub generation: u32,
    /// What the consumer tells messages apart by.
    pub recognition: Recognition,
    /// Where a consumer that goes by offsets reads on. Nobody else asks it.
    pub resume: Option<Arc<dyn Resume>>,
}

/// Knows where a consumer reads on in a partition of Kafka: the offset that was committed with its effects (I6).
pub trait Resume: Send + Sync + Debug {
    /// The offset of the next message; `None` if the consumer has read nothing of this partition.
    fn next_offset<'a>(
        &'a self,
        source: &'a str,
        topic: &'a str,
        partition: i32,
    ) -> Pin<Box<dyn Future<Output = Result<Option<i64>, semel::Error>> + Send + 'a>>;
}

impl Subscription {
    /// A consumer in its first generation, which goes by ids.
    pub fn new(consumer: impl Into<String>) -> Subscription {
        Subscription { consumer: consumer.into(), generation: 0, recognition: Recognition::Id, resume: None }
    }

    /// The same consumer in another generation.
    #[must_use]
    pub fn in_generation(mut self, generation: u32) -> Subscription {
        self.generation = generation;
        self
    }

    /// What the broker calls those who share the messages: the consumer's name, and `-gN` in generation N above zero.
    ///
    /// It holds ASCII letters, digits, `-`, `_` and `%` only, which every broker takes in a name; any other byte is
    /// written as `%` and two hexadecimal digits. Different consumers and generations never share one.
    pub fn group(&self) -> String {
        let mut group = String::with_capacity(self.consumer.len() + 4);
        // A name that ends as a generation does would be taken for one.
        let (name, digits) = self.consumer.split_at(self.consumer.trim_end_matches(|c: char| c.is_ascii_digit()).len());
        let looks_like_a_generation = !digits.is_empty() && name.ends_with("-g");
        let dash = name.len().checked_sub("-g".len()).filter(|_| looks_like_a_generation);
        for (place, byte) in self.consumer.bytes().enumerate() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' if Some(place) != dash => {
                    group.push(char::from(byte));
                }
                _ => {
                    let _ = write!(group, "%{byte:02X}");
                }
            }
        }
        if self.generation > 0 {
            let _ = write!(group, "-g{}", self.generation);
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_named_by_consumer_and_generation() {
        assert_eq!(Subscription::new("receipts").group(), "receipts");
        assert_eq!(Subscription::new("receipts").in_generation(2).group(), "receipts-g2");
        assert_eq!(Subscription::new("eu.bal ances/1").group(), "eu%2Ebal%20ances%2F1");
        assert_eq!(Subscription::new("zürich").group(), "z%C3%BCrich");
    }

    #[test]
    fn two_consumers_never_share_a_group() {
        let names = ["a", "a-g1", "a-g1-g1", "a%2Dg1", "a.b", "a%2Eb", "a-g", "-g1", "%2Dg1", "a1", "a-g01"];
        let mut groups: Vec<String> = names
            .iter()
            .flat_map(|name| [0, 1, 11].map(|generation| Subscription::new(*name).in_generation(generation).group()))
            .collect();
        let all = groups.len();
        groups.sort();
        groups.dedup();
        assert_eq!(groups.len(), all, "{groups:?}");
    }
}
