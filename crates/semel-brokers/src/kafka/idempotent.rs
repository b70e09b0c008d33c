//! At least once, in order: one idempotent producer for all lanes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::producer::{Producer as _, PurgeConfig};
use semel::sink::{Error, Outgoing};
use tokio::time::Instant;

use super::context::{Context, Producer, blocking};
use super::send::send;
use super::settings::Settings;
use super::topics::Admitted;
use crate::wave;

/// The producer that is in use, until something it was given is not settled in time.
#[derive(Debug)]
pub(super) struct Idempotent {
    settings: Settings,
    context: Context,
    current: Mutex<Option<Arc<Producer>>>,
}

impl Idempotent {
    pub(super) fn new(settings: Settings, context: Context) -> Idempotent {
        Idempotent { settings, context, current: Mutex::new(None) }
    }

    /// Publishes, and settles every record before it returns or is dropped.
    ///
    /// A record that is not acknowledged in time would stay in librdkafka's queue, since it never drops one by age, and
    /// would be sent whenever the broker comes back, in no order with what the relay sends meanwhile. So the whole
    /// producer is purged and discarded, and the next call makes another. Other lanes that wait for it get
    /// [`Error::Unavailable`] too, and send again; what had left already may arrive twice, with the same id and
    /// sequence. A producer with a fatal error, as after a refused record (gapless), ends the same way.
    pub(super) async fn publish(
        &self,
        batch: &[Outgoing],
        admitted: Vec<Result<Admitted, Error>>,
        deadline: Instant,
    ) -> Vec<Result<(), Error>> {
        let held = match self.current() {
            Ok(held) => held,
            Err(error) => return wave::fail(batch, error).await,
        };
        let mut attempt = Attempt { owner: self, held, settled: false };
        let Some(producer) = attempt.held.get() else { return Vec::new() };
        let sent = send(&producer, &self.context, batch, admitted, deadline).await;
        attempt.settled = !sent.unsettled && producer.client().fatal_error().is_none();
        drop(producer);
        sent.results
    }

    /// Waits for what other calls have sent, and ends the producer.
    pub(super) async fn close(&self, timeout: Duration) {
        let held = self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(producer) = held.as_ref().and_then(|held| held.get()) {
            // What is not flushed in time was not acknowledged either: the relay publishes it again.
            let _ = blocking(move || producer.flush(timeout)).await;
        }
    }

    fn current(&self) -> Result<Arc<Producer>, crate::Error> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = &*current {
            return Ok(held.clone());
        }
        let held = Arc::new(Producer::new(&self.settings.producer(), &self.context)?);
        Ok(current.insert(held).clone())
    }

    fn discard(&self, held: &Arc<Producer>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, held)) {
            *current = None;
        }
        if let Some(producer) = held.get() {
            producer.purge(PurgeConfig::default().queue().inflight());
        }
    }
}

/// A call in progress. If it ends unsettled, or its future is dropped, the producer is discarded.
struct Attempt<'a> {
    owner: &'a Idempotent,
    held: Arc<Producer>,
    settled: bool,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.owner.discard(&self.held);
        }
    }
}
