//! Sends a batch until every event of it is published or held.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::{Halt, Held, Worker, note_published};
use crate::backoff::Backoff;
use crate::error::told;
use crate::event::PLACEHOLDER;
use crate::outbox::{HeldEvent, HeldKey, HeldState, Holding, Outbox};
use crate::relay::position::Mark;
use crate::relay::{Lost, failed, now_ms, numbering};
use crate::sink::{self, Guarantee, Outgoing, Sink};
use crate::{failpoint, observe};

impl<S: Outbox, K: Sink> Worker<S, K> {
    /// Publishes a batch. Events of a key that is refused are held, with their sequences, and come back to be stored,
    /// unless they had to be stored before the rest could go. A sink that cannot be reached is tried again for as long
    /// as it takes.
    ///
    /// Where the sink goes on failing at events while it takes others, of this lane or another, the keys that it fails
    /// at are held, too, so that the lane can go on: they are tried again beside it. A sink that takes nothing is down,
    /// and everything waits.
    pub(super) async fn publish(&mut self, mut batch: Vec<HeldEvent>, mark: Mark) -> Result<Vec<Holding>, Halt> {
        let mut holdings = Vec::new();
        let (mut taken, mut failures) = (self.context.published.load(Ordering::Relaxed), 0);
        let mut backoff = self.backoff();
        while !batch.is_empty() {
            let results = self.send(&batch, &mark).await?;
            let tried = Tried::of(&batch, results, self.context.sink.guarantee() == Guarantee::Transactional);
            let now_ms = now_ms();
            tried.published.iter().for_each(|at| note_published(&batch[*at], now_ms));
            if tried.fenced {
                return Err(Lost::Fenced.into());
            }
            let refused = &tried.refused;
            if !refused.is_empty() {
                holdings.extend(self.hold_refused(&batch, &tried));
                if self.holds_first() {
                    self.store_held(&mut holdings).await?;
                }
            }
            let mut at = 0;
            batch.retain(|event| {
                at += 1;
                !tried.published.contains(&(at - 1)) && !refused.contains_key(&event.written.event.ordering_key)
            });
            if let Some(error) = tried.unavailable {
                failed("reach the sink", &error);
                let takes_others = self.context.published.load(Ordering::Relaxed) > taken;
                taken = self.context.published.load(Ordering::Relaxed);
                failures += u32::from(takes_others);
                if failures >= self.context.settings.attempts {
                    holdings.extend(self.set_aside(&batch, &error));
                    break;
                }
                self.pause(&mut backoff).await?;
                if self.is_committed(&mark).await? {
                    break;
                }
            }
        }
        Ok(holdings)
    }

    /// Sends events once.
    pub(super) async fn send(
        &mut self,
        batch: &[HeldEvent],
        mark: &Mark,
    ) -> Result<Vec<Result<(), sink::Error>>, Halt> {
        let context = &self.context;
        let outgoing: Vec<Outgoing> = batch
            .iter()
            .map(|event| numbering::outgoing(event, &context.settings.source, &context.joined.incarnation))
            .collect();
        failpoint::reach(failpoint::RELAY_BEFORE_PUBLISH).await;
        if context.has_lapsed() {
            return Err(Lost::Lapsed.into());
        }
        let results = context.sink.publish(self.state.lane, &outgoing, &mark.encode()).await;
        failpoint::reach(failpoint::RELAY_PUBLISHED).await;
        let count =
            |of: fn(&Result<(), sink::Error>) -> bool| results.iter().filter(|result| of(result)).count() as u64;
        let published = count(Result::is_ok);
        context.published.fetch_add(published, Ordering::Relaxed);
        for (outcome, count) in [
            ("published", published),
            ("refused", count(|result| matches!(result, Err(sink::Error::Refused(_))))),
            ("unavailable", count(|result| matches!(result, Err(sink::Error::Unavailable(_))))),
            ("fenced", count(|result| matches!(result, Err(sink::Error::Fenced)))),
        ] {
            if count > 0 {
                observe::publish_attempts(outcome, count);
            }
        }
        if results.len() != batch.len() {
            tracing::error!(sent = batch.len(), answered = results.len(), "the sink did not answer for every event");
            return Err(Lost::Failed.into());
        }
        Ok(results)
    }

    /// After a failure, asks a transactional sink whether the batch was committed all the same. Taking the lane anew
    /// also makes sure that the attempt that failed cannot be committed later.
    pub(super) async fn is_committed(&mut self, mark: &Mark) -> Result<bool, Halt> {
        if self.context.sink.guarantee() != Guarantee::Transactional {
            return Ok(false);
        }
        Ok(self.take_lane().await?.as_ref() == Some(mark))
    }

