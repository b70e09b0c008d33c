//! Which statements the work may run.

use semel::Error;

/// Words that begin a statement which would end or move the transaction that the work shares with others, or change
/// how its connection works.
const REFUSED: &[&str] =
    &["begin", "commit", "end", "rollback", "savepoint", "release", "attach", "detach", "pragma", "vacuum"];

/// Refuses statements that control the transaction: it commits when the reply is stored, with others in its group.
pub(crate) fn check(sql: &str) -> Result<(), Error> {
    let word = first_word(sql);
    if REFUSED.iter().any(|refused| refused.eq_ignore_ascii_case(word)) {
        return Err(Error::Statement(
            format!("{word} is not for the work to run: the transaction ends when the work does").into(),
        ));
    }
    Ok(())
}

/// The first word, after white space, semicolons and comments.
fn first_word(sql: &str) -> &str {
    let mut rest = sql;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';' || c == '\u{feff}');
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, after)| after);
        } else {
            let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            return &rest[..end];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_control_the_transaction_are_refused_however_they_are_dressed() {
        for sql in ["COMMIT", " ;\n-- a\n/* b */ Commit;", "end transaction", "ROLLBACK TO semel_turn", "PRAGMA x=1"] {
            assert!(check(sql).is_err(), "{sql}");
        }
        for sql in ["SELECT 1", "/* COMMIT */ INSERT INTO a VALUES (1)", "WITH b AS (SELECT 1) SELECT * FROM b", ""] {
            assert!(check(sql).is_ok(), "{sql}");
        }
    }
}
