//! The store, and how a key is asked for.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use semel::operator::{Audit, Eviction, KeyFilter, KeyRecord};
use semel::store::Stored;
use semel::{Ask, Claim, Error, Execution, Key, Lease, LeaseTerms, Scope, Store};
use tokio::sync::watch;

use crate::error::classify;
use crate::inflight::{Entering, Guard, InFlight};
use crate::options::Options;
use crate::outbox::emit::Emissions;
use crate::probe::Standing;
use crate::queue::News;
use crate::readers::Readers;
use crate::turn::Held;
use crate::tx::Tx;
use crate::writer::Writer;
use crate::{connect, migrate};

/// Semel's store in one SQLite file. Cheap to clone; all clones share one writer.
///
/// Open a file once per process and clone the handle: two handles on one file work, but they commit separately and see
/// each other's keys in flight only at the first statement.
#[derive(Debug, Clone)]
pub struct Sqlite {
    inner: Arc<Inner>,
    emissions: Emissions,
    stagings: Emissions,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    writer: Writer,
    readers: Readers,
    in_flight: Arc<InFlight>,
    /// Sends whenever leased work of this process has ended or moved on.
    lease_ended: Arc<watch::Sender<()>>,
}

/// What a claim or a lease found, once it has waited as long as it was asked to.
pub(crate) enum Answer {
    Free { expired: Option<Execution>, guard: Guard },
    Lapsed { guard: Guard },
    Done(Stored),
    InFlight { retry_after: Duration },
    Mismatch,
    Unknown,
}

impl Sqlite {
    /// Opens the file, making an empty one if there is none. It does not look for Semel's tables: [`Store::check`]
    /// does, and [`Sqlite::migrate`] makes them.
    pub async fn open(path: impl AsRef<Path>, options: Options) -> Result<Sqlite, Error> {
        let options = options.checked()?;
        let path = path.as_ref();
        // The writer never blocks on another process's lock; a turn waits for it without holding up its thread.
        let connection = connect::open(path, Duration::ZERO)?;
        connect::make_durable(&connection)?;
        let writer = Writer::start(connection, &options)?;
        let readers = Readers::open(path, options.readers, options.busy_timeout, options.deadline)?;
        let inner = Inner {
            options,
            writer,
            readers,
            in_flight: Arc::new(InFlight::default()),
            lease_ended: Arc::new(watch::Sender::new(())),
        };
        let (emissions, stagings) = (Emissions::new(inner.writer.emitted()), Emissions::new(inner.writer.staged()));
        Ok(Sqlite { inner: Arc::new(inner), emissions, stagings })
    }

    /// Brings the file's schema to this version and names the migrations that took. Again, it does nothing.
    pub async fn migrate(&self) -> Result<Vec<String>, Error> {
        self.transact(None, |connection| migrate::apply(connection, self.now_ms())).await
    }

