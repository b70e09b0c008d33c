//! The work without Semel, as people write it: one connection, prepared statements, and a commit for each operation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use anyhow::{Context, Result, bail};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use crate::charge::{AMOUNT, Charge};

pub(crate) const LEDGER: &str = include_str!("sql/ledger.sql");
pub(crate) const BALANCE: &str = include_str!("sql/balance.sql");
const CLAIM: &str = include_str!("sql/by_hand_claim.sql");
const EMIT: &str = include_str!("sql/by_hand_emit.sql");
const COMPLETE: &str = include_str!("sql/by_hand_complete.sql");

/// One connection, and those who want it.
#[derive(Debug)]
pub(crate) struct ByHand {
    writer: Writer,
    is_protected: bool,
    commits: AtomicU64,
}

/// Where the connection is.
#[derive(Debug)]
enum Writer {
    /// Behind a lock, which is taken on a thread that may block.
    Locked(Arc<Mutex<Connection>>),
    /// On a thread of its own, which is sent what to do.
    Thread(mpsc::Sender<Job>),
}

#[derive(Debug)]
struct Job {
    charge: Charge,
    done: oneshot::Sender<Result<()>>,
}

impl ByHand {
    pub(crate) fn locked(connection: Connection, is_protected: bool) -> ByHand {
        let writer = Writer::Locked(Arc::new(Mutex::new(connection)));
        ByHand { writer, is_protected, commits: AtomicU64::new(0) }
    }

    /// The thread ends with what this returns.
    pub(crate) fn on_thread(mut connection: Connection, is_protected: bool) -> Result<ByHand> {
        let (sender, jobs) = mpsc::channel::<Job>();
        std::thread::Builder::new().name("by-hand".to_owned()).spawn(move || {
            for Job { charge, done } in jobs {
                // One that went away needs no answer.
                let _ = done.send(apply(&mut connection, &charge, is_protected));
            }
        })?;
        Ok(ByHand { writer: Writer::Thread(sender), is_protected, commits: AtomicU64::new(0) })
    }

    /// Returns after the commit.
    pub(crate) async fn charge(&self, charge: Charge) -> Result<()> {
        match &self.writer {
            Writer::Locked(connection) => {
                let (connection, is_protected) = (Arc::clone(connection), self.is_protected);
                let work = move || {
                    let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                    apply(&mut connection, &charge, is_protected)
                };
                tokio::task::spawn_blocking(work).await??;
            }
            Writer::Thread(jobs) => {
                let (done, committed) = oneshot::channel();
                jobs.send(Job { charge, done }).ok().context("the thread has stopped")?;
                committed.await??;
            }
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

/// Inserts the key, does the work, inserts into the outbox, updates the key; unprotected, the work alone.
fn apply(connection: &mut Connection, charge: &Charge, is_protected: bool) -> Result<()> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let key = charge.key.as_str();
    if is_protected && tx.prepare_cached(CLAIM)?.execute((key, charge.fingerprint.as_bytes()))? != 1 {
        bail!("a key that nobody had used was taken");
    }
    tx.prepare_cached(LEDGER)?.execute((charge.account, AMOUNT))?;
    tx.prepare_cached(BALANCE)?.execute((charge.account, AMOUNT))?;
    if is_protected {
        tx.prepare_cached(EMIT)?.execute((charge.ordering_key(), &charge.payload[..]))?;
        tx.prepare_cached(COMPLETE)?.execute((key, &charge.reply[..]))?;
    }
    Ok(tx.commit()?)
}
