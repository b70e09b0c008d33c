//! The README shows this example as it is.
#![allow(clippy::unwrap_used, missing_docs)]

#[test]
fn the_readme_shows_the_minimal_example_verbatim() {
    let readme = include_str!("../../../README.md");
    let (_, shown) = readme.split_once("minimal:begin -->\n```rust\n").unwrap();
    let (shown, _) = shown.split_once("```\n<!-- minimal:end -->").unwrap();
    assert_eq!(shown, include_str!("../src/main.rs"));
}
