//! What can go wrong in a store, and what to do next.

use std::error::Error as StdError;

use crate::lease::RecoveryPoint;

/// The cause beneath an error of a store.
pub type Source = Box<dyn StdError + Send + Sync>;

/// What can go wrong between a claim and its commit.
///
/// Whatever the variant, no reply is reported that did not commit with its effect (I1). [`Error::next`] says what to
/// do; [`Error::Ambiguous`] alone leaves open whether the effect committed, and asking again with the same key tells.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store could not be asked, so nothing ran (I10).
    #[error("the store cannot be reached; nothing was committed, try again later")]
    Unavailable(#[source] Source),
    /// A serialization failure or deadlock rolled everything back.
    #[error("the transaction conflicted with another and was rolled back; run it again from its start")]
    Conflict(#[source] Source),
    /// Another run of the same key committed first; this one was rolled back.
    #[error("another run of this key committed first and this one was rolled back; ask for the key again")]
    Raced,
    /// COMMIT was sent and its acknowledgement never came, and asking did not settle it in time.
    #[error("it is not known whether the transaction committed; ask again with the same key")]
    Ambiguous(#[source] Source),
    /// COMMIT was sent, its acknowledgement never came, and asking showed that it did not take effect.
    #[error("the connection broke before the commit took effect; everything was rolled back, run it again")]
    RolledBack,
    /// The work took longer than the transaction deadline and was rolled back.
    #[error("the work took longer than the transaction deadline and was rolled back")]
    Deadline,
    /// The lease was lost: another worker took over, and this one's write was refused (I7).
    #[error("the lease was lost to another worker; this one's write was refused")]
    Fenced,
    /// An operator asked for the flow to be undone: nothing new of it begins, and what this worker did is rolled back.
    #[error("an operator asked for the flow to be undone; nothing new of it begins")]
    Cancelled,
    /// The work under the lease stands at another recovery point than the lease says: a step has been committed
    /// already.
    #[error("the work stands at {}, not where the lease says; go on from there", at_or_start(.0.as_ref()))]
    Advanced(Option<RecoveryPoint>),
    /// A deferred statement touched another number of rows than declared; everything was rolled back.
    #[error("a deferred statement did not touch the declared number of rows and everything was rolled back: {0}")]
    RowCount(String),
    /// The reply is larger than the limit; an effect whose reply cannot be replayed never commits (I12).
    #[error("the reply takes {bytes} bytes and the limit is {limit}; the effect was rolled back")]
    ReplyTooLarge {
        /// What the reply takes.
        bytes: usize,
        /// What it may take.
        limit: usize,
    },
    /// The claim was not the first statement of a transaction above READ COMMITTED.
    #[error("above READ COMMITTED the claim must be the first statement of the transaction: {0}")]
    NotFirst(String),
    /// The database has no Semel schema, or another version of it.
    #[error("{0}")]
    Schema(String),
    /// The setting cannot work, and the message says which one and why.
    #[error("{0}")]
    Settings(String),
    /// A stored reply could not be opened or read.
    #[error("a stored reply cannot be read")]
    Reply(#[source] Source),
    /// The transaction emits more than one may; everything was rolled back (I12).
    #[error("the transaction emits {what}, and the limit is {limit}; everything was rolled back")]
    TooManyEvents {
        /// What it emits.
        what: String,
        /// How many are allowed.
        limit: usize,
    },
    /// A lane of messages has too many holes: messages that were not applied while later ones were (I12).
    #[error(
        "lane {lane} of topic {topic} has {limit} gaps before messages that were applied; nothing more is accepted \
         until one closes"
    )]
    Ahead {
        /// Which topic.
        topic: String,
        /// Which lane.
        lane: u16,
        /// How many gaps there may be.
        limit: usize,
    },
    /// The outbox's positions were stored in another incarnation of the database: it was restored, or failed over.
    #[error(
        "the outbox's positions belong to database incarnation {positions_of} and this is {now}: the database was \
         restored or failed over; run `semel outbox rebase`"
    )]
    Incarnation {
        /// Where the positions come from.
        positions_of: String,
        /// The database's incarnation now.
        now: String,
    },
    /// A statement failed for a reason that running it again will not mend.
    #[error("a statement failed")]
    Statement(#[source] Source),
}

fn at_or_start(point: Option<&RecoveryPoint>) -> String {
    point.map_or_else(|| "its start".to_owned(), |point| format!("recovery point {point}"))
}

/// What to do after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Everything was rolled back; the same work may run again from its start.
    RunAgain,
    /// Ask for the key again: it tells whether the work committed.
    AskAgain,
    /// Try later: the store could not be asked.
    Later,
    /// Neither waiting nor repeating helps.
    Stop,
}

impl Error {
    /// What to do next.
    pub fn next(&self) -> Next {
        match self {
            Error::Conflict(_) | Error::RolledBack => Next::RunAgain,
            Error::Raced | Error::Ambiguous(_) => Next::AskAgain,
            Error::Unavailable(_) => Next::Later,
            _ => Next::Stop,
        }
    }
}

/// The text of an error with its causes, cut to what is stored of it.
pub(crate) fn told(error: &Source) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    const MOST: usize = 1000;
    if text.len() > MOST {
        let cut = (0..=MOST).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(cut);
    }
    text
}
