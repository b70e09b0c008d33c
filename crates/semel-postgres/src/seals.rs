//! Which sealing keys stored replies and flows still need.

use semel::Error;

use crate::error::classify;
use crate::store::Postgres;

const MISSING: &str = include_str!("sql/missing_seals.sql");
const MISSING_BY_FLOWS: &str = include_str!("sql/flow_missing_seals.sql");
const REGISTER: &str = "INSERT INTO semel.seals (id) SELECT unnest($1) ON CONFLICT (id) DO NOTHING";

/// A role that may not read flows runs none, and needs nothing that they are sealed with.
const MAY_READ_FLOWS: &str =
    "SELECT has_table_privilege('semel.flows', 'SELECT') AND has_table_privilege('semel.flow_steps', 'SELECT')";

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
    if store.call(MAY_READ_FLOWS, &[]).await?.try_get::<_, bool>(0).map_err(classify)?
        && let Some(row) = store.query(MISSING_BY_FLOWS, &[&known]).await?.first()
    {
        let id: String = row.try_get("id").map_err(classify)?;
        return Err(Error::Settings(format!(
            "flows are sealed with key {id:?}, which is not among the sealing keys; keep it until the last of them has \
             ended"
        )));
    }
    store.query(REGISTER, &[&known]).await?;
    Ok(())
}
