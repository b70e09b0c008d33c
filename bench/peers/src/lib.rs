//! What the peers of `cargo xtask bench flows` share: the work, the clients who ask for it, and how they talk to the
//! benchmark that starts them.
//!
//! The clients are those of the benchmark itself, by the same source, so that everybody is asked in the same way.

#[path = "../../shared/drive.rs"]
pub mod drive;
pub mod order;
pub mod task;
