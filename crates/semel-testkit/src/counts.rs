//! How often a test repeats itself.

/// Picks the count that a release is tested with if `SEMEL_TEST_LONG=1`, as under `cargo xtask test --long`, and the
/// reduced one otherwise.
pub fn rounds(reduced: u32, long: u32) -> u32 {
    if is_long() { long } else { reduced }
}

/// Whether the long counts are wanted.
pub fn is_long() -> bool {
    std::env::var("SEMEL_TEST_LONG").is_ok_and(|value| value == "1")
}
