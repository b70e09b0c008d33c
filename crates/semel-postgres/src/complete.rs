//! Completing a key that has no row, which is what nearly every completion does: by a plain statement.

use std::sync::Arc;

use semel::sink::Lane;
use semel::{Ask, Completion, Error, EventId, failpoint};

use crate::claim::{Installation, LockId};
use crate::parameter::{Interval, Parameter};
use crate::store::Shared;
use crate::tx::{Last, Tx, last};

const COMPLETE_PLAIN: &str = include_str!("sql/complete_plain.sql");
const COMPLETE_WITH_EVENT: &str = include_str!("sql/complete_with_event.sql");

impl Tx {
    /// Stores the reply of a key that has no row by a plain statement, and the event with it if there is but one and it
    /// has no headers. The functions do the same and cost more; they are for the rest, and for those whose statements
    /// have no names and are planned each time.
    pub(crate) async fn complete_plain(&mut self, ask: &Ask, completion: &Completion) -> Result<(), Error> {
        let stored = &completion.stored;
        let (fingerprint, execution) = (ask.fingerprint.as_bytes().as_slice(), self.execution.as_uuid());
        let state = if completion.failed { "failed" } else { "completed" };
        let status = stored.status.cast_signed();
        let (headers, body) = (stored.headers.as_ref(), stored.body.as_ref());
        let (sealed_by, retain) = (stored.sealed_by.as_deref(), Interval(completion.retain));
        let (tenant, operation, key) = (ask.scope.tenant(), ask.scope.operation(), ask.key.as_str());
        let claim = execution.to_string();
        let row: [&dyn Parameter; 12] = [
            &tenant,
            &operation,
            &key,
            &fingerprint,
            &execution,
            &state,
            &status,
            &headers,
            &body,
            &sealed_by,
            &retain,
            &claim,
        ];
        let sent = Some(failpoint::COMMIT_SENT);
        // Headers are looked into by the function.
        let shared = Arc::clone(&self.shared);
        let installation = match self.events.as_slice() {
            [event] if event.headers.is_empty() => self.installation(&shared).await?,
            _ => None,
        };
        // Without one, the function finds out what is wrong.
        let Some((installation, event)) = installation.and_then(|known| Some((known, self.events.pop()?))) else {
            return self.end(self.execution, last(COMPLETE_PLAIN, &row), sent).await;
        };
        let lock = LockId::of_ordering_key(&event.ordering_key, installation);
        let id = EventId::derive(self.execution, 0).as_uuid();
        let lane = Lane::of(&event.ordering_key).0.cast_signed();
        let (topic, ordering_key) = (event.topic.as_str(), event.ordering_key.as_str());
        let (event_type, content_type) = (event.event_type.as_str(), event.content_type.as_str());
        let payload = event.payload.as_ref();
        let (traceparent, tracestate) = (event.traceparent.as_deref(), event.tracestate.as_deref());
        // As semel.next_ordinal counts: the run, and how many events it has.
        let emitted = format!("{claim}000001");
        let event: [&dyn Parameter; 13] = [
            &id,
            &lane,
            &topic,
            &ordering_key,
            &event_type,
            &content_type,
            &payload,
            &traceparent,
            &tracestate,
            &lock.0,
            &emitted,
            &installation.table,
            &installation.incarnation.as_str(),
        ];
        let params: Vec<&dyn Parameter> = row.into_iter().chain(event).collect();
        let last = Last { sql: COMPLETE_WITH_EVENT, params: &params, emits: true };
        self.end(self.execution, Some(last), sent).await
    }

    /// What the locks of ordering keys are keyed with. It is asked once in the life of a process.
    async fn installation<'a>(&mut self, shared: &'a Shared) -> Result<Option<&'a Installation>, Error> {
        if let Some(known) = shared.installation.get() {
            return Ok(Some(known));
        }
        match Installation::read(self.connection()?, shared.options.statements).await {
            Ok(read) => Ok(read.map(|read| shared.installation.get_or_init(|| read))),
            Err(error) => {
                self.roll_back().await;
                Err(self.classified(error))
            }
        }
    }
}
