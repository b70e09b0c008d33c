//! What client libraries may log.

use tracing::{Level, Metadata};

/// The most that a client library may log: the first part of the target, and the level.
///
/// `lapin` writes a message that RabbitMQ returns as unroutable at WARN, payload and headers included, and whole frames
/// at TRACE; its errors are safe. `async_nats` writes the headers of what it publishes at TRACE.
const LIMITS: [(&str, Level); 2] = [("lapin", Level::ERROR), ("async_nats", Level::DEBUG)];

/// Whether a span or event may be logged: `false` where a client library would show the payload or the headers of an
/// event.
///
/// A program that logs sets this above its own filter, whatever that filter says, as
/// `subscriber.with(tracing_subscriber::filter::filter_fn(semel_brokers::may_log))` does. In a filter of the form
/// `target=level` it is `lapin=error,async_nats=debug`, which a longer target such as `lapin::channel=warn` would undo.
pub fn may_log(metadata: &Metadata<'_>) -> bool {
    let library = metadata.target().split("::").next().unwrap_or_default();
    LIMITS.iter().all(|(limited, level)| *limited != library || metadata.level() <= level)
}
