//! Why a step, or a flow, gave no result.

use std::error::Error as StdError;

use super::failure::Failure;
use super::job;
use super::journal::{Kind, MAX_FLOW_BYTES, MAX_KEPT_BYTES, MAX_STEP_CHARACTERS, MAX_STEPS};
use crate::error::Source;
use crate::{Error as StoreError, Reply, event, reply};

/// What a step, or a flow, comes to.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The most bytes of a cause that are stored.
const MAX_CAUSE_BYTES: usize = 1000;

/// Why a step, or a flow, gave no result.
///
/// Only [`Error::Failed`] is an answer that a function may act on: it is recorded with its step, so every later run of
/// the function sees the same. All others end this run. The function returns them, and whatever it tries instead is
/// refused with [`Error::Stopped`]: another run would go another way, and nobody could say any more what was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It failed for good. If the function returns it, the flow is undone and answers with the failure's reply.
    #[error(transparent)]
    Failed(Failure),
    /// It may pass: the flow is parked and run again later, with growing pauses, until its life is over.
    #[error("it failed in a way that may pass, and the flow is run again later")]
    Retry(#[source] Source),
    /// The store failed; the flow is run again later, by whoever holds its lease then.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The code does not fit what is recorded. Nothing is lost: the flow waits until a version comes that fits.
    #[error(transparent)]
    Changed(#[from] Changed),
    /// This run is over: the flow pauses, is held for a person, has its reply, or an earlier error ended the run.
    #[error("this run of the flow is over; return the error from the function")]
    Stopped,
}

/// How the code does not fit what is recorded of a flow. The texts say what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Changed {
    /// A name is used by two steps of one run.
    #[error("the step {step:?} is asked for twice in one run; a name is a step's identity, so give the second another")]
    DuplicateStep {
        /// Its name.
        step: String,
    },
    /// A recorded step was not asked for before the next new one, before the end, or before the flow is undone.
    #[error(
        "the step {step:?} is recorded and the flow {flow:?} did not ask for it; ask for it where it used to stand, or \
         say flow.retired({step:?}) there and, if it has to be undone, flow.compensate({step:?}, …)"
    )]
    Vanished {
        /// The step that is recorded.
        step: String,
        /// The flow whose function lacks it.
        flow: String,
    },
    /// A step is recorded as something else.
    #[error(
        "the step {step:?} is recorded as a {} and asked for as a {}; give what it is now another name",
        recorded.as_str(), asked.as_str()
    )]
    KindChanged {
        /// Its name.
        step: String,
        /// What it was.
        recorded: Kind,
        /// What it is now.
        asked: Kind,
    },
    /// A call is recorded with another provider, which may know its key.
    #[error(
        "the call {step:?} was begun at the provider {recorded:?} and is now to go to {asked:?}, which knows nothing \
         of it; let begun flows end at the old one, and give the call to the new one another name"
    )]
    ProviderChanged {
        /// The step.
        step: String,
        /// Who was called.
        recorded: String,
        /// Who is to be called now.
        asked: String,
    },
    /// A recorded result is not what the code expects.
    #[error("the result of the step {step:?} cannot be read: {why}; read both forms until old flows have ended")]
    Unreadable {
        /// The step.
        step: String,
        /// What is wrong with it.
        why: String,
    },
    /// The stored input is not what the function takes.
    #[error("the stored input of the flow {flow:?} cannot be read: {why}; read both forms until old flows have ended")]
    UnreadableInput {
        /// The flow.
        flow: String,
        /// What is wrong with it.
        why: String,
    },
    /// A result cannot be written as JSON.
    #[error("the result of the step {step:?} cannot be written as JSON: {why}")]
    Unwritable {
        /// The step.
        step: String,
        /// Why not.
        why: String,
    },
    /// A result is larger than what is kept (I12). What a commit did was rolled back.
    #[error("the result of the step {step:?} takes {bytes} bytes and the limit is {MAX_KEPT_BYTES}; return less of it")]
    TooLarge {
        /// The step.
        step: String,
        /// What it takes.
        bytes: usize,
    },
    /// The results of a flow are larger than what is kept of one (I12). What a commit did was rolled back.
    #[error("with the result of the step {step:?} the flow keeps more than {MAX_FLOW_BYTES} bytes; return less")]
    TooMuch {
        /// The step.
        step: String,
    },
    /// A provider is called that the definition does not declare, so nobody has checked its profile.
    #[error("the flow {flow:?} calls the provider {provider:?}, which its definition lacks; add it to calling")]
    UnknownProvider {
        /// The provider.
        provider: String,
        /// The flow.
        flow: String,
    },
    /// No function of this name is registered.
    #[error("no flow {flow:?} is registered here; register it, or run it where it is")]
    Unregistered {
        /// The name.
        flow: String,
    },
    /// A step cannot have this name.
    #[error(
        "the name of a step must be 1 to {MAX_STEP_CHARACTERS} visible ASCII characters, the first of them not '~'; it \
         is {step:?}"
    )]
    StepName {
        /// The name.
        step: String,
    },
    /// A step is to be compensated that this run has not asked for.
    #[error("the step {step:?} is to be compensated and was not asked for; name a step that stands before it")]
    NoSuchStep {
        /// The name.
        step: String,
    },
    /// The flow has as many steps as are recorded of one, the room for compensations included (I12).
    #[error("the flow {flow:?} has more than the {MAX_STEPS} steps, compensations included, that are kept of one")]
    TooManySteps {
        /// The flow.
        flow: String,
    },
}

impl Error {
    /// A failure for good: `code` is for programs, `reason` for people. Both may be shown to the client.
    pub fn fail(code: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Failed(Failure::new(code, reason))
    }

    /// A failure that may pass.
    pub fn retry(cause: impl Into<Source>) -> Error {
        Error::Retry(cause.into())
    }

    /// Says what a flow answers that failed like this, once it is undone. Other errors stay as they are.
    #[must_use]
    pub fn replying(self, reply: Reply) -> Error {
        match self {
            Error::Failed(failure) => Error::Failed(failure.replying(reply)),
            other => other,
        }
    }

    /// Whether it failed for good.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Error::Failed(_))
    }
}

impl From<reply::Invalid> for Error {
    fn from(invalid: reply::Invalid) -> Error {
        Error::Retry(invalid.into())
    }
}

impl From<event::Invalid> for Error {
    fn from(invalid: event::Invalid) -> Error {
        Error::Retry(invalid.into())
    }
}

impl From<job::Invalid> for Error {
    fn from(invalid: job::Invalid) -> Error {
        Error::Retry(invalid.into())
    }
}

/// The text of an error with its causes, cut to what is stored of it.
pub(super) fn text_of(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    cut(text)
}

/// As much of a text as is stored.
pub(super) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_CAUSE_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_for_good_is_terminal() {
        assert!(Error::fail("out-of-stock", "there is none left").is_terminal());
        for error in [
            Error::retry("not now"),
            Error::Store(StoreError::Fenced),
            Changed::Unregistered { flow: "order".to_owned() }.into(),
            Error::Stopped,
        ] {
            assert!(!error.is_terminal(), "{error}");
        }
    }

    #[test]
    fn a_cause_is_told_with_its_sources_and_cut_between_characters() {
        let told = text_of(&Error::retry("connection refused"));
        assert!(told.ends_with("run again later: connection refused"), "{told}");
        assert_eq!(cut("é".repeat(600)).len(), 1000);
        assert_eq!(cut(format!("a{}", "é".repeat(600))).len(), 999);
    }
}
