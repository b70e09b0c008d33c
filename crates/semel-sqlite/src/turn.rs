//! A turn on the writer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use semel::Error;
use tokio::sync::{oneshot, watch};

use crate::error::{classify, is_busy, lock};
use crate::inflight::Guard;
use crate::queue::{News, Pending};
use crate::writer::{Shared, run, tell};

/// The right to run statements in the group, inside a savepoint of its own. Dropping it rolls the savepoint back and
/// passes the turn on, so that a cancelled future leaks nothing.
#[derive(Debug)]
pub(crate) struct Turn {
    shared: Arc<Shared>,
    id: u64,
    armed: bool,
}

/// What an operation keeps from others until its group has ended.
#[derive(Debug)]
pub(crate) enum Held {
    /// Its key.
    Key(Guard),
    /// Leased work: whoever waits for a lease to end looks again.
    Lease(Arc<watch::Sender<()>>),
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Held::Lease(ended) = self {
            ended.send_replace(());
        }
    }
}

impl Turn {
    pub(crate) fn new(shared: Arc<Shared>, id: u64) -> Turn {
        Turn { shared, id, armed: true }
    }

    /// Forgets the turn without passing it on, for the writer itself.
    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }

    /// Opens the savepoint, and the group before it if there is none. Another process that holds the file's write lock
    /// is waited for without holding up the thread. [`Error::Unavailable`] if it does not let go in time: nothing ran.
    pub(crate) async fn begin(&self) -> Result<(), Error> {
        let mut pause = Duration::from_millis(1);
        while !self.try_begin()? {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether the file's write lock was free.
    fn try_begin(&self) -> Result<bool, Error> {
        let connection = lock(&self.shared.connection);
        let mut queue = lock(&self.shared.queue);
        let lost = |_| Error::Unavailable("the writer could not be had before the deadline".into());
        queue.check(self.id).map_err(lost)?;
        if queue.group.is_none() {
            match run(&connection, "BEGIN IMMEDIATE") {
                Ok(()) => queue.group = Some(Instant::now()),
                Err(error) if is_busy(&error) => return queue.found_locked(self.shared.patience).map(|()| false),
                Err(error) => return Err(classify(error)),
            }
        }
        queue.found_free();
        run(&connection, "SAVEPOINT semel_turn").map_err(classify)?;
        queue.open(self.id, self.shared.deadline);
        Ok(true)
    }

    /// Runs statements. [`Error::Deadline`] if the turn was taken back before or while they ran.
    ///
    /// Some errors make SQLite roll back the whole transaction by itself. Then everybody in the group is told to run
    /// again, and this turn is over.
    pub(crate) fn run<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        let connection = lock(&self.shared.connection);
        lock(&self.shared.queue).check(self.id)?;
        let result = work(&connection);
        let mut queue = lock(&self.shared.queue);
        if !queue.holds(self.id) {
            return Err(Error::Deadline);
        }
        if connection.is_autocommit() {
            let lost = queue.lose();
            queue.pass_on(&self.shared);
            drop(queue);
            drop(connection);
            tell(lost, || Err(Error::Conflict("a statement of another operation rolled its group back".into())));
            let ended = "a statement ended the transaction, which is not its to end";
            return result.and_then(|_| Err(Error::Conflict(ended.into())));
        }
        result
    }

    /// Whether statements can still be run.
    pub(crate) fn is_over(&self) -> bool {
        !lock(&self.shared.queue).holds(self.id)
    }

    /// Rolls back what this turn did so far and goes on with an empty savepoint.
    pub(crate) fn undo(&self) -> Result<(), Error> {
        self.run(|connection| run(connection, "ROLLBACK TO semel_turn").map_err(classify))
    }

    /// Ends the turn: what it did stays in the group and commits with it, whatever becomes of the caller. `held` is
    /// dropped after the COMMIT, and the news are told then.
    pub(crate) fn finish(mut self, held: Option<Held>, news: News) -> Result<Committing, Error> {
        let shared = Arc::clone(&self.shared);
        let connection = lock(&shared.connection);
        // Locked over the whole step: the deadline falls either before it, and all is undone, or after it.
        let mut queue = lock(&shared.queue);
        let released = queue.check(self.id).and_then(|()| run(&connection, "RELEASE semel_turn").map_err(classify));
        if let Err(error) = released {
            drop((queue, connection));
            return Err(error);
        }
        self.armed = false;
        queue.savepoint = false;
        let (done, committed) = oneshot::channel();
        queue.pending.push(Pending { done, held, news });
        queue.pass_on(&shared);
        Ok(Committing(committed))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let connection = lock(&self.shared.connection);
        let mut queue = lock(&self.shared.queue);
        if !queue.holds(self.id) {
            return;
        }
        let lost = self.shared.undo(&connection, &mut queue);
        queue.pass_on(&self.shared);
        drop(queue);
        drop(connection);
        tell(lost, || Err(Error::Conflict("another operation took its group along".into())));
    }
}

/// The COMMIT of the group that an operation is in.
#[derive(Debug)]
pub(crate) struct Committing(oneshot::Receiver<Result<(), Error>>);

impl Committing {
    /// Returns once the COMMIT has. Dropping the future changes nothing about it.
    pub(crate) async fn done(self) -> Result<(), Error> {
        match self.0.await {
            Ok(result) => result,
            Err(_) => Err(Error::Ambiguous("the writer stopped while it committed".into())),
        }
    }
}
