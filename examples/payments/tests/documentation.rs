//! What the documentation says of errors is what the code answers.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;

#[test]
fn every_problem_code_is_documented_with_its_status_and_no_other() {
    let document = include_str!("../../../docs/reference/errors.md");
    let (problems, _) = document.split_once("## Of the library").unwrap();
    let documented: BTreeSet<(String, String)> = problems
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|row| {
            let (code, rest) = row.split_once("` | ")?;
            Some((code.to_owned(), rest.split_once(" |")?.0.to_owned()))
        })
        .collect();
    let answered: BTreeSet<(String, String)> = semel_tower::code::ALL
        .iter()
        .chain(semel_payments::code::ALL)
        .map(|code| (code.code.to_owned(), code.status.to_string()))
        .collect();
    assert_eq!(documented, answered);
}
