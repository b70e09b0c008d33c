//! A message from the headers that a broker brings it with: CloudEvents in binary mode, Semel's own, the rest.

use bytes::Bytes;
#[cfg(any(feature = "http", feature = "nats"))]
use percent_encoding::percent_decode_str;
use semel::inbox::Sequence;
use semel::source::{Message, Received};

/// Collects what is known of a message.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    id: Option<String>,
    ordering_key: Option<String>,
    message_type: Option<String>,
    producer: Option<String>,
    content_type: Option<String>,
    topic: Option<String>,
    incarnation: Option<String>,
    lane: Option<String>,
    sequence: Option<String>,
    headers: Vec<(String, String)>,
}

impl Incoming {
    /// Takes an attribute by its name in CloudEvents, or one of Semel's own without its prefix: `lane`, `sequence`,
    /// `incarnation`, `topic`. `false` if it is none of these, and then nothing is taken.
    pub(crate) fn attribute(&mut self, name: &str, value: &str) -> bool {
        let place = match name {
            "id" => &mut self.id,
            "source" => &mut self.producer,
            "type" => &mut self.message_type,
            "partitionkey" => &mut self.ordering_key,
            "datacontenttype" => &mut self.content_type,
            "topic" => &mut self.topic,
            "incarnation" => &mut self.incarnation,
            "lane" => &mut self.lane,
            "sequence" => &mut self.sequence,
            // Known, and nobody asks for it by another name.
            "specversion" | "time" => return false,
            _ => return false,
        };
        *place = Some(value.to_owned());
        true
    }

    /// Takes a header as NATS, HTTP and others carry it: `ce-NAME`, `semel-NAME`, `semel-header-NAME` for one that was
    /// set aside, or the service's own. Attributes are percent-encoded there; a header is not.
    #[cfg(any(feature = "http", feature = "nats"))]
    pub(crate) fn header(&mut self, name: &str, value: &str) {
        let lower = name.to_ascii_lowercase();
        if let Some(own) = lower.strip_prefix("semel-header-") {
            // In the case that it was sent in: the lower form has the same length.
            self.headers.push((name[name.len() - own.len()..].to_owned(), value.to_owned()));
            return;
        }
        if let Some(attribute) = lower.strip_prefix("ce-").or_else(|| lower.strip_prefix("semel-")) {
            let decoded = percent_decode_str(value).decode_utf8_lossy().into_owned();
            if self.attribute(attribute, &decoded) {
                return;
            }
            self.headers.push((lower, decoded));
            return;
        }
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    /// Takes a header of the service's own, as it is.
    pub(crate) fn own(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.headers.push((name.into(), value.into()));
    }

    /// Sets what has not been set: the ordering key, the content type, or the id.
    pub(crate) fn or_attribute(&mut self, name: &str, value: &str) {
        let set = match name {
            "id" => self.id.is_some(),
            "partitionkey" => self.ordering_key.is_some(),
            "datacontenttype" => self.content_type.is_some(),
            "type" => self.message_type.is_some(),
            _ => false,
        };
        if !set && !value.is_empty() {
            self.attribute(name, value);
        }
    }

    /// The message. `place` is the broker's own name for it, unique and the same at every delivery, which stands for
    /// the id that a producer did not give; where the broker has none, a message without an id cannot be recognised.
    ///
    /// A message without an ordering key is in nobody's order.
    pub(crate) fn finish<R>(self, topic: &str, place: Option<String>, payload: Bytes, receipt: R) -> Received<R> {
        let mut unusable = None;
        let topic = self.topic.unwrap_or_else(|| topic.to_owned());
        let id = self.id.or(place).unwrap_or_else(|| {
            unusable = Some("it has no id, and its broker gives it none by which it could be recognised".to_owned());
            String::new()
        });
        let sequence = match (self.incarnation, self.lane, self.sequence) {
            (Some(incarnation), Some(lane), Some(sequence)) => match (lane.parse(), sequence.parse()) {
                (Ok(lane), Ok(sequence)) => Some(Sequence { incarnation, topic: topic.clone(), lane, sequence }),
                _ => {
                    unusable = Some(format!("its place is no place: lane {lane:?}, sequence {sequence:?}"));
                    None
                }
            },
            _ => None,
        };
        let message = Message {
            ordering_key: self.ordering_key.filter(|key| !key.is_empty()).unwrap_or_else(|| id.clone()),
            id,
            topic,
            message_type: self.message_type.unwrap_or_default(),
            producer: self.producer.unwrap_or_default(),
            content_type: self.content_type.unwrap_or_default(),
            payload,
            headers: self.headers,
            sequence,
            offset: None,
        };
        Received { message, unusable, receipt }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[cfg(any(feature = "http", feature = "nats"))]
    #[test]
    fn attributes_are_decoded_and_a_header_that_was_set_aside_gets_its_name_back() {
        let mut incoming = Incoming::default();
        for (name, value) in [
            ("ce-id", "one"),
            ("Ce-Type", "a%20b"),
            ("ce-partitionkey", "%C3%BC"),
            ("semel-lane", "7"),
            ("semel-sequence", "12"),
            ("semel-incarnation", "i"),
            ("semel-header-x-host", "100%"),
            ("Tenant", "t"),
        ] {
            incoming.header(name, value);
        }
        let message = incoming.finish("orders", None, Bytes::new(), ()).message;
        assert_eq!((message.id.as_str(), message.message_type.as_str()), ("one", "a b"));
        assert_eq!(message.ordering_key, "ü");
        assert_eq!(message.headers, [("x-host".to_owned(), "100%".to_owned()), ("Tenant".to_owned(), "t".to_owned())]);
        let sequence = message.sequence.unwrap();
        assert_eq!((sequence.lane, sequence.sequence, sequence.topic.as_str()), (7, 12, "orders"));
    }

    #[test]
    fn a_message_without_an_id_goes_by_its_place_or_cannot_be_recognised() {
        let placed = Incoming::default().finish("t", Some("t/0/5".to_owned()), Bytes::new(), ());
        assert_eq!((placed.message.id.as_str(), placed.message.ordering_key.as_str()), ("t/0/5", "t/0/5"));
        assert_eq!(placed.unusable, None);
        assert!(Incoming::default().finish("t", None, Bytes::new(), ()).unusable.unwrap().contains("no id"));
    }

    #[test]
    fn a_place_that_is_none_is_told() {
        let mut incoming = Incoming::default();
        for (name, value) in [("id", "one"), ("incarnation", "i"), ("lane", "many"), ("sequence", "1")] {
            assert!(incoming.attribute(name, value));
        }
        assert!(incoming.finish("t", None, Bytes::new(), ()).unusable.unwrap().contains("many"));
    }
}
