//! What consumers keep, as processes that are killed, stopped and paused between receiving a message and acknowledging
//! it.

mod broker;
mod generation;
mod graceful;
mod handler;
mod killed;
mod letters;
mod load;
mod paused;
mod process;
mod random;
mod service;
mod stage;
mod tier;
mod versions;
mod vertices;
