//! Opening a connection.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use semel::Error;

use crate::error::{classify, is_busy};

/// How many prepared statements a connection keeps.
const STATEMENTS: usize = 256;

/// How long to wait for other processes to let a file be opened.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens a connection whose commits survive a power failure: write-ahead log, fsync at every COMMIT. A file that is not
/// there is made, empty.
pub(crate) fn open(path: &Path, busy_timeout: Duration) -> Result<Connection, Error> {
    // Without SQLITE_OPEN_URI a path is a path, whatever characters it has.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if path.as_os_str().is_empty() || path.as_os_str().as_encoded_bytes().starts_with(b":") {
        return Err(Error::Settings(format!(
            "{:?} is not a file: Semel needs a database file, because what is only in memory does not survive a crash",
            path.display()
        )));
    }
    let connection = Connection::open_with_flags(path, flags).map_err(classify)?;
    // Changing the journal mode needs the file for a moment, and other processes may have it.
    connection.busy_timeout(busy_timeout.max(PATIENCE)).map_err(classify)?;
    let mode = use_log(&connection).map_err(unavailable)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(Error::Settings(format!(
            "{} cannot use a write-ahead log (SQLite answered {mode:?}); put it on a local file system",
            path.display()
        )));
    }
    for (pragma, value) in [
        ("synchronous", "FULL"),
        ("foreign_keys", "ON"),
        // After a long reader has let go, the log shrinks to this size again (I12).
        ("journal_size_limit", "67108864"),
    ] {
        connection.pragma_update(None, pragma, value).map_err(unavailable)?;
    }
    connection.busy_timeout(busy_timeout).map_err(classify)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Switches to the write-ahead log and returns the mode that the file has then. Of several that do so together with a
/// new file, SQLite refuses all but one without waiting, because each holds what the others need; whoever was refused
/// has let go of it and tries again.
fn use_log(connection: &Connection) -> rusqlite::Result<String> {
    let ends = Instant::now() + PATIENCE;
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)) {
            Err(error) if is_busy(&error) && Instant::now() < ends => std::thread::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
}

/// Makes durable what recovery found in the log. A process that is killed while it commits may leave a commit there
/// that no fsync has reached; it must not be replayed before it is sure to survive a power failure (I1).
pub(crate) fn make_durable(connection: &Connection) -> Result<(), Error> {
    // A checkpoint syncs the log first. A passive one waits for nobody; where it finds others at work, the log was not
    // recovered now.
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(())).map_err(unavailable)
}

/// A file that cannot be opened now, whatever SQLite calls it, is a store that cannot be asked (I10).
fn unavailable(error: rusqlite::Error) -> Error {
    Error::Unavailable(error.into())
}
