//! Publishes the events of one lane.

mod held;
mod publish;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::backoff::{Backoff, stopped};
use crate::outbox::{Cursor, HeldEvent, HeldKey, HeldState, Holding, LaneState, Outbox};
use crate::relay::board::Board;
use crate::relay::position::Mark;
use crate::relay::reader::Parcel;
use crate::relay::{Context, Lost, failed, numbering};
use crate::sink::{self, Guarantee, Sink};
use crate::{Error as StoreError, observe};

/// What a worker is told.
#[derive(Debug)]
pub(super) enum Message {
    /// Events to publish.
    Parcel(Parcel),
    /// Somebody may have changed held keys.
    LookAfterHeld,
}

/// Publishes one lane's events, one batch at a time, and looks after its held keys in between. Nobody else gives out
/// sequences of the lane, so what it counts is what was counted before a crash (decision 3).
pub(super) struct Worker<S, K> {
    context: Arc<Context<S, K>>,
    board: Arc<Board>,
    /// Where the lane stands: everything at or before its cursor is published, held or skipped.
    state: LaneState,
    /// How far the sink says that it has come: up to there events are counted and not sent.
    committed: Option<Cursor>,
    /// Keys whose events go to the held ones, and when their first is tried next.
    held: BTreeMap<String, Held>,
    /// Where the held events of keys began when the lane was taken. What is read again from before is not held: it has
    /// been published, or a transactional sink has still to take it.
    held_from: BTreeMap<String, Cursor>,
    /// Where reading ended when it was asked first: whoever had the lane before may have published up to there.
    head: Option<Cursor>,
    /// Keys that were found or made parked, and whose events' places are not filled yet.
    parked_now: Vec<String>,
    messages: mpsc::UnboundedReceiver<Message>,
    stopping: watch::Receiver<bool>,
    /// When the next batch may go at the earliest.
    next_batch_at: Instant,
}

#[derive(Debug)]
struct Held {
    key: HeldKey,
    /// When to try again; `None` for a parked key.
    due: Option<Instant>,
    /// Failures of the sink, which no attempt is counted for.
    unavailable: u32,
}

/// Why a worker goes no further. What was in flight stays as it was stored last.
#[derive(Debug)]
enum Halt {
    /// It was told to stop.
    Stopping,
    /// The membership is over.
    Lost(Lost),
}

impl From<Lost> for Halt {
    fn from(lost: Lost) -> Halt {
        Halt::Lost(lost)
    }
}

impl<S: Outbox, K: Sink> Worker<S, K> {
    pub(super) fn new(
        context: Arc<Context<S, K>>,
        board: Arc<Board>,
        state: LaneState,
        messages: mpsc::UnboundedReceiver<Message>,
        stopping: watch::Receiver<bool>,
    ) -> Worker<S, K> {
        Worker {
            context,
            board,
            state,
            committed: None,
            held: BTreeMap::new(),
            held_from: BTreeMap::new(),
            head: None,
            parked_now: Vec::new(),
            messages,
            stopping,
            next_batch_at: Instant::now(),
        }
    }

    /// Works until it is told to stop, or the membership is over.
    pub(super) async fn work(mut self) {
        match self.begin_and_go_on().await {
            Halt::Stopping => {}
            Halt::Lost(why) => self.context.lose(why),
        }
    }

    async fn begin_and_go_on(&mut self) -> Halt {
        if let Err(halt) = self.begin().await {
            return halt;
        }
        loop {
            if let Err(halt) = self.go_on().await {
                return halt;
            }
        }
    }

    /// Takes the lane at the sink, and learns which keys are held.
    async fn begin(&mut self) -> Result<(), Halt> {
        let mark = self.take_lane().await?;
        // What goes out next takes the place of this mark at the sink, so it is made good first.
        if let Some(mark) = mark.filter(|mark| mark.incarnation == self.context.joined.incarnation) {
            self.committed = Some(mark.cursor());
            if let Some(held) = &mark.held {
                self.release_committed(held).await?;
            }
        }
        self.look_after_held().await?;
        for ordering_key in self.held.keys().cloned().collect::<Vec<_>>() {
            if let Some(first) = self.held_events(&ordering_key, 1).await?.first() {
                self.held_from.insert(ordering_key, first.written.cursor);
            }
        }
        // Whoever parked a key may have died before the placeholders went out.
        self.fill_new_gaps().await
    }

