//! The one writer, and the groups in which it commits.
//!
//! SQLite has one writer at a time, and a durable commit costs an fsync. So operations take *turns* on one connection,
//! first come, first served: each works inside a savepoint of a shared write transaction, the *group*, and one COMMIT
//! makes all of a group durable. Nobody is told of success before that COMMIT has returned (I1), and a writer without
//! a turn to give never leaves a write transaction open.
//!
//! A thread of its own commits, because an fsync must not hold up the runtime, and because a commit that has begun must
//! not depend on the caller's future. The same thread watches the deadline: a turn that has used it up is rolled back
//! and passed on, and its late owner is refused.
//!
//! **Lock order:** the connection, then the queue. The thread alone takes the connection without holding a turn.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, TryLockError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, InterruptHandle};
use semel::{Error, failpoint};
use tokio::sync::oneshot;

use crate::error::lock;
use crate::options::Options;
use crate::turn::{Held, Turn};

/// The most operations that wait for a turn (I12).
const MAX_WAITING: usize = 65_536;

/// Owns the thread: when the last handle goes, the thread ends.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) connection: Mutex<Connection>,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) deadline: Duration,
    pub(crate) busy_timeout: Duration,
    group_limit: usize,
    group_age: Duration,
    interrupt: InterruptHandle,
    wake: Condvar,
    commits: AtomicU64,
}

/// Whose turn it is, who waits, and who awaits the group's COMMIT.
pub(crate) struct Queue {
    pub(crate) phase: Phase,
    waiting: VecDeque<oneshot::Sender<Turn>>,
    last_turn: u64,
    /// Whether the connection has a write transaction open, and since when.
    pub(crate) group: Option<Instant>,
    /// Whether the turn that is held has its savepoint open.
    pub(crate) savepoint: bool,
    pub(crate) pending: Vec<Pending>,
    /// How many of the next operations get a COMMIT of their own, after a COMMIT failed for what one of them did.
    alone: usize,
    closing: bool,
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
}

/// An operation that is done and awaits its group's COMMIT.
pub(crate) struct Pending {
    pub(crate) done: oneshot::Sender<Result<(), Error>>,
    /// Dropped after the COMMIT, so that nobody can ask for the key in between.
    pub(crate) held: Option<Held>,
}

impl Writer {
    pub(crate) fn start(connection: Connection, options: &Options) -> Result<Writer, Error> {
        let shared = Arc::new(Shared {
            interrupt: connection.get_interrupt_handle(),
            connection: Mutex::new(connection),
            queue: Mutex::new(Queue {
                phase: Phase::Idle,
                waiting: VecDeque::new(),
                last_turn: 0,
                group: None,
                savepoint: false,
                pending: Vec::new(),
                alone: 0,
                closing: false,
            }),
            deadline: options.deadline,
            busy_timeout: options.busy_timeout,
            group_limit: options.group_limit,
            group_age: options.group_age,
            wake: Condvar::new(),
            commits: AtomicU64::new(0),
        });
        let thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("semel-sqlite".to_owned())
            .spawn(move || thread.work())
            .map_err(|error| Error::Unavailable(error.into()))?;
        Ok(Writer { shared })
    }

    /// Waits for a turn and opens its savepoint. The wait is bounded by twice the deadline: whoever queues behind an
    /// operation that hangs gets the turn when the deadline takes it back, rather than giving up in the same moment.
    pub(crate) async fn enter(&self) -> Result<Turn, Error> {
        let granted = lock(&self.shared.queue).ask(&self.shared)?;
        let turn = match granted {
            Ok(turn) => turn,
            Err(waiting) => match tokio::time::timeout(self.shared.deadline * 2, waiting).await {
                Ok(Ok(turn)) => turn,
                Ok(Err(_)) => return Err(Error::Unavailable("the writer has stopped".into())),
                Err(_) => return Err(Error::Unavailable("other operations held the writer for too long".into())),
            },
        };
        turn.begin().await?;
        Ok(turn)
    }

    pub(crate) fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        lock(&self.shared.queue).closing = true;
        self.shared.wake.notify_one();
    }
}

