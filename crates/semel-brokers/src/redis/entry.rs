//! A message from an entry of a stream.

use std::borrow::Cow;

use bytes::Bytes;
use semel::source::Received;

use super::source::Receipt;
use crate::incoming::Incoming;

/// An entry: its id, and its fields with their values, in order.
pub(super) type Entry = (String, Vec<(Vec<u8>, Vec<u8>)>);

/// The message of an entry. An entry that a sink of Semel's did not write can be applied if it has a `payload`; by
/// its place it is recognised if it has no `id`.
pub(super) fn received(stream: &str, receipt: Receipt, fields: Vec<(Vec<u8>, Vec<u8>)>) -> Received<Receipt> {
    let mut incoming = Incoming::default();
    let mut payload = None;
    for (name, value) in fields {
        if name == b"payload" && payload.is_none() {
            payload = Some(Bytes::from(value));
        } else {
            read(&mut incoming, &String::from_utf8_lossy(&name), &String::from_utf8_lossy(&value));
        }
    }
    let place = format!("{stream}:{}", receipt.entry);
    let missing = payload.is_none().then(|| "the entry has no field `payload`".to_owned());
    let mut received = incoming.finish(stream, Some(place), payload.unwrap_or_default(), receipt);
    received.unusable = received.unusable.or(missing);
    received
}

fn read(incoming: &mut Incoming, name: &str, value: &str) {
    let name: Cow<'_, str> = match name {
        "id" | "source" | "type" | "lane" | "sequence" | "incarnation" => name.into(),
        "key" => "partitionkey".into(),
        "content_type" => "datacontenttype".into(),
        "specversion" | "time" => return incoming.own(format!("ce-{name}"), value),
        other => return incoming.own(other.strip_prefix("header:").unwrap_or(other), value),
    };
    if !incoming.attribute(&name, value) {
        incoming.own(name, value);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(fields: &[(&str, &str)]) -> Received<Receipt> {
        let receipt = Receipt { stream: 0, entry: "5-1".to_owned() };
        let fields = fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        received("orders", receipt, fields.collect())
    }

    #[test]
    fn a_foreign_entry_goes_by_its_place_and_needs_a_payload() {
        let placed = read(&[("payload", "x"), ("tenant", "t")]);
        assert_eq!((placed.message.id.as_str(), placed.unusable.as_deref()), ("orders:5-1", None));
        assert_eq!(placed.message.headers, [("tenant".to_owned(), "t".to_owned())]);
        let bare = read(&[("id", "one"), ("amount", "7")]);
        assert!(bare.unusable.unwrap().contains("`payload`"));
        assert_eq!(bare.message.headers, [("amount".to_owned(), "7".to_owned())]);
    }

    #[test]
    fn a_header_called_like_a_field_is_a_header() {
        let message = read(&[("id", "one"), ("header:id", "two"), ("header:payload", "y"), ("payload", "x")]).message;
        assert_eq!((message.id.as_str(), &message.payload[..]), ("one", &b"x"[..]));
        assert_eq!(message.headers, [("id".to_owned(), "two".to_owned()), ("payload".to_owned(), "y".to_owned())]);
    }
}
