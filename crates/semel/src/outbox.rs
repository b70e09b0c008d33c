//! Events that were committed and wait to be published.
//!
//! A store keeps them in the order in which their transactions held their ordering keys' locks, hands them to relays
//! lane by lane, and keeps how far each lane has come. Decision 3 lists the interleavings behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use crate::Error;
use crate::event::{Event, EventId};
use crate::operator::Audit;
use crate::sink::Lane;
use crate::store::Store;

/// How many lanes there are. An ordering key's lane never changes, so neither does this.
pub const LANES: u16 = 64;

/// The most events that one transaction may emit (I12).
pub const MAX_EVENTS: usize = 10_000;

/// The most ordering keys that one transaction may emit to (I12): each is a lock of the database.
pub const MAX_ORDERING_KEYS: usize = 1_000;

/// How far a lane has come: a tick of the store and the place in it. A store whose events are written in commit order
/// has one tick only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// Which tick.
    pub tick: i64,
    /// The seq of the last event that has been dealt with in that tick; [`i64::MAX`] once all have been.
    pub seq: i64,
}

impl Cursor {
    /// Before everything.
    pub const START: Cursor = Cursor::end_of(0);

    /// Past all of a tick.
    pub const fn end_of(tick: i64) -> Cursor {
        Cursor { tick, seq: i64::MAX }
    }
}

/// The last sequence that was given out per topic, in one lane.
pub type Counts = BTreeMap<String, u64>;

/// Where a lane stands. Everything at or before the cursor has been published, held or skipped, and the counts are
/// those at the cursor: the sequence of every later event follows from both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneState {
    /// Which lane.
    pub lane: Lane,
    /// How far it has come.
    pub cursor: Cursor,
    /// What it has counted.
    pub counts: Counts,
}

/// A relay's membership, and its fencing token: later ones are greater, and a relay that was given up for dead holds
/// one that no write is accepted with (I7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayId(pub i64);

/// What a relay gets when it joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Who it is.
    pub id: RelayId,
    /// Which history of the database its sequences count in.
    pub incarnation: String,
}

/// An event as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its place.
    pub cursor: Cursor,
    /// Its identity.
    pub id: EventId,
    /// The partition of its ordering key.
    pub lane: Lane,
    /// When it was emitted, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// What was emitted.
    pub event: Event,
}

/// A page of events: all there are, of the lanes asked for, after the cursor asked for and up to `upto`, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The events, by rising cursor. May be empty.
    pub events: Vec<Written>,
    /// How far the page reaches, always beyond the cursor asked for.
    pub upto: Cursor,
}

/// How large a page may get. One event is always returned, however large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// The most events.
    pub events: u32,
    /// The most bytes of payloads.
    pub bytes: u64,
}

/// An event of a held key, with the sequence it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldEvent {
    /// What was written.
    pub written: Written,
    /// The number it is published with.
    pub sequence: u64,
}

/// Where a held key stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldState {
    /// Its first event was refused and is tried again.
    Retrying,
    /// The attempts are used up; it waits for somebody.
    Parked,
    /// Somebody wants it tried again; its events get new sequences first.
    Redriving,
}

impl HeldState {
    /// The name that databases and operators see.
    pub fn as_str(self) -> &'static str {
        match self {
            HeldState::Retrying => "retrying",
            HeldState::Parked => "parked",
            HeldState::Redriving => "redriving",
        }
    }

    /// Reads the name back.
    pub fn parse(name: &str) -> Option<HeldState> {
        [HeldState::Retrying, HeldState::Parked, HeldState::Redriving].into_iter().find(|state| state.as_str() == name)
    }
}

/// An ordering key whose events are held back because the first of them was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldKey {
    /// Its lane.
    pub lane: Lane,
    /// The key.
    pub ordering_key: String,
    /// Where it stands.
    pub state: HeldState,
    /// How often its first event was tried since it is the first.
    pub attempts: u32,
    /// When to try again, in milliseconds since the Unix epoch by the database's clock; read only while retrying.
    pub retry_at_ms: i64,
    /// Why it was refused last.
    pub error: String,
    /// Since when it is held, in milliseconds since the Unix epoch. Stores set it.
    pub since_ms: i64,
    /// How many events are held. Stores set it when they list; it is not written.
    pub events: u64,
}

