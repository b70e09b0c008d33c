//! What the benchmarks share.

pub mod aim;
pub mod contest;
pub mod drive;
pub mod machine;
pub mod plot;
pub mod processor;
pub mod report;
pub mod stage;
