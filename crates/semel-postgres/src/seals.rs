//! Which sealing keys stored replies still need.

use semel::Error;

use crate::error::classify;
use crate::store::Postgres;

const MISSING: &str = include_str!("sql/missing_seals.sql");
const REGISTER: &str = "INSERT INTO semel.seals (id) SELECT unnest($1) ON CONFLICT (id) DO NOTHING";

/// Fails if a live row needs a key that is not known; otherwise remembers the known ones. An id is never forgotten:
/// another process may still be sealing with it.
pub(crate) async fn check(store: &Postgres, known: &[String]) -> Result<(), Error> {
    let known = known.to_vec();
    if let Some(row) = store.query(MISSING, &[&known]).await?.first() {
        let (id, until): (String, String) =
            (row.try_get("id").map_err(classify)?, row.try_get("until").map_err(classify)?);
        return Err(Error::Settings(format!(
            "stored replies are sealed with key {id:?}, which is not among the sealing keys; keep it until {until}, \
             when the last of them expires"
        )));
    }
    store.query(REGISTER, &[&known]).await?;
    Ok(())
}
