//! A store with what most tests need at hand.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::{Duration, Instant};

use semel::once::Error as OnceError;
use semel::operator::Audit;
use semel::outbox::{Cursor, HeldEvent, HeldKey, HeldState, LaneState, Page, PageLimit, RelayId, Written};
use semel::sink::Lane;
use semel::{Ask, Claim, Error, Event, EventId, Fingerprint, Key, Outbox, Outcome, Reply, Scope, Semel, Tx};

use super::harness::Harness;

/// A lease that does not run out while a test runs.
pub(super) const LONG: Duration = Duration::from_secs(600);

/// How long a test waits for what must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A page that holds everything a small test writes.
pub(super) const ROOMY: PageLimit = PageLimit { events: 10_000, bytes: 64 << 20 };

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
    /// A lab on a fresh database.
    pub async fn open() -> Lab<H> {
        let harness = H::create().await;
        let semel = Semel::new(harness.store().clone());
        let scope = Scope::new("tenant", "charge").unwrap();
        Lab { harness, semel, scope, fingerprint: Fingerprint::of_bytes(b"a request") }
    }

    /// The store under test.
    pub fn outbox(&self) -> &H::Store {
        self.harness.store()
    }

    /// The question for this key.
    pub fn ask(&self, key: &Key) -> Ask {
        Ask::new(&self.scope, key, &self.fingerprint)
    }

    /// A transaction that holds the claim of this key.
    pub(super) async fn fresh(&self, key: &Key) -> <H::Store as semel::Store>::Tx {
        match self.semel.claim(&self.ask(key)).await.unwrap() {
            Claim::Fresh(tx) => tx,
            _ => panic!("the key is new"),
        }
    }

    /// Commits these in one keyed transaction, and returns their ids.
    pub async fn emit(&self, events: impl IntoIterator<Item = Event>) -> Vec<EventId> {
        let key = Key::random();
        let mut tx = self.fresh(&key).await;
        let execution = tx.execution();
        let ordinals = events.into_iter().map(|event| tx.emit(event)).count();
        self.semel.finish(&self.ask(&key), tx, &Reply::new(201, "done").unwrap()).await.unwrap();
        (0..u32::try_from(ordinals).unwrap()).map(|ordinal| EventId::derive(execution, ordinal)).collect()
    }

    /// Runs work that inserts one effect labelled with the key and emits these, and answers `reply`.
    pub async fn answer(&self, key: &Key, reply: Reply, events: &[Event]) -> Result<Outcome, OnceError<Error>> {
        let (label, events) = (key.clone(), events.to_vec());
        let run = async move |tx: &mut <H::Store as semel::Store>::Tx| {
            H::insert(tx, label.as_str()).await?;
            events.iter().for_each(|event| tx.emit(event.clone()));
            Ok(reply.clone())
        };
        self.semel.once(&self.scope, key, &self.fingerprint, run).await
    }

    /// Everything that was committed, in order.
    pub async fn everything(&self) -> Vec<Written> {
        read(self.outbox(), Cursor::START, &all_lanes(), ROOMY).await
    }

    /// The events with these ids, in the order in which they are read.
    pub(super) async fn written(&self, ids: &[EventId]) -> Vec<Written> {
        let found: Vec<Written> = self.everything().await.into_iter().filter(|event| ids.contains(&event.id)).collect();
        assert_eq!(found.len(), ids.len(), "every one of them is there");
        found
    }

    /// A relay with a long lease.
    pub(super) async fn join(&self, name: &str) -> RelayId {
        self.outbox().join_relays(name, LONG).await.unwrap().id
    }

    /// A relay with a long lease and every lane.
    pub(super) async fn relay(&self, name: &str) -> (RelayId, Vec<LaneState>) {
        let id = self.join(name).await;
        let lanes = sorted(self.outbox().take_lanes(id, semel::outbox::LANES).await.unwrap());
        assert_eq!(lanes.iter().map(|state| state.lane).collect::<Vec<_>>(), all_lanes(), "all lanes are free");
        (id, lanes)
    }

    /// Lets a relay's lease run out, and has another take all of its `lanes`.
    pub(super) async fn take_over(&self, from: RelayId, name: &str, lanes: usize) -> (RelayId, Vec<LaneState>) {
        self.outbox().renew_relay(from, Duration::from_millis(1)).await.unwrap();
        let id = self.join(name).await;
        let mut taken = Vec::new();
        until("the lanes of a relay whose lease ran out are taken", async || {
            taken.extend(self.outbox().take_lanes(id, semel::outbox::LANES).await.unwrap());
            taken.len() >= lanes
        })
        .await;
        assert_eq!(taken.len(), lanes);
        (id, sorted(taken))
    }

    /// This many cursors, each beyond the last, with an event at each.
    pub(super) async fn cursors(&self, many: i64) -> Vec<Cursor> {
        for n in 0..many {
            self.emit([event("elsewhere", "elsewhere", n)]).await;
            self.everything().await;
        }
        self.everything().await.iter().map(|event| event.cursor).collect()
    }

    /// Where every lane stands, as it is stored: takes them all with a relay of its own and leaves at once. All must be
    /// free.
    pub(super) async fn stored(&self) -> Vec<LaneState> {
        let (id, lanes) = self.relay("looking").await;
        self.outbox().leave_relays(id).await.unwrap();
        lanes
    }

    /// Holds these events of one key, numbered from one, as refused for the first time.
    pub(super) async fn hold(&self, id: RelayId, state: &LaneState, events: &[Written]) -> Vec<HeldEvent> {
        let held = numbered(events, 1);
        let key = held_key(&events[0], HeldState::Retrying);
        let holding = semel::outbox::Holding::Hold { key: Some(key), events: held.clone() };
        self.outbox().hold(id, state, &[holding]).await.unwrap();
        held
    }
}

