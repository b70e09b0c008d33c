//! What the benchmarks share.

pub mod aim;
pub mod machine;
pub mod processor;
