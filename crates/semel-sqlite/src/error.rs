//! What SQLite reports, as what to do next.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE};
use semel::Error;

/// The SQLite error beneath an error that a statement caused, for handlers that turn a violated constraint into an
/// answer.
pub fn sqlite_error(error: &Error) -> Option<&rusqlite::Error> {
    match error {
        Error::Statement(source) | Error::Unavailable(source) | Error::Conflict(source) => source.downcast_ref(),
        _ => None,
    }
}

/// Whether a statement of the work violated a UNIQUE or PRIMARY KEY constraint. The transaction goes on without it.
pub fn is_unique_violation(error: &Error) -> bool {
    sqlite_error(error).is_some_and(violates_unique)
}

pub(crate) fn violates_unique(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(SQLITE_CONSTRAINT_UNIQUE | SQLITE_CONSTRAINT_PRIMARYKEY))
}

pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Sorts an error of SQLite by what to do next. The error itself stays reachable as the source.
pub(crate) fn classify(error: rusqlite::Error) -> Error {
    if is_busy(&error) {
        return Error::Conflict(error.into());
    }
    match error.sqlite_error_code() {
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::DiskFull
            | ErrorCode::NotADatabase
            | ErrorCode::DatabaseCorrupt
            | ErrorCode::ReadOnly
            | ErrorCode::OutOfMemory
            | ErrorCode::PermissionDenied
            | ErrorCode::FileLockingProtocolFailed,
        ) => Error::Unavailable(error.into()),
        _ => {
            let message = error.to_string();
            if message.contains("no such table: semel_") {
                return Error::Schema(format!("{message}: the file has no Semel schema; run `semel migrate`"));
            }
            Error::Statement(error.into())
        }
    }
}

/// Locks, whatever became of the thread that held the lock before: what is kept under these locks is consistent between
/// any two statements, so a panic in a caller's closure leaves nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A duration in whole milliseconds, as the database keeps it.
pub(crate) fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