/// What happens to a held key, in one commit with the lane's position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holding {
    /// Holds these events of a key back. Those that are held already stay as they are. `key` is written anew, or, if
    /// `None`, the key is held already and its row stays.
    Hold {
        /// The key's row, if it is new.
        key: Option<HeldKey>,
        /// Events of one ordering key, in order.
        events: Vec<HeldEvent>,
    },
    /// Another attempt failed, or the attempts are used up: the key's row is written anew, its events stay.
    Update(HeldKey),
    /// These were published. The key is free when none of its events is left; otherwise its row is written anew with
    /// no attempts, to be tried at once.
    Release {
        /// Which key.
        ordering_key: String,
        /// The seq of the last event that was published; it and all before it go.
        upto_seq: i64,
    },
    /// The key's events get these sequences, and the key is to be tried at once, with no attempts.
    Renumber {
        /// Which key.
        ordering_key: String,
        /// The seq of each event and its new sequence.
        sequences: Vec<(i64, u64)>,
    },
}

/// How much waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Committed events that no position covers yet, of all lanes. Held events are not among them.
    pub events: u64,
    /// When the oldest of them was emitted, in milliseconds since the Unix epoch.
    pub oldest_ms: Option<i64>,
    /// Keys that are retried.
    pub retrying_keys: u64,
    /// Keys that are parked.
    pub parked_keys: u64,
    /// The store's clock, for comparing.
    pub now_ms: i64,
}

/// What tidying the outbox did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tidied {
    /// Whether events are written to another part of the storage from now on.
    pub switched: bool,
    /// How many parts were emptied, or how many rows deleted where storage has no parts.
    pub emptied: u64,
    /// Whether there was no free part to go on to: the one that is written to grows meanwhile.
    pub full: bool,
    /// Who keeps a part from being emptied.
    pub blockers: Vec<Blocker>,
}

/// A session of the database that holds something up, as an operator needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Blocker {
    /// What is held up.
    pub holds: String,
    /// The process id of the database's backend.
    pub pid: i32,
    /// Who it is: user and application name.
    pub who: String,
    /// Since when its transaction is open, in milliseconds since the Unix epoch.
    pub since_ms: i64,
    /// What it does: its state.
    pub state: String,
    /// Its last statement, cut to 200 characters.
    pub query: String,
}

/// A relay as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RelayRecord {
    /// Its membership.
    pub id: i64,
    /// The name it gave.
    pub name: String,
    /// How many lanes it has.
    pub lanes: u64,
    /// When its lease ends, in milliseconds since the Unix epoch.
    pub expires_at_ms: i64,
    /// Whether it has run out.
    pub expired: bool,
}

/// The outbox as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxStatus {
    /// The database's incarnation now.
    pub incarnation: String,
    /// The incarnation that positions were stored in, if any were.
    pub positions_of: Option<String>,
    /// How much waits.
    pub backlog: Backlog,
    /// Who relays.
    pub relays: Vec<RelayRecord>,
    /// How many lanes nobody has.
    pub free_lanes: u64,
    /// The parts of the storage and what they are in; empty where storage has no parts.
    pub slots: Vec<String>,
    /// Who holds something up.
    pub blockers: Vec<Blocker>,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventState {
    /// Committed; no position covers it yet.
    Created,
    /// Published, as far as the positions say.
    Published,
    /// Refused, or behind one that was, and tried again.
    Retrying,
    /// The attempts are used up.
    Parked,
    /// To be tried again on somebody's word.
    Redriving,
    /// Taken out by somebody; the audit says who and why.
    Skipped,
}

/// An event as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// What was written.
    pub written: Written,
    /// What became of it.
    pub state: EventState,
    /// The key's row, while it is held.
    pub held: Option<HeldKey>,
    /// Who skipped it and why.
    pub skipped: Option<Audit>,
}

/// What became of a redrive or a skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intervention {
    /// This many keys (redrive) or events (skip) were changed, or with `dry_run` would have been.
    Done(u64),
    /// There is no such key or event among the held ones.
    NotFound,
    /// The event's key is held but not parked: the relay may be publishing it this very moment.
    NotParked,
}

/// What became of a rebase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebased {
    /// The incarnation that positions were stored in.
    pub from: Option<String>,
    /// The incarnation from now on.
    pub to: String,
    /// How many events were not covered by a position and wait to be published in the new incarnation.
    pub events: u64,
}

/// A lane's past, for publishing it again with the numbers it had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneHistory {
    /// The oldest stored state of the lane that events are still there for.
    pub from: LaneState,
    /// How far the lane has come: later events have not been published yet.
    pub upto: Cursor,
    /// States whose counts do not follow from those before, because held events got new sequences there; by rising
    /// cursor.
    pub renumbered: Vec<LaneState>,
    /// Events that got a new sequence when they were redriven, and the last one they got.
    pub redriven: BTreeMap<EventId, u64>,
    /// Events that are held now, or were skipped.
    pub withheld: BTreeSet<EventId>,
}

