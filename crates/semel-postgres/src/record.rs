//! A composite value, read like a row.
//!
//! A function that returns one in the select list spares its caller the scan that `FROM` sets up, and says "nothing" by
//! a null.

use std::error::Error as StdError;

use semel::Error;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::error::classify;

type Broken = Box<dyn StdError + Sync + Send>;

/// Something with columns that have names.
pub(crate) trait Columns {
    fn column<'a, T: FromSql<'a>>(&'a self, name: &str) -> Result<T, Error>;
}

impl Columns for Row {
    fn column<'a, T: FromSql<'a>>(&'a self, name: &str) -> Result<T, Error> {
        self.try_get(name).map_err(classify)
    }
}

/// The fields of a composite value, in order.
pub(crate) struct Record<'a> {
    fields: Vec<(Type, Option<&'a [u8]>)>,
}

impl<'r> FromSql<'r> for Record<'r> {
    /// As the server sends it: how many fields, and of each its type, its length and its bytes; a null has length -1.
    fn from_sql(_: &Type, raw: &'r [u8]) -> Result<Record<'r>, Broken> {
        let mut left = raw;
        let count = number(&mut left)?;
        let mut fields = Vec::new();
        for _ in 0..count {
            let oid = number(&mut left)?.cast_unsigned();
            let sql_type = Type::from_oid(oid).ok_or_else(|| format!("a field has the type {oid}"))?;
            let value = match usize::try_from(number(&mut left)?) {
                Ok(length) => {
                    let (value, rest) = left.split_at_checked(length).ok_or("a field is cut short")?;
                    left = rest;
                    Some(value)
                }
                Err(_) => None,
            };
            fields.push((sql_type, value));
        }
        Ok(Record { fields })
    }

    fn accepts(sql_type: &Type) -> bool {
        *sql_type == Type::RECORD
    }
}

impl Record<'_> {
    /// The same with names for its fields, which do not travel.
    pub(crate) fn named<'a>(&'a self, names: &'a [&'a str]) -> impl Columns + 'a {
        Named { record: self, names }
    }
}

struct Named<'a> {
    record: &'a Record<'a>,
    names: &'a [&'a str],
}

impl Columns for Named<'_> {
    fn column<'a, T: FromSql<'a>>(&'a self, name: &str) -> Result<T, Error> {
        let position = self.names.iter().position(|known| *known == name);
        let field = position.and_then(|position| self.record.fields.get(position));
        let (sql_type, value) = field.ok_or_else(|| misread(name, "it is not there"))?;
        if !T::accepts(sql_type) {
            return Err(misread(name, sql_type.name()));
        }
        T::from_sql_nullable(sql_type, *value).map_err(|error| misread(name, &error.to_string()))
    }
}

fn misread(name: &str, problem: &str) -> Error {
    Error::Schema(format!("an answer's {name} cannot be read ({problem}): run `semel migrate`"))
}

fn number(left: &mut &[u8]) -> Result<i32, Broken> {
    let (number, rest) = left.split_first_chunk().ok_or("a composite value is cut short")?;
    *left = rest;
    Ok(i32::from_be_bytes(*number))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// `ROW(true, NULL::text, 7::smallint)`
    const SENT: &[u8] = b"\0\0\0\x03\0\0\0\x10\0\0\0\x01\x01\0\0\0\x19\xff\xff\xff\xff\0\0\0\x15\0\0\0\x02\0\x07";

    fn read(raw: &[u8]) -> Result<Record<'_>, Broken> {
        Record::from_sql(&Type::RECORD, raw)
    }

    #[test]
    fn fields_are_read_by_the_names_they_are_given() {
        let record = read(SENT).unwrap();
        let columns = record.named(&["locked", "outcome", "status"]);
        assert!(columns.column::<bool>("locked").unwrap());
        assert_eq!(columns.column::<Option<&str>>("outcome").unwrap(), None);
        assert_eq!(columns.column::<i16>("status").unwrap(), 7);
        assert!(columns.column::<&str>("outcome").is_err(), "a null is no text");
        assert!(columns.column::<i64>("status").is_err(), "of another type");
        assert!(columns.column::<bool>("body").is_err(), "not among the names");
    }

    #[test]
    fn what_is_cut_short_is_refused_at_every_byte() {
        for length in 0..SENT.len() {
            assert!(read(&SENT[..length]).is_err(), "{length}");
        }
    }
}