impl Queue {
    /// A turn if nobody has it, otherwise a place in the queue.
    fn ask(&mut self, shared: &Arc<Shared>) -> Result<Result<Turn, oneshot::Receiver<Turn>>, Error> {
        if self.phase == Phase::Idle {
            return Ok(Ok(self.grant(shared)));
        }
        if self.waiting.len() >= MAX_WAITING {
            return Err(Error::Unavailable(format!("{MAX_WAITING} operations wait for the writer already").into()));
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.push_back(sender);
        Ok(Err(receiver))
    }

    fn grant(&mut self, shared: &Arc<Shared>) -> Turn {
        self.last_turn += 1;
        self.phase = Phase::Held { turn: self.last_turn, until: Instant::now() + shared.deadline };
        Turn::new(Arc::clone(shared), self.last_turn)
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

    /// Gives the turn to whoever waits longest, in the same group if it has room. With nobody waiting, or a full group,
    /// the group ends; without a group, the writer rests.
    pub(crate) fn pass_on(&mut self, shared: &Arc<Shared>) {
        while !self.is_full(shared) {
            let Some(waiting) = self.waiting.pop_front() else { break };
            if waiting.is_closed() {
                continue;
            }
            let turn = self.grant(shared);
            match waiting.send(turn) {
                Ok(()) => return,
                // The caller went away in this moment. Its turn must not pass itself on: the queue is locked.
                Err(turn) => turn.disarm(),
            }
        }
        self.phase = if self.group.is_some() { Phase::Ending } else { Phase::Idle };
        if self.phase == Phase::Ending || self.closing {
            shared.wake.notify_one();
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

impl Shared {
    fn work(self: &Arc<Self>) {
        loop {
            let mut queue = lock(&self.queue);
            let phase = loop {
                let wait = match queue.phase {
                    Phase::Idle if queue.closing => return,
                    Phase::Ending => break Phase::Ending,
                    Phase::Held { until, .. } => match until.checked_duration_since(Instant::now()) {
                        Some(left) if !left.is_zero() => left,
                        _ => {
                            queue.phase = Phase::Revoking;
                            break Phase::Revoking;
                        }
                    },
                    // A turn given after this moment cannot reach its deadline before this wait is over.
                    _ => self.deadline,
                };
                let waited = self.wake.wait_timeout(queue, wait);
                queue = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            };
            drop(queue);
            match phase {
                Phase::Revoking => self.revoke(),
                _ => self.end_group(),
            }
        }
    }

    /// Commits the group and tells everybody in it. A group in which nothing is left to commit is rolled back.
    fn end_group(self: &Arc<Self>) {
        let connection = lock(&self.connection);
        let pending = std::mem::take(&mut lock(&self.queue).pending);
        let result = if pending.is_empty() { run(&connection, "ROLLBACK") } else { run(&connection, "COMMIT") };
        if !pending.is_empty() {
            self.commits.fetch_add(1, Ordering::Relaxed);
            metrics::counter!("semel_sqlite_commits_total").increment(1);
            if result.is_ok() && pending.iter().any(|operation| operation.held.is_some()) {
                failpoint::reach_blocking(failpoint::COMMIT_SENT);
            }
        }
        if !connection.is_autocommit()
            && let Err(error) = run(&connection, "ROLLBACK")
        {
            tracing::error!(%error, "a group could neither be committed nor rolled back");
        }
        drop(connection);

        let mut queue = lock(&self.queue);
        queue.group = None;
        queue.alone = queue.alone.saturating_sub(1);
        let blamed =
            result.as_ref().is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation));
        if blamed && pending.len() > 1 {
            // A deferred constraint speaks up at COMMIT only and does not say whose it was: each gets its own.
            queue.alone = pending.len();
        }
        queue.pass_on(self);
        drop(queue);

        match result {
            Ok(()) => tell(pending, || Ok(())),
            Err(error) if blamed && pending.len() == 1 => {
                let mut error = Some(error);
                tell(pending, || Err(error.take().map_or(Error::Deadline, crate::error::classify)));
            }
            Err(error) if blamed => tell(pending, || {
                Err(Error::Conflict(
                    format!("an operation in the same group broke a deferred constraint: {error}").into(),
                ))
            }),
            Err(error) => tell(pending, || Err(Error::Unavailable(format!("the commit failed: {error}").into()))),
        }
    }

    /// Takes back a turn whose deadline has passed. Everything its owner did is rolled back; the group goes on.
    fn revoke(self: &Arc<Self>) {
        // A statement that runs holds the connection. The interrupt is repeated because one that comes just before a
        // statement starts has no effect.
        let connection = loop {
            match self.connection.try_lock() {
                Ok(connection) => break connection,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    self.interrupt.interrupt();
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        };
        tracing::warn!("an operation held the writer past its deadline and was rolled back");
        let mut queue = lock(&self.queue);
        let lost = self.undo(&connection, &mut queue);
        queue.pass_on(self);
        drop(queue);
        drop(connection);
        tell(lost, || Err(Error::Conflict("an interrupted statement took its group along".into())));
    }

    /// Rolls back what the current turn did. If SQLite has rolled back the whole transaction already, or will not roll
    /// back to the savepoint, the group is lost, and those who must be told are returned.
    #[must_use]
    pub(crate) fn undo(&self, connection: &Connection, queue: &mut Queue) -> Vec<Pending> {
        if queue.group.is_some() && connection.is_autocommit() {
            return queue.lose();
        }
        if !std::mem::take(&mut queue.savepoint) {
            return Vec::new();
        }
        let undone = if queue.pending.is_empty() {
            // Nobody else is in the group, so the write lock is free at once.
            queue.group = None;
            run(connection, "ROLLBACK")
        } else {
            run(connection, "ROLLBACK TO semel_turn").and_then(|()| run(connection, "RELEASE semel_turn"))
        };
        match undone {
            Ok(()) => Vec::new(),
            Err(error) => {
                tracing::error!(%error, "a savepoint could not be rolled back; its group is rolled back");
                if !connection.is_autocommit()
                    && let Err(error) = run(connection, "ROLLBACK")
                {
                    tracing::error!(%error, "a group could not be rolled back");
                }
                queue.lose()
            }
        }
    }
}

/// Tells each operation how its group ended. Its key is free before it is told.
pub(crate) fn tell(pending: Vec<Pending>, mut result: impl FnMut() -> Result<(), Error>) {
    for Pending { done, held } in pending {
        drop(held);
        // A caller that went away is not told; what it did is committed or rolled back all the same.
        let _ = done.send(result());
    }
}

/// Runs a statement that controls the transaction.
pub(crate) fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