    async fn go_on(&mut self) -> Result<(), Halt> {
        let due = self.held.values().filter_map(|held| held.due).min();
        let retry = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stopped(&mut self.stopping) => Err(Halt::Stopping),
            () = retry => self.retry_due().await,
            message = self.messages.recv() => match message {
                None => Err(Halt::Stopping),
                Some(Message::LookAfterHeld) => self.look_after_held().await,
                Some(Message::Parcel(parcel)) => {
                    let (parcels, look) = self.gather(parcel).await?;
                    self.pass(parcels).await?;
                    if look { self.look_after_held().await } else { Ok(()) }
                }
            },
        }
    }

    /// Adds what else has arrived, up to one batch. Waits first if batches are to be rare. Says also whether held keys
    /// are to be looked after.
    async fn gather(&mut self, first: Parcel) -> Result<(Vec<Parcel>, bool), Halt> {
        if !first.events.is_empty() && Instant::now() < self.next_batch_at {
            let at = self.next_batch_at;
            tokio::select! {
                () = tokio::time::sleep_until(at) => {}
                () = stopped(&mut self.stopping) => return Err(Halt::Stopping),
            }
        }
        let (mut count, mut look) = (first.events.len(), false);
        let mut parcels = vec![first];
        while count < self.context.settings.batch {
            match self.messages.try_recv() {
                Ok(Message::Parcel(parcel)) => {
                    count += parcel.events.len();
                    parcels.push(parcel);
                }
                Ok(Message::LookAfterHeld) => look = true,
                Err(_) => break,
            }
        }
        Ok((parcels, look))
    }

    /// Passes the events of these parcels: each is published, or held, or known to be committed at the sink.
    async fn pass(&mut self, parcels: Vec<Parcel>) -> Result<(), Halt> {
        let Some(upto) = parcels.last().map(|parcel| parcel.upto) else { return Ok(()) };
        if upto <= self.state.cursor {
            return Ok(());
        }
        let mut after = self.state.clone();
        let mut batch = Vec::new();
        let mut tails: BTreeMap<String, Vec<HeldEvent>> = BTreeMap::new();
        let mut rooms = Vec::with_capacity(parcels.len());
        let mut counted = false;
        for parcel in parcels {
            rooms.push(parcel.room);
            for written in parcel.events {
                if written.cursor <= self.state.cursor {
                    continue;
                }
                counted = true;
                let sequence = numbering::count(&mut after, &written);
                // A refused event is held before the sink commits a position beyond it, so what lies behind the sink's
                // position is either published or held already.
                if self.committed.is_some_and(|committed| written.cursor <= committed) {
                    continue;
                }
                let event = HeldEvent { written, sequence };
                if let Some(tail) = tails.get_mut(&event.written.event.ordering_key) {
                    tail.push(event);
                } else if self.is_held(&event) {
                    tails.insert(event.written.event.ordering_key.clone(), vec![event]);
                } else {
                    batch.push(event);
                }
            }
        }
        after.cursor = upto;
        if !tails.is_empty() {
            let parked = |key: &String| self.held.get(key).is_some_and(|held| held.key.state == HeldState::Parked);
            if self.context.sink.fills_gaps() {
                let gaps = tails.iter().filter(|(key, _)| parked(key)).flat_map(|(_, tail)| tail);
                batch.extend(gaps.map(numbering::placeholder));
            }
        }
        let mut holdings = tails.into_values().map(|events| Holding::Hold { key: None, events }).collect();
        if self.holds_first() {
            self.store_held(&mut holdings).await?;
        }
        if !batch.is_empty() {
            self.next_batch_at = Instant::now() + self.context.settings.commit_interval;
            let mark = Mark::new(&self.context.joined.incarnation, upto);
            holdings.extend(self.publish(batch, mark).await?);
        }
        self.state = after;
        self.store_held(&mut holdings).await?;
        self.fill_new_gaps().await?;
        self.board.post(&self.state, counted);
        Ok(())
    }

    /// Whether held events must be stored before the rest of their batch goes out. A transactional sink commits the
    /// batch's end as the lane's position, and nothing before that is sent again. With other sinks they are stored
    /// together with that position: a crash before then has the whole batch read again, as if nothing had been tried.
    fn holds_first(&self) -> bool {
        self.context.sink.guarantee() == Guarantee::Transactional
    }

    /// Whether an event belongs to the held ones.
    fn is_held(&self, event: &HeldEvent) -> bool {
        let ordering_key = &event.written.event.ordering_key;
        self.held.contains_key(ordering_key)
            && self.held_from.get(ordering_key).is_none_or(|from| event.written.cursor >= *from)
    }

    /// Takes the lane at the sink, however long that takes.
    async fn take_lane(&mut self) -> Result<Option<Mark>, Halt> {
        let mut backoff = self.backoff();
        loop {
            match self.context.sink.take_lane(self.state.lane).await {
                Ok(position) => return Ok(position.as_ref().and_then(Mark::decode)),
                Err(sink::Error::Fenced) => return Err(Lost::Fenced.into()),
                Err(error) => {
                    failed("take a lane at the sink", &error);
                    self.pause(&mut backoff).await?;
                }
            }
        }
    }

    /// Stores what becomes of held keys together with where the lane stands, however long that takes: nothing can go on
    /// before it is stored. What is stored is taken from the list.
    async fn store_held(&mut self, holdings: &mut Vec<Holding>) -> Result<(), Halt> {
        if holdings.is_empty() {
            return Ok(());
        }
        let mut backoff = self.backoff();
        loop {
            match self.context.store.hold(self.context.joined.id, &self.state, holdings).await {
                Ok(()) => {
                    holdings.clear();
                    return Ok(());
                }
                Err(StoreError::Fenced) => return Err(Lost::Fenced.into()),
                Err(error) => {
                    failed("store held events", &error);
                    self.pause(&mut backoff).await?;
                }
            }
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(self.context.settings.backoff_min, self.context.settings.backoff_max)
    }

    async fn pause(&mut self, backoff: &mut Backoff) -> Result<(), Halt> {
        if backoff.pause(&mut self.stopping).await { Ok(()) } else { Err(Halt::Stopping) }
    }
}

/// Records how long an event took to get out.
fn note_published(event: &HeldEvent, now_ms: i64) {
    let lag_ms = u64::try_from(now_ms - event.written.time_ms).unwrap_or(0);
    observe::publish_lag(Duration::from_millis(lag_ms));
}
