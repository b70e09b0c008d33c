//! Which sealing keys stored replies and flows need.

use rusqlite::Connection;
use semel::Error;

use crate::error::classify;
use crate::store::Sqlite;

const SEALS: &str = include_str!("sql/seals.sql");
const FLOW_SEALS: &str = include_str!("sql/flow/seals.sql");
const REMEMBER_SEAL: &str = include_str!("sql/remember_seal.sql");

impl Sqlite {
    /// Refuses to go on while a live reply, or a flow that has not ended, needs a sealing key that this process lacks,
    /// and remembers the keys in use, in one commit. An id is never forgotten: another process may still be sealing
    /// with it.
    pub(crate) async fn check_known_seals(&self, known: &[String]) -> Result<(), Error> {
        self.transact(None, |connection| {
            let now_ms = self.now_ms();
            for (id, rows, until_ms) in seals(connection, now_ms)? {
                if known.contains(&id) {
                    continue;
                }
                if rows > 0 {
                    let seconds = until_ms.unwrap_or(now_ms).saturating_sub(now_ms).div_euclid(1000) + 1;
                    return Err(Error::Settings(format!(
                        "{rows} stored replies are sealed with key {id:?}, which is not in the keyring; put it back \
                         behind the first key: the last of them expires in {seconds} s"
                    )));
                }
            }
            for (id, flows) in flow_seals(connection)? {
                if !known.contains(&id) {
                    return Err(Error::Settings(format!(
                        "{flows} flows that have not ended need sealing key {id:?}, which is not in the keyring; put \
                         it back behind the first key until they have"
                    )));
                }
            }
            for id in known {
                connection.execute(REMEMBER_SEAL, (id,)).map_err(classify)?;
            }
            Ok(())
        })
        .await
    }
}

fn seals(connection: &Connection, now_ms: i64) -> Result<Vec<(String, i64, Option<i64>)>, Error> {
    let mut seals = connection.prepare(SEALS).map_err(classify)?;
    let rows = seals.query_map((now_ms,), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).map_err(classify)?;
    rows.collect::<rusqlite::Result<_>>().map_err(classify)
}

fn flow_seals(connection: &Connection) -> Result<Vec<(String, i64)>, Error> {
    let mut seals = connection.prepare(FLOW_SEALS).map_err(classify)?;
    let rows = seals.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).map_err(classify)?;
    rows.collect::<rusqlite::Result<_>>().map_err(classify)
}
