//! What makes a failed COMMIT final.
//!
//! A COMMIT whose fsync fails is undone in this process, but its frames, the commit mark included, may be in the
//! write-ahead log already: after a crash, recovery would take them for committed, and an effect would come back that
//! somebody was told is not there. The next commit starts at the same place of the log. Once it is durable, the frames
//! it overwrote are gone, and those behind it are worthless, because the checksum of a frame covers all frames before
//! it. So the writer makes such a commit, the barrier, before it says that anything was rolled back (I1, I2).

use rusqlite::Connection;

use crate::error::is_busy;
use crate::writer::{roll_back, run};

/// Whether a COMMIT that failed like this may have left its frames in the log. A constraint and a lock are judged
/// before anything is written.
pub(crate) fn is_needed(error: &rusqlite::Error) -> bool {
    !is_busy(error) && error.sqlite_error_code() != Some(rusqlite::ErrorCode::ConstraintViolation)
}

/// Commits without changing anything. After `Ok` whatever failed to commit before is rolled back for good; after an
/// error nobody knows.
pub(crate) fn write(connection: &Connection) -> rusqlite::Result<()> {
    roll_back(connection);
    run(connection, "BEGIN IMMEDIATE")?;
    let written = rewrite_first_page(connection).and_then(|()| run(connection, "COMMIT"));
    roll_back(connection);
    written
}

/// The file's user version belongs to the service. Setting it to what it is changes it for nobody and still writes the
/// page that it is on, whatever tables the file has.
fn rewrite_first_page(connection: &Connection) -> rusqlite::Result<()> {
    let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    connection.pragma_update(None, "user_version", version)
}