    /// Reads what is committed, in one snapshot, beside the writer. It runs on the caller's thread, so keep it short.
    pub async fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send) -> Result<T, Error> {
        let read = |connection: &Connection| {
            let snapshot = connection.unchecked_transaction()?;
            work(&snapshot)
        };
        self.inner.readers.read(|connection| read(connection).map_err(classify)).await
    }

    /// Begins an ordinary transaction, without a key, on the same writer and in the same groups as keyed work. End it
    /// with [`Tx::commit`]; dropping it rolls it back. It takes its turn at its first statement.
    pub async fn begin(&self) -> Result<Tx, Error> {
        Ok(Tx::business(self.clone()))
    }

    /// Runs `work` in an ordinary transaction, without a key, and commits it. After an error nothing of it is there,
    /// save for [`Error::Ambiguous`].
    pub async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        E: From<Error>,
        F: AsyncFnOnce(&mut Tx) -> Result<T, E>,
    {
        let mut tx = Tx::business(self.clone());
        let value = work(&mut tx).await?;
        tx.commit().await?;
        Ok(value)
    }

    /// How many commits this handle and its clones have made. Operations that run together share one, so under load
    /// this grows more slowly than the number of operations.
    pub fn commits(&self) -> u64 {
        self.inner.writer.commits()
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.inner.options.clock.now_ms()
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.inner.options.deadline
    }

    pub(crate) fn writer(&self) -> &Writer {
        &self.inner.writer
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.inner.readers
    }

    pub(crate) fn in_flight(&self) -> &InFlight {
        &self.inner.in_flight
    }

    pub(crate) fn emissions(&self) -> &Emissions {
        &self.emissions
    }

    pub(crate) fn stagings(&self) -> &Emissions {
        &self.stagings
    }

    /// Reads beside the writer what may take long, in one snapshot and on a thread that is there for waiting.
    pub(crate) async fn read_aside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (store, runtime) = (self.clone(), tokio::runtime::Handle::current());
        let reading = tokio::task::spawn_blocking(move || {
            runtime.block_on(store.readers().read(|connection| {
                let snapshot = connection.unchecked_transaction().map_err(classify)?;
                work(&snapshot)
            }))
        });
        let read = reading.await.map_err(|error| Error::Unavailable(error.into()))??;
        self.writer().check_settled()?;
        Ok(read)
    }

    /// What makes whoever waits for leased work look again, once it is dropped.
    pub(crate) fn lease_held(&self) -> Held {
        Held::Lease(Arc::clone(&self.inner.lease_ended))
    }

    /// Runs `work` in a turn of its own and returns after its COMMIT. After an error but [`Error::Ambiguous`] nothing
    /// of it is there.
    pub(crate) async fn transact<T>(
        &self,
        held: Option<Held>,
        work: impl FnOnce(&Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let turn = self.writer().enter().await?;
        let value = turn.run(work)?;
        turn.finish(held, News::default())?.done().await?;
        Ok(value)
    }

    /// Enters the key in this process and reads where it stands, waiting for a run in flight as long as was asked.
    pub(crate) async fn ask(&self, ask: &Ask) -> Result<Answer, Error> {
        let ends = Instant::now() + ask.wait;
        loop {
            let mut lease_ended = self.inner.lease_ended.subscribe();
            // Enter first and read after: a run leaves the map after its COMMIT, so what is read then includes it.
            let entering = self.inner.in_flight.enter(ask, self.deadline())?;
            let now_ms = self.now_ms();
            let standing = self.readers().read(|connection| Standing::read(connection, ask, now_ms)).await?;
            // After the read: a run whose COMMIT is in doubt leaves the map after the writer says so.
            self.writer().check_settled()?;
            let waits = Instant::now() < ends;
            match (standing, entering) {
                (Standing::Done(stored), _) => return Ok(Answer::Done(stored)),
                (Standing::Mismatch, _) => return Ok(Answer::Mismatch),
                (Standing::Unknown, _) => return Ok(Answer::Unknown),
                (Standing::Free { expired }, Entering::Entered(guard)) => return Ok(Answer::Free { expired, guard }),
                (Standing::Lapsed { .. }, Entering::Entered(guard)) => return Ok(Answer::Lapsed { guard }),
                (Standing::Leased { remaining }, entering) => {
                    drop(entering);
                    if !waits {
                        return Ok(Answer::InFlight { retry_after: remaining });
                    }
                    let until = ends.min(Instant::now() + remaining);
                    // Time out or change: either way, look again.
                    let _ = tokio::time::timeout_at(until.into(), lease_ended.changed()).await;
                }
                (_, Entering::Taken(_)) if !waits => {
                    return Ok(Answer::InFlight { retry_after: self.inner.options.retry_after });
                }
                (_, Entering::Taken(taken)) => taken.gone(ends).await,
            }
        }
    }
}

impl Store for Sqlite {
    type Tx = Tx;

    async fn claim(&self, ask: &Ask) -> Result<Claim<Tx, Stored>, Error> {
        Ok(match self.ask(ask).await? {
            Answer::Free { expired, guard } => {
                guard.run();
                Claim::Fresh(Tx::claimed(self.clone(), ask.clone(), expired, guard))
            }
            Answer::Done(stored) => Claim::Replay(stored),
            Answer::InFlight { retry_after } => Claim::InFlight { retry_after },
            Answer::Mismatch => Claim::Mismatch,
            // A transaction cannot go on at a recovery point.
            Answer::Lapsed { .. } | Answer::Unknown => Claim::Unknown,
        })
    }

    async fn lease(&self, ask: &Ask, terms: &LeaseTerms) -> Result<Claim<Lease, Stored>, Error> {
        self.lease_key(ask, terms).await
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<bool, Error> {
        self.renew_lease(lease, lease_for).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), Error> {
        self.release_lease(lease).await
    }

    async fn abandon(&self, lease: &Lease) -> Result<(), Error> {
        self.abandon_lease(lease).await
    }

    async fn begin_fenced(&self, lease: &Lease) -> Result<Tx, Error> {
        self.fence(lease).await
    }

    async fn reap(&self, limit: u32) -> Result<u64, Error> {
        self.reap_keys(limit).await
    }

    async fn stuck_leases(&self) -> Result<u64, Error> {
        self.count_stuck_leases().await
    }

    async fn check(&self) -> Result<(), Error> {
        self.readers().read(migrate::check).await
    }

    async fn check_seals(&self, known: &[String]) -> Result<(), Error> {
        self.check_known_seals(known).await
    }

    async fn list_keys(&self, filter: &KeyFilter) -> Result<Vec<KeyRecord>, Error> {
        self.list(filter).await
    }

    async fn show_key(&self, scope: &Scope, key: &Key) -> Result<Option<KeyRecord>, Error> {
        self.show(scope, key).await
    }

    async fn evict_key(
        &self,
        scope: &Scope,
        key: &Key,
        expected: Option<Execution>,
        audit: &Audit,
        dry_run: bool,
    ) -> Result<Eviction, Error> {
        self.evict(scope, key, expected, audit, dry_run).await
    }
}