/// Every lane, in order.
pub(super) fn all_lanes() -> Vec<Lane> {
    Lane::all().collect()
}

/// By lane.
pub(super) fn sorted(mut lanes: Vec<LaneState>) -> Vec<LaneState> {
    lanes.sort_by_key(|state| state.lane);
    lanes
}

/// Reads on from a cursor to the end.
pub(super) async fn read(outbox: &impl Outbox, after: Cursor, lanes: &[Lane], limit: PageLimit) -> Vec<Written> {
    let (mut events, mut after) = (Vec::new(), after);
    while let Some(page) = page(outbox, after, lanes, limit).await {
        after = page.upto;
        events.extend(page.events);
    }
    events
}

/// Reads one page, and holds it against what is promised of every page.
pub(super) async fn page(outbox: &impl Outbox, after: Cursor, lanes: &[Lane], limit: PageLimit) -> Option<Page> {
    let page = outbox.page(after, lanes, limit).await.unwrap()?;
    assert!(page.upto > after, "{:?} is not beyond {after:?}", page.upto);
    let mut at = after;
    for event in &page.events {
        assert!(event.cursor > at, "{:?} comes after {at:?}", event.cursor);
        assert!(lanes.contains(&event.lane), "{:?} was not asked for", event.lane);
        assert_eq!(event.lane, Lane::of(&event.event.ordering_key));
        at = event.cursor;
    }
    assert!(page.upto >= at, "a page reaches at least to its last event");
    let bytes: usize = page.events.iter().map(|event| event.event.payload.len()).sum();
    let fits = page.events.len() <= limit.events as usize && bytes as u64 <= limit.bytes;
    assert!(fits || page.events.len() == 1, "{} events and {bytes} bytes for {limit:?}", page.events.len());
    Some(page)
}

/// Waits for what must come about. Panics, saying what, if it does not.
pub(super) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for a future that must end.
pub(super) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

/// An event that carries a number.
pub(super) fn event(topic: &str, ordering_key: &str, n: i64) -> Event {
    Event::new(topic, ordering_key, "test.happened", &n).unwrap()
}

/// The number that [`event`] put in.
pub(super) fn number(written: &Written) -> i64 {
    serde_json::from_slice(&written.event.payload).unwrap()
}

/// This many ordering keys of one lane.
pub(super) fn keys_of(lane: Lane, many: usize) -> Vec<String> {
    (0..).map(|n| format!("key-{n}")).filter(|key| Lane::of(key) == lane).take(many).collect()
}

/// Events of one lane with sequences from `first` on.
pub(super) fn numbered(events: &[Written], first: u64) -> Vec<HeldEvent> {
    let numbers = first..;
    events.iter().zip(numbers).map(|(written, sequence)| HeldEvent { written: written.clone(), sequence }).collect()
}

/// The row of the event's key, in this state.
pub(super) fn held_key(head: &Written, state: HeldState) -> HeldKey {
    HeldKey {
        lane: head.lane,
        ordering_key: head.event.ordering_key.clone(),
        state,
        attempts: 3,
        retry_at_ms: head.time_ms + 60_000,
        error: "no such topic".to_owned(),
        since_ms: 0,
        events: 0,
    }
}

/// Who and why.
pub(super) fn audit(reason: &str) -> Audit {
    Audit { actor: "tester".to_owned(), reason: reason.to_owned() }
}

/// The state of this lane, moved past these events of it, each counted.
pub(super) fn past(state: &LaneState, events: &[Written]) -> LaneState {
    let mut state = state.clone();
    for event in events.iter().filter(|event| event.lane == state.lane) {
        state.cursor = state.cursor.max(event.cursor);
        *state.counts.entry(event.event.topic.clone()).or_default() += 1;
    }
    state
}

/// All different.
pub(super) fn distinct<T: Ord>(items: impl IntoIterator<Item = T>) -> bool {
    let mut seen = BTreeSet::new();
    items.into_iter().all(|item| seen.insert(item))
}
