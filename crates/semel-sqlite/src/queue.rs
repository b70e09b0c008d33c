//! Whose turn it is on the writer, who waits, and who awaits the group's COMMIT.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::Error;
use tokio::sync::oneshot;

use crate::turn::{Held, Turn};
use crate::writer::Shared;

/// The most operations that wait for a turn (I12).
const MAX_WAITING: usize = 65_536;

/// How long the writer rests between barriers that fail.
const BARRIER_EVERY: Duration = Duration::from_millis(100);

/// What a waiting operation is sent: its turn, or why it gets none.
type Granted = Result<Turn, Error>;

pub(crate) struct Queue {
    pub(crate) phase: Phase,
    waiting: VecDeque<oneshot::Sender<Granted>>,
    last_turn: u64,
    /// Whether the connection has a write transaction open, and since when.
    pub(crate) group: Option<Instant>,
    /// Whether the turn that is held has its savepoint open.
    pub(crate) savepoint: bool,
    pub(crate) pending: Vec<Pending>,
    /// How many of the next operations get a COMMIT of their own, after a COMMIT failed for what one of them did.
    pub(crate) alone: usize,
    /// Since when another process has been found to hold the file's write lock. It is one clock for all who wait,
    /// however the turn passes among them, so that they do not pay for the same lock one after another.
    contended: Option<Instant>,
    pub(crate) closing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    Held {
        turn: u64,
        until: Instant,
    },
    /// The thread takes a turn back whose deadline has passed.
    Revoking,
    /// The thread ends the group.
    Ending,
    /// A COMMIT failed and it is not known whether it would come back after a crash. No turn is given until a barrier
    /// has settled that.
    Barred {
        retry_at: Instant,
    },
}

/// An operation that is done and awaits its group's COMMIT.
pub(crate) struct Pending {
    pub(crate) done: oneshot::Sender<Result<(), Error>>,
    /// Dropped after the COMMIT, so that nobody can ask for the key in between.
    pub(crate) held: Option<Held>,
    pub(crate) news: News,
}

/// What an operation wrote that somebody may wait for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct News {
    pub(crate) events: bool,
    pub(crate) jobs: bool,
}

impl Queue {
    pub(crate) fn new() -> Queue {
        Queue {
            phase: Phase::Idle,
            waiting: VecDeque::new(),
            last_turn: 0,
            group: None,
            savepoint: false,
            pending: Vec::new(),
            alone: 0,
            contended: None,
            closing: false,
        }
    }

