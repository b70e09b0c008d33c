//! Values that know their PostgreSQL type.

use std::error::Error;
use std::time::{Duration, SystemTime};

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

/// A value that a statement is given. It names its type, so that a statement needs no round trip to be prepared and
/// works behind a pooler in transaction mode.
///
/// For a type that is not listed here, wrap the value: `Typed(value, Type::JSONB)`.
pub trait Parameter: ToSql + Sync {
    /// The type that the statement is told.
    fn sql_type(&self) -> Type;

    /// The value as the driver takes it.
    fn as_to_sql(&self) -> &(dyn ToSql + Sync);
}

macro_rules! parameters {
    ($($rust:ty => $sql:ident),* $(,)?) => {
        $(
            impl Parameter for $rust {
                fn sql_type(&self) -> Type {
                    Type::$sql
                }

                fn as_to_sql(&self) -> &(dyn ToSql + Sync) {
                    self
                }
            }

            impl Parameter for Option<$rust> {
                fn sql_type(&self) -> Type {
                    Type::$sql
                }

                fn as_to_sql(&self) -> &(dyn ToSql + Sync) {
                    self
                }
            }
        )*
    };
}

parameters! {
    bool => BOOL,
    i16 => INT2,
    i32 => INT4,
    i64 => INT8,
    u32 => OID,
    f32 => FLOAT4,
    f64 => FLOAT8,
    &str => TEXT,
    String => TEXT,
    &[u8] => BYTEA,
    Vec<u8> => BYTEA,
    Uuid => UUID,
    SystemTime => TIMESTAMPTZ,
    Vec<String> => TEXT_ARRAY,
    Vec<i64> => INT8_ARRAY,
    Vec<Uuid> => UUID_ARRAY,
}

/// A value with its type spelt out.
#[derive(Debug)]
pub struct Typed<T>(pub T, pub Type);

impl<T: ToSql> ToSql for Typed<T> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.0.to_sql(ty, out)
    }

    fn accepts(ty: &Type) -> bool {
        T::accepts(ty)
    }

    fn to_sql_checked(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.0.to_sql_checked(ty, out)
    }
}

impl<T: ToSql + Sync> Parameter for Typed<T> {
    fn sql_type(&self) -> Type {
        self.1.clone()
    }

    fn as_to_sql(&self) -> &(dyn ToSql + Sync) {
        self
    }
}

/// A duration as an interval, to the millisecond. One that is too long for its microseconds is as long as they go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interval(pub(crate) Duration);

impl ToSql for Interval {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        // Microseconds, days, months.
        out.put_i64(i64::try_from(self.0.as_millis().saturating_mul(1000)).unwrap_or(i64::MAX));
        out.put_i32(0);
        out.put_i32(0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::INTERVAL
    }

    to_sql_checked!();
}

impl Parameter for Interval {
    fn sql_type(&self) -> Type {
        Type::INTERVAL
    }

    fn as_to_sql(&self) -> &(dyn ToSql + Sync) {
        self
    }
}
