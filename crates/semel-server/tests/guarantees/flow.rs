//! What flows keep, as processes that are killed, stopped and raced around the calls that no transaction can hold.
//!
//! The sandbox takes orders, `semel-provider` charges and sends mails, and its own ledger is the witness.

mod duplicates;
mod keyless;
mod killed;
mod naive;
mod outside;
mod paused;
mod shop;
mod stage;
mod undone;
mod window;
