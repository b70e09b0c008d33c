//! Looks after the keys of a lane whose events are held.

use tokio::time::Instant;

use super::{Halt, Worker, note_published};
use crate::backoff::Backoff;
use crate::error::told;
use crate::outbox::{Cursor, HeldEvent, HeldState, Holding, Outbox};
use crate::relay::position::{HeldMark, Mark};
use crate::relay::{Lost, failed, now_ms, numbering};
use crate::sink::{self, Sink};

/// The most held events sent at once.
const BATCH: u32 = 100;

/// The most held events of one key that are redriven at once (I12); the rest follows with new events.
const MOST_REDRIVEN: u32 = 100_000;

impl<S: Outbox, K: Sink> Worker<S, K> {
    /// Reads the lane's held keys anew: somebody may have redriven or skipped some.
    pub(super) async fn look_after_held(&mut self) -> Result<(), Halt> {
        let mut backoff = self.backoff();
        let keys = loop {
            match self.context.store.held_keys(&[self.state.lane]).await {
                Ok(keys) => break keys,
                Err(error) => {
                    failed("look after held keys", &error);
                    self.pause(&mut backoff).await?;
                }
            }
        };
        let known = std::mem::take(&mut self.held);
        let mut redriven = Vec::new();
        for key in keys {
            if key.state == HeldState::Redriving {
                redriven.push(key.ordering_key.clone());
            }
            match known.get(&key.ordering_key) {
                // A pause because of the sink is not stored, and goes on.
                Some(held) if (held.key.state, held.key.attempts) == (key.state, key.attempts) => {
                    let (due, unavailable) = (held.due, held.unavailable);
                    self.held.insert(key.ordering_key.clone(), super::Held { key, due, unavailable });
                }
                _ => self.remember(key),
            }
        }
        for ordering_key in redriven {
            // New sequences are those after all that were given out. What was published and not noted has its own, and
            // is counted again first.
            if self.has_caught_up().await? {
                self.redrive(&ordering_key).await?;
            }
        }
        Ok(())
    }

    /// Gives the held events of a key new sequences. They are stored together with the lane's counts, so that what is
    /// counted later stays the same after a crash.
    async fn redrive(&mut self, ordering_key: &str) -> Result<(), Halt> {
        // Whoever parked it may have died before the places of its old sequences were filled.
        self.fill_gaps(ordering_key).await?;
        let events = self.held_events(ordering_key, MOST_REDRIVEN).await?;
        let before = self.state.clone();
        let sequences = events
            .iter()
            .map(|event| (event.written.cursor.seq, numbering::count(&mut self.state, &event.written)))
            .collect();
        let renumber = Holding::Renumber { ordering_key: ordering_key.to_owned(), sequences };
        if let Err(halt) = self.store_held(&mut vec![renumber]).await {
            // It may have been stored or not: nothing more is counted here, and the lane is read anew by whoever has
            // it next.
            self.state = before;
            return Err(match halt {
                Halt::Stopping => Lost::Failed.into(),
                lost @ Halt::Lost(_) => lost,
            });
        }
        self.board.post(&self.state, true);
        if let Some(held) = self.held.get_mut(ordering_key) {
            held.key.state = HeldState::Retrying;
            held.key.attempts = 0;
            held.due = Some(Instant::now());
        }
        Ok(())
    }

    /// Whether the lane has passed everything that whoever had it before may have published.
    async fn has_caught_up(&mut self) -> Result<bool, Halt> {
        let mut backoff = self.backoff();
        let head = loop {
            match self.head {
                Some(head) => break head,
                None => match self.context.store.head().await {
                    Ok(head) => self.head = Some(head),
                    Err(error) => {
                        failed("see how far was read", &error);
                        self.pause(&mut backoff).await?;
                    }
                },
            }
        };
        Ok(self.state.cursor >= head)
    }

    /// Tries every key that is due.
    pub(super) async fn retry_due(&mut self) -> Result<(), Halt> {
        let now = Instant::now();
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let due: Vec<String> =
            self.held.iter().filter(|(_, held)| is_due(held.due)).map(|(key, _)| key.clone()).collect();
        // Where held events are stored before their batch has passed, they wait for it: it is read again.
        if !due.is_empty() && self.holds_first() && !self.has_caught_up().await? {
            let later = Instant::now() + self.context.settings.backoff_min;
            self.held.values_mut().filter(|held| is_due(held.due)).for_each(|held| held.due = Some(later));
            return Ok(());
        }
        for ordering_key in due {
            self.retry(&ordering_key).await?;
        }
        Ok(())
    }