    /// Takes the events of refused keys out of a batch.
    fn hold_refused(&mut self, batch: &[HeldEvent], tried: &Tried) -> Vec<Holding> {
        let mut holdings = Vec::new();
        for (ordering_key, error) in &tried.refused {
            let of_key = |(at, held): &(usize, &HeldEvent)| {
                let event = &held.written.event;
                // Nobody misses a placeholder where nobody takes it.
                event.ordering_key == *ordering_key && event.event_type != PLACEHOLDER && !tried.published.contains(at)
            };
            let events: Vec<HeldEvent> =
                batch.iter().enumerate().filter(of_key).map(|(_, event)| event.clone()).collect();
            if events.is_empty() {
                continue;
            }
            if self.held.contains_key(ordering_key) {
                self.held_from.remove(ordering_key);
                holdings.push(Holding::Hold { key: None, events });
                continue;
            }
            let mut key = self.held_key(ordering_key);
            self.count_attempt(&mut key, error.clone());
            tracing::warn!(
                lane = self.state.lane.0,
                events = events.len(),
                error,
                "the sink refuses an event; its ordering key is held back"
            );
            self.remember(key.clone());
            holdings.push(Holding::Hold { key: Some(key), events });
        }
        holdings
    }

    /// Holds everything that is left of a batch. None of it was refused, so nothing counts towards parking.
    fn set_aside(&mut self, batch: &[HeldEvent], error: &sink::Error) -> Vec<Holding> {
        let mut by_key: BTreeMap<&str, Vec<HeldEvent>> = BTreeMap::new();
        for event in batch.iter().filter(|event| event.written.event.event_type != PLACEHOLDER) {
            by_key.entry(&event.written.event.ordering_key).or_default().push(event.clone());
        }
        let mut holdings = Vec::new();
        for (ordering_key, events) in by_key {
            let mut key = self.held_key(ordering_key);
            key.error = error.to_string();
            key.retry_at_ms = now_ms() + i64::try_from(self.context.settings.backoff_max.as_millis()).unwrap_or(0);
            let key = (!self.held.contains_key(ordering_key)).then_some(key);
            key.iter().for_each(|key| self.remember(key.clone()));
            // What follows of it is held too, even where it was read again from before the first that was.
            self.held_from.remove(ordering_key);
            holdings.push(Holding::Hold { key, events });
        }
        holdings
    }

    /// A key that nothing was tried of.
    fn held_key(&self, ordering_key: &str) -> HeldKey {
        HeldKey {
            lane: self.state.lane,
            ordering_key: ordering_key.to_owned(),
            state: HeldState::Retrying,
            attempts: 0,
            retry_at_ms: 0,
            error: String::new(),
            since_ms: now_ms(),
            events: 0,
        }
    }

    /// Counts an attempt, and parks the key when it was the last.
    pub(super) fn count_attempt(&self, key: &mut HeldKey, error: String) {
        let settings = &self.context.settings;
        key.attempts += 1;
        key.error = error;
        if key.attempts >= settings.attempts {
            key.state = HeldState::Parked;
            return;
        }
        key.state = HeldState::Retrying;
        let pause = Backoff::after(key.attempts, settings.backoff_min, settings.backoff_max);
        key.retry_at_ms = now_ms() + i64::try_from(pause.as_millis()).unwrap_or(i64::MAX / 2);
    }

    /// Notes that a key is held, and when it is due.
    pub(super) fn remember(&mut self, key: HeldKey) {
        let due = match key.state {
            // A redriven key is due when its events have their new sequences.
            HeldState::Parked | HeldState::Redriving => None,
            HeldState::Retrying => {
                let wait_ms = u64::try_from(key.retry_at_ms - now_ms()).unwrap_or(0);
                // Another machine's clock may have written it.
                let wait = std::time::Duration::from_millis(wait_ms).min(self.context.settings.backoff_max);
                Some(Instant::now() + wait)
            }
        };
        let known = self.held.get(&key.ordering_key).map(|held| held.key.state);
        if key.state == HeldState::Parked && known != Some(HeldState::Parked) {
            self.parked_now.push(key.ordering_key.clone());
        }
        self.held.insert(key.ordering_key.clone(), Held { key, due, unavailable: 0 });
    }
}

/// What became of the events of one attempt.
struct Tried {
    /// By their place in the batch.
    published: std::collections::BTreeSet<usize>,
    /// By ordering key, with what the sink said.
    refused: BTreeMap<String, String>,
    unavailable: Option<sink::Error>,
    fenced: bool,
}

impl Tried {
    fn of(batch: &[HeldEvent], results: Vec<Result<(), sink::Error>>, all_or_nothing: bool) -> Tried {
        let mut tried = Tried {
            published: std::collections::BTreeSet::new(),
            refused: BTreeMap::new(),
            unavailable: None,
            fenced: false,
        };
        let whole = results.iter().all(Result::is_ok);
        for (at, result) in results.into_iter().enumerate() {
            match result {
                Ok(()) if whole || !all_or_nothing => {
                    tried.published.insert(at);
                }
                Ok(()) | Err(sink::Error::Behind) => {}
                Err(sink::Error::Refused(why)) => {
                    tried.refused.entry(batch[at].written.event.ordering_key.clone()).or_insert_with(|| told(&why));
                }
                Err(sink::Error::Fenced) => tried.fenced = true,
                Err(error @ sink::Error::Unavailable(_)) => tried.unavailable = Some(error),
            }
        }
        // Nothing went through and nobody said why: that must not become a loop without a pause.
        if tried.published.is_empty() && tried.refused.is_empty() && tried.unavailable.is_none() && !tried.fenced {
            tried.unavailable = Some(sink::Error::Unavailable("the sink took none of the events".into()));
        }
        tried
    }
}
