//! The one writer, and the groups in which it commits.
//!
//! SQLite has one writer at a time, and a durable commit costs an fsync. So operations take *turns* on one connection,
//! first come, first served: each works inside a savepoint of a shared write transaction, the *group*, and one COMMIT
//! makes all of a group durable. Nobody is told of success before that COMMIT has returned (I1), and a writer without
//! a turn to give never leaves a write transaction open.
//!
//! A thread of its own commits, because an fsync must not hold up the runtime, and because a commit that has begun must
//! not depend on the caller's future. A COMMIT that fails is followed by a [barrier](crate::barrier) before anybody is
//! told. The same thread watches the deadline: a turn that has used it up is rolled back and passed on, and its late
//! owner is refused.
//!
//! **Lock order:** the connection, then the queue. The thread alone takes the connection without holding a turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, TryLockError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, InterruptHandle};
use semel::{Error, failpoint};
use tokio::sync::watch;

use crate::barrier;
use crate::error::{classify, lock};
use crate::options::Options;
use crate::queue::{Pending, Phase, Queue};
use crate::turn::Turn;

/// Owns the thread: when the last handle goes, the thread ends.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) connection: Mutex<Connection>,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) deadline: Duration,
    /// How long another process's write lock is waited for. Well within the deadline, so that whoever waits is told why
    /// before their time is up.
    pub(crate) patience: Duration,
    pub(crate) group_limit: usize,
    pub(crate) group_age: Duration,
    interrupt: InterruptHandle,
    woken: Condvar,
    commits: AtomicU64,
    /// Sends after the COMMIT of a group in which events were written.
    emitted: watch::Sender<()>,
    /// Sends after the COMMIT of a group in which jobs were staged.
    staged: watch::Sender<()>,
}

impl Writer {
    pub(crate) fn start(connection: Connection, options: &Options) -> Result<Writer, Error> {
        let shared = Arc::new(Shared::new(connection, options));
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
                Ok(Ok(granted)) => granted?,
                Ok(Err(_)) => return Err(Error::Unavailable("the writer has stopped".into())),
                Err(_) => return Err(Error::Unavailable("other operations held the writer for too long".into())),
            },
        };
        turn.begin().await?;
        Ok(turn)
    }

    /// [`Error::Unavailable`] while it is not known what became of a COMMIT. What was read before this says `Ok` does
    /// not change by itself, crash or no crash.
    pub(crate) fn check_settled(&self) -> Result<(), Error> {
        lock(&self.shared.queue).check_settled()
    }

    /// Changes after each COMMIT that made events durable.
    pub(crate) fn emitted(&self) -> watch::Receiver<()> {
        self.shared.emitted.subscribe()
    }

    /// Changes after each COMMIT that made staged jobs durable.
    pub(crate) fn staged(&self) -> watch::Receiver<()> {
        self.shared.staged.subscribe()
    }

    pub(crate) fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        lock(&self.shared.queue).closing = true;
        self.shared.wake();
    }
}

impl Shared {
    /// A writer that nobody has set to work yet.
    pub(crate) fn new(connection: Connection, options: &Options) -> Shared {
        Shared {
            interrupt: connection.get_interrupt_handle(),
            connection: Mutex::new(connection),
            queue: Mutex::new(Queue::new()),
            deadline: options.deadline,
            patience: options.busy_timeout.min(options.deadline / 2),
            group_limit: options.group_limit,
            group_age: options.group_age,
            woken: Condvar::new(),
            commits: AtomicU64::new(0),
            emitted: watch::Sender::new(()),
            staged: watch::Sender::new(()),
        }
    }

    /// Makes the thread look at the queue.
    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }

    fn work(self: &Arc<Self>) {
        loop {
            let mut queue = lock(&self.queue);
            let phase = loop {
                let wait = match queue.phase {
                    Phase::Idle | Phase::Barred { .. } if queue.closing => return,
                    Phase::Ending => break Phase::Ending,
                    Phase::Held { until, .. } => match until.checked_duration_since(Instant::now()) {
                        Some(left) if !left.is_zero() => left,
                        _ => {
                            queue.phase = Phase::Revoking;
                            break Phase::Revoking;
                        }
                    },
                    Phase::Barred { retry_at } => match retry_at.checked_duration_since(Instant::now()) {
                        Some(left) if !left.is_zero() => left,
                        _ => break queue.phase,
                    },
                    // A turn given after this moment cannot reach its deadline before this wait is over.
                    _ => self.deadline,
                };
                let waited = self.woken.wait_timeout(queue, wait);
                queue = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            };
            drop(queue);
            match phase {
                Phase::Revoking => self.revoke(),
                Phase::Barred { .. } => self.unbar(),
                _ => self.end_group(),
            }
        }
    }

    /// Commits the group and tells everybody in it. A group in which nothing is left to commit is rolled back. A COMMIT
    /// that fails is told as rolled back only when it cannot come back after a crash; otherwise as ambiguous, and no
    /// turn is given until that is settled.
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
        roll_back(&connection);
        let in_doubt = !pending.is_empty() && result.as_ref().is_err_and(barrier::is_needed);
        let settled = if in_doubt { barrier::write(&connection) } else { Ok(()) };
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
        match &settled {
            Ok(()) => queue.pass_on(self),
            Err(error) => {
                tracing::error!(%error, "a commit failed and the log cannot be written; nothing runs until it can");
                queue.bar();
            }
        }
        drop(queue);

        match result {
            Ok(()) => {
                let emits = pending.iter().any(|operation| operation.news.events);
                let stages = pending.iter().any(|operation| operation.news.jobs);
                tell(pending, || Ok(()));
                if emits {
                    self.emitted.send_replace(());
                }
                if stages {
                    self.staged.send_replace(());
                }
            }
            Err(error) if settled.is_err() => {
                tell(pending, || Err(Error::Ambiguous(format!("the commit failed: {error}").into())));
            }
            Err(error) if blamed && pending.len() == 1 => {
                let mut error = Some(error);
                tell(pending, || Err(error.take().map_or(Error::Deadline, classify)));
            }
            Err(error) if blamed => tell(pending, || {
                Err(Error::Conflict(
                    format!("an operation in the same group broke a deferred constraint: {error}").into(),
                ))
            }),
            Err(error) => tell(pending, || Err(Error::Unavailable(format!("the commit failed: {error}").into()))),
        }
    }

    /// Tries to settle what became of a COMMIT that failed.
    fn unbar(self: &Arc<Self>) {
        let written = barrier::write(&lock(&self.connection));
        let mut queue = lock(&self.queue);
        match written {
            Ok(()) => {
                tracing::info!("the log can be written again; what failed to commit is rolled back");
                queue.pass_on(self);
            }
            Err(_) => queue.bar(),
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
                roll_back(connection);
                queue.lose()
            }
        }
    }
}

/// Tells each operation how its group ended. Its key is free before it is told.
pub(crate) fn tell(pending: Vec<Pending>, mut result: impl FnMut() -> Result<(), Error>) {
    for Pending { done, held, .. } in pending {
        drop(held);
        // A caller that went away is not told; what it did is committed or rolled back all the same.
        let _ = done.send(result());
    }
}

/// Runs a statement that controls the transaction.
pub(crate) fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// Ends a transaction that SQLite has not ended by itself.
pub(crate) fn roll_back(connection: &Connection) {
    if !connection.is_autocommit()
        && let Err(error) = run(connection, "ROLLBACK")
    {
        tracing::error!(%error, "a transaction could not be rolled back");
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
