//! What relays keep, as processes that are killed, stopped, raced and cut off from their broker.

pub(crate) mod dice;
mod gap;
mod graceful;
mod killed;
mod load;
mod outage;
mod panicking;
mod paused;
mod poison;
pub(crate) mod process;
mod restored;
mod rotation;
pub(crate) mod stage;
mod takeover;
#[cfg(feature = "kafka")]
mod transactional;
