//! What the suite needs of a store beyond its promises, and shorthand for the tests.

use std::future::Future;
use std::time::Duration;

use semel::lease::{LeaseTerms, OnExpiry};
use semel::once::{Error as OnceError, Settings};
use semel::{Ask, Error, Fingerprint, Key, Outcome, Reply, Scope, Semel, Store};

/// A store on a database of its own, with a table `effects` that tests count in.
pub trait Harness: Sized + Send + Sync + 'static {
    /// The store under test.
    type Store: Store;

    /// Whether a claim may be judged by a snapshot that is older than its lock, as above READ COMMITTED. Then it may
    /// say *fresh* of a key that has just been completed, and the commit is refused.
    const OLD_SNAPSHOTS: bool = false;

    /// A fresh, migrated database.
    fn create() -> impl Future<Output = Self> + Send;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// Another handle on the same database, as another process would have.
    fn another(&self) -> impl Future<Output = Self::Store> + Send;

    /// Adds a row to `effects`, inside the transaction.
    fn insert(tx: &mut <Self::Store as Store>::Tx, label: &str) -> impl Future<Output = Result<(), Error>> + Send;

    /// Defers an insert of one row to `effects` that claims to touch `rows` rows.
    fn defer(tx: &mut <Self::Store as Store>::Tx, label: &str, rows: u32);

    /// Counts the committed rows of `effects` with this label.
    fn count(&self, label: &str) -> impl Future<Output = u64> + Send;

    /// Counts the committed audit rows with this reason.
    fn audits(&self, reason: &str) -> impl Future<Output = u64> + Send;

    /// The stored bytes of a key's reply, as they lie in the database.
    fn raw_body(&self, key: &Key) -> impl Future<Output = Vec<u8>> + Send;

    /// Makes every key and lease older by this much.
    fn age(&self, by: Duration) -> impl Future<Output = ()> + Send;
}

/// A harness with what most tests need at hand.
#[derive(Debug)]
pub struct Lab<H: Harness> {
    /// The harness.
    pub harness: H,
    /// Semel on its store.
    pub semel: Semel<H::Store>,
    /// A scope.
    pub scope: Scope,
    /// A fingerprint.
    pub fingerprint: Fingerprint,
}

impl<H: Harness> Lab<H> {
    /// A lab with default settings.
    pub async fn open() -> Lab<H> {
        Lab::open_with(Settings::default()).await
    }

    /// A lab with these settings.
    pub async fn open_with(settings: Settings) -> Lab<H> {
        let harness = H::create().await;
        let semel = Semel::with_settings(harness.store().clone(), settings).await.unwrap();
        let scope = Scope::new("tenant", "charge").unwrap();
        Lab { harness, semel, scope, fingerprint: Fingerprint::of_bytes(b"a request") }
    }

    /// The question for this key.
    pub fn ask(&self, key: &Key) -> Ask {
        Ask::new(&self.scope, key, &self.fingerprint)
    }

    /// Runs work that inserts one effect labelled with the key, and answers `status`.
    pub async fn charge(&self, key: &Key, status: u16) -> Result<Outcome, OnceError<Error>> {
        self.charge_with(&self.semel, key, status).await
    }

    /// Likewise, through another handle.
    pub async fn charge_with(
        &self,
        semel: &Semel<H::Store>,
        key: &Key,
        status: u16,
    ) -> Result<Outcome, OnceError<Error>> {
        self.answer_with(semel, key, reply(status, key)).await
    }

    /// Runs work that inserts one effect labelled with the key, and answers `reply`.
    pub async fn answer_with(
        &self,
        semel: &Semel<H::Store>,
        key: &Key,
        reply: Reply,
    ) -> Result<Outcome, OnceError<Error>> {
        let label = key.clone();
        semel
            .once(&self.scope, key, &self.fingerprint, async move |tx| {
                H::insert(tx, label.as_str()).await?;
                Ok(reply.clone())
            })
            .await
    }

    /// Counts the effects of a key.
    pub async fn effects(&self, key: &Key) -> u64 {
        self.harness.count(key.as_str()).await
    }

    /// Lease terms of half a minute.
    pub fn terms(&self, holder: &str) -> LeaseTerms {
        LeaseTerms {
            lease_for: Duration::from_secs(30),
            holder: holder.to_owned(),
            on_expiry: OnExpiry::Resume,
            retain: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// A reply with repeated headers and a body that is no text.
pub(super) fn reply(status: u16, key: &Key) -> Reply {
    let body = [key.as_str().as_bytes(), &[0, 159, 146, 150, 13, 10]].concat();
    Reply::new(status, body)
        .and_then(|reply| reply.header("content-type", "application/octet-stream"))
        .and_then(|reply| reply.header("link", "<a>; rel=a"))
        .and_then(|reply| reply.header("link", "<b>; rel=b"))
        .unwrap()
}
