//! A message from what RabbitMQ delivers.

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::AMQPValue;
use semel::source::Received;

use super::source::Receipt;
use crate::incoming::Incoming;

/// What the broker writes about its own deliveries. It says nothing about the message, and differs at each delivery.
const BROKERS_OWN: [&str; 5] = ["x-acquired-count", "x-death", "x-delivery-count", "x-first-death", "x-last-death"];

/// The message of a delivery. Attributes of CloudEvents come first, then the properties of AMQP that mean the same.
pub(super) fn received(delivery: Delivery, queue: &str) -> Received<Receipt> {
    let mut incoming = Incoming::default();
    let properties = &delivery.properties;
    read_headers(&mut incoming, properties);
    let known =
        [("id", properties.message_id()), ("type", properties.kind()), ("datacontenttype", properties.content_type())];
    for (name, value) in known {
        incoming.or_attribute(name, value.as_ref().map_or("", |value| value.as_str()));
    }
    let names = [delivery.routing_key.as_str(), delivery.exchange.as_str(), queue];
    let topic = names.into_iter().find(|name| !name.is_empty()).unwrap_or(queue).to_owned();
    // A queue has no names for its places: a message without an id cannot be recognised.
    let receipt = Receipt { tag: delivery.delivery_tag, acker: delivery.acker };
    incoming.finish(&topic, None, Bytes::from(delivery.data), receipt)
}

fn read_headers(incoming: &mut Incoming, properties: &BasicProperties) {
    let Some(headers) = properties.headers() else { return };
    for (name, value) in headers.inner() {
        let name = name.as_str();
        if BROKERS_OWN.iter().any(|own| name.starts_with(own)) {
            continue;
        }
        for value in texts(value) {
            header(incoming, name, value);
        }
    }
}

fn header(incoming: &mut Incoming, name: &str, value: String) {
    // Both separators are in the binding's versions.
    if let Some(attribute) = name.strip_prefix("cloudEvents_").or_else(|| name.strip_prefix("cloudEvents:")) {
        if !incoming.attribute(attribute, &value) {
            incoming.own(format!("ce-{attribute}"), value);
        }
        return;
    }
    if let Some(set_aside) = name.strip_prefix("semel-header-") {
        incoming.own(set_aside, value);
        return;
    }
    let ours = ["lane", "sequence", "incarnation", "topic"];
    let coordinate = name.strip_prefix("semel-").filter(|rest| ours.contains(rest));
    if !coordinate.is_some_and(|coordinate| incoming.attribute(coordinate, &value)) {
        incoming.own(name, value);
    }
}

/// A header's values as text; none if it is a table or bytes.
fn texts(value: &AMQPValue) -> Vec<String> {
    let text = match value {
        AMQPValue::LongString(text) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
        AMQPValue::ShortString(text) => text.as_str().to_owned(),
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(value) => value.to_string(),
        AMQPValue::ShortShortUInt(value) => value.to_string(),
        AMQPValue::ShortInt(value) => value.to_string(),
        AMQPValue::ShortUInt(value) => value.to_string(),
        AMQPValue::LongInt(value) => value.to_string(),
        AMQPValue::LongUInt(value) => value.to_string(),
        AMQPValue::LongLongInt(value) => value.to_string(),
        AMQPValue::Float(value) => value.to_string(),
        AMQPValue::Double(value) => value.to_string(),
        AMQPValue::Timestamp(value) => value.to_string(),
        AMQPValue::FieldArray(values) => return values.as_slice().iter().flat_map(texts).collect(),
        AMQPValue::DecimalValue(_) | AMQPValue::FieldTable(_) | AMQPValue::ByteArray(_) | AMQPValue::Void => {
            return Vec::new();
        }
    };
    vec![text]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use lapin::types::{FieldTable, ShortString};

    use super::*;

    fn read(headers: &[(&str, AMQPValue)], properties: BasicProperties) -> Received<()> {
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert(ShortString::from(*name), value.clone());
        }
        let mut incoming = Incoming::default();
        read_headers(&mut incoming, &properties.with_headers(table));
        incoming.finish("t", None, Bytes::new(), ())
    }

    #[test]
    fn both_separators_of_the_cloudevents_binding_are_read() {
        for separator in ["_", ":"] {
            let name = format!("cloudEvents{separator}id");
            let received = read(&[(&name, AMQPValue::LongString("one".into()))], BasicProperties::default());
            assert_eq!((received.message.id.as_str(), received.unusable), ("one", None));
        }
    }

    #[test]
    fn what_the_broker_notes_about_deliveries_is_no_header_of_the_message() {
        let headers = [
            ("x-delivery-count", AMQPValue::LongLongInt(3)),
            ("x-first-death-reason", AMQPValue::LongString("rejected".into())),
            ("x-own", AMQPValue::Boolean(true)),
        ];
        let message = read(&headers, BasicProperties::default()).message;
        assert_eq!(message.headers, [("x-own".to_owned(), "true".to_owned())]);
    }
}