/// A store that keeps events for relays.
///
/// Writes take a [`RelayId`] and fail with [`Error::Fenced`], changing nothing, once another relay has taken over.
pub trait Outbox: Store {
    /// Joins the relays. Fails with [`Error::Incarnation`] if positions were stored in another incarnation of the
    /// database.
    fn join_relays(&self, name: &str, lease_for: Duration) -> impl Future<Output = Result<Joined, Error>> + Send;

    /// Extends the lease, and says how many relays there are whose lease runs.
    fn renew_relay(&self, id: RelayId, lease_for: Duration) -> impl Future<Output = Result<u32, Error>> + Send;

    /// Takes up to `most` lanes that are free or whose relay's lease has run out, and returns where each stands. A
    /// relay whose lanes are taken is out: it has no lane and no membership any more.
    fn take_lanes(&self, id: RelayId, most: u16) -> impl Future<Output = Result<Vec<LaneState>, Error>> + Send;

    /// Stores where lanes stand and frees them, in one commit.
    fn leave_lanes(&self, id: RelayId, lanes: &[LaneState]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Ends the membership and frees every lane it has. A membership that has ended already is no error.
    fn leave_relays(&self, id: RelayId) -> impl Future<Output = Result<(), Error>> + Send;

    /// Reads on after a cursor. `None` if there is nothing new. What a page holds is durable and never changes: asked
    /// again from the same cursor for the same lanes, the same events come in the same order, by whomever and whenever
    /// (I5), though pages may be cut elsewhere.
    fn page(
        &self,
        after: Cursor,
        lanes: &[Lane],
        limit: PageLimit,
    ) -> impl Future<Output = Result<Option<Page>, Error>> + Send;

    /// Where reading ends now: whatever anybody has read so far, and no position covers, lies at or before it.
    fn head(&self) -> impl Future<Output = Result<Cursor, Error>> + Send;

    /// Stores where lanes stand. A crash may lose the last of these: then events are published again, as they were. A
    /// state that is not beyond the stored one was overtaken, and is left out.
    fn checkpoint(&self, id: RelayId, lanes: &[LaneState]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Stores where a lane stands and what becomes of held keys of it, in one durable commit. Only with
    /// [`Holding::Renumber`] do the counts change where the lane stands already.
    fn hold(
        &self,
        id: RelayId,
        lane: &LaneState,
        holdings: &[Holding],
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// The held keys of these lanes.
    fn held_keys(&self, lanes: &[Lane]) -> impl Future<Output = Result<Vec<HeldKey>, Error>> + Send;

    /// The first held events of a key, in order.
    fn held_events(
        &self,
        lane: Lane,
        ordering_key: &str,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<HeldEvent>, Error>> + Send;

    /// Completes when an event was committed through this store, by this process, since the last call.
    fn emitted(&self) -> impl Future<Output = ()> + Send;

    /// How much waits. May take long when much does.
    fn backlog(&self) -> impl Future<Output = Result<Backlog, Error>> + Send;

    /// Makes room: what is published and older than `keep` goes. Never waits for anybody.
    fn tidy_outbox(&self, keep: Duration) -> impl Future<Output = Result<Tidied, Error>> + Send;

    /// Everything an operator asks first.
    fn outbox_status(&self) -> impl Future<Output = Result<OutboxStatus, Error>> + Send;

    /// Looks one event up, as long as it is kept.
    fn show_event(&self, id: EventId) -> impl Future<Output = Result<Option<EventRecord>, Error>> + Send;

    /// Lists held keys, the longest held first; stores cap `limit` at 10,000.
    fn list_held(
        &self,
        state: Option<HeldState>,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<HeldKey>, Error>> + Send;

    /// Has parked keys tried again: one, or all. The relay gives their events new sequences. Writes the audit rows in
    /// the same commit.
    fn redrive(
        &self,
        ordering_key: Option<&str>,
        audit: &Audit,
        dry_run: bool,
    ) -> impl Future<Output = Result<Intervention, Error>> + Send;

    /// Takes one event of a parked key out for good, and writes the audit row in the same commit. If it was the key's
    /// last, the key is free; otherwise it stays parked.
    fn skip_event(
        &self,
        id: EventId,
        audit: &Audit,
        dry_run: bool,
    ) -> impl Future<Output = Result<Intervention, Error>> + Send;

    /// Makes positions of another incarnation good for this one (decision 3), and writes the audit row in the same
    /// commit. Refused while a relay's lease runs.
    fn rebase(&self, audit: &Audit, dry_run: bool) -> impl Future<Output = Result<Rebased, Error>> + Send;

    /// The past of every lane that events are kept of, for a replay.
    fn history(&self) -> impl Future<Output = Result<Vec<LaneHistory>, Error>> + Send;
}
