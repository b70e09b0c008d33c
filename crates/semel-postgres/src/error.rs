//! What PostgreSQL reports, as what to do next.

use semel::{Error, RecoveryPoint};
use tokio_postgres::error::SqlState;

/// SQLSTATEs that the functions in the schema `semel` raise.
const FENCED: &str = "SM001";
const ROW_COUNT: &str = "SM002";
const NOT_FIRST: &str = "SM003";
const RACED: &str = "SM004";
const ADVANCED: &str = "SM005";
const RELAY_FENCED: &str = "SM007";
const TOO_MANY_EVENTS: &str = "SM008";
const INCARNATION: &str = "SM009";
const RELAYS_RUN: &str = "SM010";
const AHEAD: &str = "SM011";
const PARTITION_LOST: &str = "SM012";
const CANCELLED: &str = "SM014";

/// The SQLSTATE beneath an error that a statement caused, for handlers that turn a violated constraint into an answer.
pub fn sql_state(error: &Error) -> Option<&SqlState> {
    let source = match error {
        Error::Statement(source) | Error::Unavailable(source) | Error::Conflict(source) => source,
        _ => return None,
    };
    source.downcast_ref::<tokio_postgres::Error>()?.code()
}

/// Whether running the transaction again from its start may succeed.
pub(crate) fn is_conflict(error: &tokio_postgres::Error) -> bool {
    let Some(code) = error.code() else { return false };
    matches!(*code, SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED) || is_stale_plan(error)
}

/// Whether a table changed under a prepared statement. The connection is closed, and a new one prepares it afresh.
fn is_stale_plan(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|reported| {
        *reported.code() == SqlState::FEATURE_NOT_SUPPORTED && reported.message().contains("cached plan")
    })
}

/// Whether the transaction was already aborted, so that an earlier error tells why.
pub(crate) fn is_aborted(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
}

/// Whether the connection broke, or the server or a pooler ended it, so that nothing says what became of what was sent.
/// A transaction that was ended for idling had ended before.
pub(crate) fn is_connection_lost(error: &tokio_postgres::Error) -> bool {
    let Some(reported) = error.as_db_error() else { return true };
    // The text, because a pooler does not send the field that the driver parses.
    let fatal = matches!(reported.severity(), "FATAL" | "PANIC");
    fatal && !matches!(reported.code().code(), "25P03" | "25P04")
}

/// Sorts an error of the driver by what to do next.
pub(crate) fn classify(error: tokio_postgres::Error) -> Error {
    let Some(reported) = error.as_db_error() else {
        // Without a report from the server it is the connection, or a value that could not be converted.
        return if error.is_closed() || is_io(&error) {
            Error::Unavailable(error.into())
        } else {
            Error::Statement(error.into())
        };
    };
    let message = reported.message();
    match reported.code().code() {
        FENCED | RELAY_FENCED | PARTITION_LOST => Error::Fenced,
        CANCELLED => Error::Cancelled,
        AHEAD => ahead(reported.detail()),
        TOO_MANY_EVENTS => too_many_events(message, reported.detail()),
        INCARNATION => incarnation(reported.detail()),
        RELAYS_RUN => Error::Settings(format!("{message}: stop the relays, or wait until their leases have run out")),
        ROW_COUNT => Error::RowCount(message.to_owned()),
        NOT_FIRST => Error::NotFirst(message.to_owned()),
        RACED => Error::Raced,
        // The detail is the recovery point at which the work stands.
        ADVANCED => Error::Advanced(reported.detail().and_then(|point| RecoveryPoint::new(point).ok())),
        // unique_violation of our own constraint: another run of the key committed first.
        "23505" if reported.schema() == Some("semel") && reported.constraint() == Some("keys_pkey") => Error::Raced,
        // The step was recorded after this transaction's snapshot: another one sees it. A step that records itself is
        // told SM004 instead.
        "23505" if reported.schema() == Some("semel") && reported.constraint() == Some("flow_steps_pkey") => {
            Error::Conflict(error.into())
        }
        "40001" | "40P01" => Error::Conflict(error.into()),
        "0A000" if is_stale_plan(&error) => Error::Conflict(error.into()),
        // statement_timeout, idle_in_transaction_session_timeout, transaction_timeout
        "57014" | "25P03" | "25P04" => Error::Deadline,
        // A named statement that the server behind a pooler does not know, or that another client left there.
        "26000" | "42P05" => Error::Settings(format!(
            "{message}: a pooler in transaction mode seems to stand in between; set postgres.statements = \"unnamed\" \
             (SEMEL_POSTGRES_STATEMENTS=unnamed)"
        )),
        // A missing schema, function or table of ours.
        "3F000" | "42883" | "42P01" if message.contains("semel") => {
            Error::Schema(format!("{message}: the database has no Semel schema; run `semel migrate`"))
        }
        "42501" if message.contains("semel") => not_allowed(message),
        // Shutdown, recovery, a read-only standby.
        "57P01" | "57P02" | "57P03" | "57P05" | "25006" => Error::Unavailable(error.into()),
        // Too many clients, a full disk, no memory: nobody's statement is at fault.
        "53000" | "53100" | "53200" | "53300" => Error::Unavailable(error.into()),
        // Such as too few parameters: the connection is fine, the statement is not.
        "08P01" if reported.severity() == "ERROR" => Error::Statement(error.into()),
        code if code.starts_with("08") || code.starts_with("58") => Error::Unavailable(error.into()),
        _ => Error::Statement(error.into()),
    }
}

/// What a statement of the store's own comes to that the role may not run. The server names a function without its
/// schema, so only whoever sent the statement knows whose it is.
pub(crate) fn classify_own(error: tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(reported) if *reported.code() == SqlState::INSUFFICIENT_PRIVILEGE => not_allowed(reported.message()),
        _ => classify(error),
    }
}

fn not_allowed(message: &str) -> Error {
    Error::Schema(format!("{message}: grant the role USAGE on schema semel and rights on what is in it"))
}

/// More events than a transaction may emit; the detail is the limit.
pub(crate) fn too_many_events(message: &str, detail: Option<&str>) -> Error {
    Error::TooManyEvents {
        what: message.to_owned(),
        limit: detail.and_then(|limit| limit.parse().ok()).unwrap_or(semel::outbox::MAX_EVENTS),
    }
}

/// A lane with too many holes; the detail is its number and its topic.
pub(crate) fn ahead(detail: Option<&str>) -> Error {
    let (lane, topic) = detail.and_then(|place| place.split_once(' ')).unwrap_or_default();
    let limit = semel::inbox::MAX_RANGES;
    Error::Ahead { topic: topic.to_owned(), lane: lane.parse().unwrap_or_default(), limit }
}

/// The detail names the incarnation of the positions, which may be none, and the one of now.
fn incarnation(detail: Option<&str>) -> Error {
    let (positions_of, now) = detail.and_then(|names| names.split_once(' ')).unwrap_or_default();
    Error::Incarnation { positions_of: positions_of.to_owned(), now: now.to_owned() }
}

/// An error of the pool: no connection could be had, so nothing ran.
pub(crate) fn of_pool(error: deadpool_postgres::PoolError) -> Error {
    match error {
        deadpool_postgres::PoolError::Backend(error) => match error.as_db_error() {
            // Wrong password, unknown role or database: waiting will not help, but nothing ran either.
            Some(_) => match classify(error) {
                Error::Statement(source) => Error::Unavailable(source),
                other => other,
            },
            None => Error::Unavailable(error.into()),
        },
        other => Error::Unavailable(other.into()),
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if inner.is::<std::io::Error>() {
            return true;
        }
        cause = inner.source();
    }
    false
}
