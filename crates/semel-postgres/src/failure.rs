//! Why statements of a transaction failed.

use semel::Error;
use tokio_postgres::Row;

use crate::error::{classify, classify_own, is_aborted, is_connection_lost};

/// Why a statement failed.
pub(crate) enum Failure {
    Driver(tokio_postgres::Error),
    Ours(Error),
}

impl Failure {
    pub(crate) fn classified(self) -> Error {
        match self {
            Failure::Driver(error) => classify(error),
            Failure::Ours(error) => error,
        }
    }

    /// The same of a statement of the store's own.
    pub(crate) fn classified_own(self) -> Error {
        match self {
            Failure::Driver(error) => classify_own(error),
            Failure::Ours(error) => error,
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        Failure::Driver(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Ours(error)
    }
}

pub(crate) type Answers = Vec<Result<Vec<Row>, tokio_postgres::Error>>;

/// The error that decides: a broken connection makes the outcome ambiguous; otherwise it is the first that is not a
/// mere consequence of an earlier one.
pub(crate) fn first_failure(answers: Answers) -> Option<Error> {
    let mut failures: Vec<tokio_postgres::Error> = answers.into_iter().filter_map(Result::err).collect();
    let decides = failures.iter().position(|error| !is_connection_lost(error) && !is_aborted(error));
    if let Some(position) = decides {
        return Some(classify(failures.swap_remove(position)));
    }
    let error = failures.into_iter().next()?;
    if is_connection_lost(&error) { Some(Error::Ambiguous(error.into())) } else { Some(classify(error)) }
}
