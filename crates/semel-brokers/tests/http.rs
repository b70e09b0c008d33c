//! What a webhook sink guarantees, against real receivers on loopback ports.

#[path = "http/address.rs"]
mod address;
#[path = "http/conformance.rs"]
mod conformance;
#[path = "http/delivery.rs"]
mod delivery;
#[path = "http/order.rs"]
mod order;
#[path = "http/receiver.rs"]
mod receiver;
#[path = "http/signature.rs"]
mod signature;
#[path = "http/tls.rs"]
mod tls;