    /// A turn if nobody has it, otherwise a place in the queue.
    pub(crate) fn ask(&mut self, shared: &Arc<Shared>) -> Result<Result<Turn, oneshot::Receiver<Granted>>, Error> {
        self.check_settled()?;
        if self.phase == Phase::Idle {
            return Ok(Ok(self.grant(shared)));
        }
        if self.waiting.len() >= MAX_WAITING {
            // Those who went away have left their places behind.
            self.waiting.retain(|waiting| !waiting.is_closed());
        }
        if self.waiting.len() >= MAX_WAITING {
            return Err(Error::Unavailable(format!("{MAX_WAITING} operations wait for the writer already").into()));
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.push_back(sender);
        Ok(Err(receiver))
    }

    /// [`Error::Unavailable`] while it is not known what became of a COMMIT.
    pub(crate) fn check_settled(&self) -> Result<(), Error> {
        if matches!(self.phase, Phase::Barred { .. }) { Err(barred()) } else { Ok(()) }
    }

    fn grant(&mut self, shared: &Arc<Shared>) -> Turn {
        self.last_turn += 1;
        self.phase = Phase::Held { turn: self.last_turn, until: Instant::now() + shared.deadline };
        Turn::new(Arc::clone(shared), self.last_turn)
    }

    /// Notes that `turn` has its savepoint: its deadline starts now.
    pub(crate) fn open(&mut self, turn: u64, deadline: Duration) {
        self.savepoint = true;
        self.phase = Phase::Held { turn, until: Instant::now() + deadline };
    }

    /// Whether `turn` is still held and in time.
    pub(crate) fn check(&self, turn: u64) -> Result<(), Error> {
        match self.phase {
            Phase::Held { turn: held, until } if held == turn && Instant::now() < until => Ok(()),
            _ => Err(Error::Deadline),
        }
    }

    pub(crate) fn holds(&self, turn: u64) -> bool {
        matches!(self.phase, Phase::Held { turn: held, .. } if held == turn)
    }

    /// Notes that the file's write lock was free.
    pub(crate) fn found_free(&mut self) {
        self.contended = None;
    }

    /// Notes that another process has the file's write lock. Once all have waited for it as long as they may, everybody
    /// is told, and the error is for the one who asks.
    pub(crate) fn found_locked(&mut self, patience: Duration) -> Result<(), Error> {
        if self.contended.get_or_insert_with(Instant::now).elapsed() < patience {
            return Ok(());
        }
        self.contended = None;
        self.refuse_waiting(locked_out);
        Err(locked_out())
    }

    /// Gives no turn any more until a barrier has been written.
    pub(crate) fn bar(&mut self) {
        self.phase = Phase::Barred { retry_at: Instant::now() + BARRIER_EVERY };
        self.refuse_waiting(barred);
    }

    fn refuse_waiting(&mut self, error: fn() -> Error) {
        for waiting in self.waiting.drain(..) {
            // One that went away needs no answer.
            let _ = waiting.send(Err(error()));
        }
    }

    /// Gives the turn to whoever waits longest, in the same group if it has room. With nobody waiting, or a full group,
    /// the group ends; without a group, the writer rests.
    pub(crate) fn pass_on(&mut self, shared: &Arc<Shared>) {
        while !self.is_full(shared) {
            let Some(waiting) = self.waiting.pop_front() else { break };
            if waiting.is_closed() {
                continue;
            }
            let turn = self.grant(shared);
            match waiting.send(Ok(turn)) {
                Ok(()) => return,
                // The caller went away in this moment. Its turn must not pass itself on: the queue is locked.
                Err(Ok(turn)) => turn.disarm(),
                Err(Err(_)) => {}
            }
        }
        self.phase = if self.group.is_some() { Phase::Ending } else { Phase::Idle };
        self.contended = None;
        if self.phase == Phase::Ending || self.closing {
            shared.wake();
        }
    }

    fn is_full(&self, shared: &Shared) -> bool {
        let limit = if self.alone > 0 { 1 } else { shared.group_limit };
        let aged = self.group.is_some_and(|opened| opened.elapsed() > shared.group_age);
        self.pending.len() >= limit || (aged && !self.pending.is_empty())
    }

    /// Forgets a group that SQLite has rolled back, and returns who must be told.
    #[must_use]
    pub(crate) fn lose(&mut self) -> Vec<Pending> {
        self.group = None;
        self.savepoint = false;
        std::mem::take(&mut self.pending)
    }
}

fn barred() -> Error {
    Error::Unavailable(
        "a commit failed and the log cannot be written; nothing runs until it can, so mend the disk".into(),
    )
}

fn locked_out() -> Error {
    Error::Unavailable("the database is locked by another process, which has not let go in time".into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::error::lock;
    use crate::options::Options;

    /// A writer whose thread never comes.
    fn without_thread() -> Arc<Shared> {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE effects (label TEXT NOT NULL)").unwrap();
        Arc::new(Shared::new(connection, &Options::default()))
    }

    fn take(shared: &Arc<Shared>) -> Turn {
        lock(&shared.queue).ask(shared).unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_turn_past_its_deadline_is_refused_before_the_thread_takes_it_back() {
        for at_the_end in [false, true] {
            let shared = without_thread();
            let turn = take(&shared);
            turn.begin().await.unwrap();
            let insert = |connection: &Connection| {
                connection.execute("INSERT INTO effects VALUES ('late')", ()).map_err(crate::error::classify)
            };
            turn.run(insert).unwrap();
            let Phase::Held { turn: id, .. } = lock(&shared.queue).phase else { panic!("the turn is held") };
            lock(&shared.queue).phase = Phase::Held { turn: id, until: Instant::now() };
            if at_the_end {
                assert!(matches!(turn.finish(None, News::default()), Err(Error::Deadline)));
            } else {
                assert!(matches!(turn.run(insert), Err(Error::Deadline)));
                drop(turn);
            }
            let count: i64 =
                lock(&shared.connection).query_row("SELECT count(*) FROM effects", (), |row| row.get(0)).unwrap();
            assert_eq!(count, 0, "at the end: {at_the_end}");
            assert_eq!(lock(&shared.queue).phase, Phase::Idle);
        }
    }

    #[tokio::test]
    async fn a_turn_whose_deadline_passes_before_it_begins_was_never_to_be_had() {
        let shared = without_thread();
        let turn = take(&shared);
        let Phase::Held { turn: id, .. } = lock(&shared.queue).phase else { panic!("the turn is held") };
        lock(&shared.queue).phase = Phase::Held { turn: id, until: Instant::now() };
        assert!(matches!(turn.begin().await, Err(Error::Unavailable(_))));
    }

    #[test]
    fn operations_that_went_away_do_not_count_against_the_limit() {
        let shared = without_thread();
        let _turn = take(&shared);
        let wait = || lock(&shared.queue).ask(&shared).map(|granted| granted.unwrap_err());
        for _ in 0..MAX_WAITING {
            drop(wait().unwrap());
        }
        let waiting: Vec<_> = (0..MAX_WAITING).map(|_| wait().unwrap()).collect();
        assert!(matches!(wait(), Err(Error::Unavailable(_))));
        drop(waiting);
        assert!(wait().is_ok());
    }
}
