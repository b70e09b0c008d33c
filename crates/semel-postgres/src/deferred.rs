//! Statements that travel with the completion.

use std::fmt;

use crate::parameter::Parameter;

/// A statement whose result the work does not need, so that it can travel in one flight with the completion and COMMIT.
///
/// It declares how many rows it touches. Another number fails the transaction on the server, before the completion: a
/// balance update that hits no row cannot end in a stored success. It must be one INSERT, UPDATE or DELETE without
/// RETURNING.
pub struct Deferred {
    pub(crate) sql: String,
    pub(crate) params: Vec<Box<dyn Parameter + Send>>,
}

impl Deferred {
    /// A statement that touches exactly `rows` rows.
    pub fn expecting(rows: u32, sql: impl AsRef<str>) -> Deferred {
        let sql = sql.as_ref().trim().trim_end_matches(';');
        Deferred {
            sql: format!(
                "WITH semel_deferred AS ({sql} RETURNING 1) \
                 SELECT CASE count(*) WHEN {rows} THEN {rows}::bigint ELSE semel.require_rows(count(*), {rows}) END \
                 FROM semel_deferred"
            ),
            params: Vec::new(),
        }
    }

    /// Binds the next parameter.
    #[must_use]
    pub fn bind(mut self, value: impl Parameter + Send + 'static) -> Deferred {
        self.params.push(Box::new(value));
        self
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("sql", &self.sql).field("params", &self.params.len()).finish()
    }
}
