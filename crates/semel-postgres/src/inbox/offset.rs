//! Where a consumer reads on.

use semel::{Consumer, Error};

use crate::error::classify;
use crate::store::Postgres;

const NEXT: &str = "SELECT semel.next_offset($1, $2, $3, $4, $5)";

pub(super) async fn next(
    store: &Postgres,
    consumer: &Consumer,
    source: &str,
    topic: &str,
    partition: i32,
) -> Result<Option<i64>, Error> {
    let generation = i32::try_from(consumer.generation()).unwrap_or(i32::MAX);
    let row = store.call(NEXT, &[&consumer.name(), &source, &topic, &partition, &generation]).await?;
    row.try_get(0).map_err(classify)
}