    /// Sends the first held events of a key.
    async fn retry(&mut self, ordering_key: &str) -> Result<(), Halt> {
        let mut events = self.held_events(ordering_key, BATCH).await?;
        while let Some(last) = events.last() {
            let mark = Mark::new(&self.context.joined.incarnation, self.sink_cursor()).with_held(last);
            let results = self.send(&events, &mark).await?;
            if results.iter().any(|result| matches!(result, Err(sink::Error::Fenced))) {
                return Err(Lost::Fenced.into());
            }
            let published = results.iter().take_while(|result| result.is_ok()).count();
            if published > 0 {
                return self.release(ordering_key, &events[..published]).await;
            }
            let refused = results.into_iter().enumerate().find_map(|(at, result)| match result {
                Err(sink::Error::Refused(why)) => Some((at, told(&why))),
                _ => None,
            });
            match refused {
                Some((0, error)) => return self.refused_again(ordering_key, error).await,
                // All or nothing: what comes before the refused one goes without it.
                Some((at, _)) => events.truncate(at),
                None => {
                    if self.is_committed(&mark).await? {
                        return self.release(ordering_key, &events).await;
                    }
                    if let Some(held) = self.held.get_mut(ordering_key) {
                        held.unavailable = held.unavailable.saturating_add(1);
                        let settings = &self.context.settings;
                        let pause = Backoff::after(held.unavailable, settings.backoff_min, settings.backoff_max);
                        held.due = Some(Instant::now() + pause);
                    }
                    return Ok(());
                }
            }
        }
        // Nothing is left of it: somebody skipped the last.
        self.look_after_held().await
    }

    async fn refused_again(&mut self, ordering_key: &str, error: String) -> Result<(), Halt> {
        let Some(held) = self.held.get(ordering_key) else { return Ok(()) };
        let mut key = held.key.clone();
        self.count_attempt(&mut key, error);
        if key.state == HeldState::Parked {
            tracing::error!(
                lane = key.lane.0,
                attempts = key.attempts,
                error = key.error,
                "an ordering key is parked; see `semel outbox parked`"
            );
        }
        self.store_held(&mut vec![Holding::Update(key.clone())]).await?;
        self.remember(key);
        self.fill_new_gaps().await
    }

    /// Publishes placeholders for keys that were parked just now.
    pub(super) async fn fill_new_gaps(&mut self) -> Result<(), Halt> {
        for ordering_key in std::mem::take(&mut self.parked_now) {
            self.fill_gaps(&ordering_key).await?;
        }
        Ok(())
    }

    /// Publishes a placeholder for every event of a parked key.
    pub(super) async fn fill_gaps(&mut self, ordering_key: &str) -> Result<(), Halt> {
        if !self.context.sink.fills_gaps() {
            return Ok(());
        }
        let events = self.held_events(ordering_key, MOST_REDRIVEN).await?;
        // Those that were counted in another incarnation have no sequence in this one.
        let numbered = events.iter().filter(|event| event.sequence > 0);
        let placeholders: Vec<HeldEvent> = numbered.map(numbering::placeholder).collect();
        let Some(last) = placeholders.last() else { return Ok(()) };
        let mark = Mark::new(&self.context.joined.incarnation, self.sink_cursor()).with_gap(last);
        // Where nobody takes them, nobody misses them.
        self.publish(placeholders, mark).await.map(drop)
    }

    /// Frees what has gone out; the key too, if nothing of it is left.
    async fn release(&mut self, ordering_key: &str, published: &[HeldEvent]) -> Result<(), Halt> {
        let now_ms = now_ms();
        published.iter().for_each(|event| note_published(event, now_ms));
        let Some(last) = published.last() else { return Ok(()) };
        let upto_seq = last.written.cursor.seq;
        self.store_held(&mut vec![Holding::Release { ordering_key: ordering_key.to_owned(), upto_seq }]).await?;
        self.look_after_held().await
    }

    /// After a crash between a transactional sink's commit and the release: what the sink says it has is released.
    pub(super) async fn release_committed(&mut self, mark: &HeldMark) -> Result<(), Halt> {
        let events = self.held_events(&mark.ordering_key, MOST_REDRIVEN).await?;
        let is_it = |event: &&HeldEvent| event.written.cursor.seq == mark.seq && event.sequence == mark.sequence;
        if events.iter().any(|event| is_it(&event)) {
            let ordering_key = mark.ordering_key.clone();
            self.store_held(&mut vec![Holding::Release { ordering_key, upto_seq: mark.seq }]).await?;
        }
        Ok(())
    }

    /// How far the lane has come at the sink.
    fn sink_cursor(&self) -> Cursor {
        self.committed.map_or(self.state.cursor, |committed| committed.max(self.state.cursor))
    }

    pub(super) async fn held_events(&mut self, ordering_key: &str, limit: u32) -> Result<Vec<HeldEvent>, Halt> {
        let mut backoff = self.backoff();
        loop {
            match self.context.store.held_events(self.state.lane, ordering_key, limit).await {
                Ok(events) => return Ok(events),
                Err(error) => {
                    failed("read held events", &error);
                    self.pause(&mut backoff).await?;
                }
            }
        }
    }
}
