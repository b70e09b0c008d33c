//! Statements that run at the completion.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use semel::Error;

use crate::error::classify;
use crate::statement;

/// A statement whose result the work does not need, so that it can run at the completion: an operation that defers all
/// its statements holds the writer for microseconds.
///
/// It declares how many rows it touches. Another number rolls everything back with [`Error::RowCount`]: a balance
/// update that hits no row cannot end in a stored success. It must be one INSERT, UPDATE or DELETE without RETURNING.
#[derive(Debug, Clone, PartialEq)]
pub struct Deferred {
    rows: u64,
    sql: String,
    values: Vec<Value>,
}

impl Deferred {
    /// A statement that touches exactly `rows` rows.
    pub fn expecting(rows: u64, sql: impl Into<String>) -> Deferred {
        Deferred { rows, sql: sql.into(), values: Vec::new() }
    }

    /// Binds the next parameter.
    #[must_use]
    pub fn bind(mut self, value: impl Into<Value>) -> Deferred {
        self.values.push(value.into());
        self
    }

    pub(crate) fn run(&self, connection: &Connection) -> Result<(), Error> {
        statement::check(&self.sql)?;
        let mut statement = connection.prepare_cached(&self.sql).map_err(classify)?;
        let touched = statement.execute(params_from_iter(&self.values)).map_err(classify)?;
        if touched as u64 == self.rows {
            return Ok(());
        }
        Err(Error::RowCount(format!("expected {} and touched {touched}: {}", self.rows, self.sql)))
    }
}
