//! Looks after the outbox beside the reading.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::outbox::{Blocker, Outbox};
use crate::relay::lane::Message;
use crate::relay::shift::Feeds;
use crate::relay::{Context, failed, now_ms};
use crate::sink::{Lane, Sink};
use crate::{failpoint, observe};

/// Counting a large backlog takes long: at most this share of the time goes into it.
const COUNTING_SHARE: u32 = 20;

/// How long a transaction is open before the log names it. Shorter ones are every day's.
const NAMED_AFTER_MS: i64 = 5_000;

/// Makes room, counts what waits, and has workers look after their held keys, for as long as it is polled.
pub(super) async fn keep<S: Outbox, K: Sink>(context: &Context<S, K>, feeds: &Feeds) {
    let lanes: Vec<Lane> = feeds.keys().copied().collect();
    let mut ticks = tokio::time::interval(context.settings.housekeeping_interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut count_at = Instant::now();
    let mut named = Vec::new();
    let mut held = BTreeSet::new();
    loop {
        ticks.tick().await;
        if lanes.is_empty() {
            continue;
        }
        match context.store.held_keys(&lanes).await {
            Ok(keys) => {
                let holding: BTreeSet<Lane> = keys.iter().map(|key| key.lane).collect();
                // A lane whose last held key has just gone must learn that, too.
                for feed in held.union(&holding).filter_map(|lane| feeds.get(lane)) {
                    // A worker that is gone has ended the shift.
                    let _ = feed.send(Message::LookAfterHeld);
                }
                held = holding;
            }
            Err(error) => failed("look after held keys", &error),
        }
        match context.store.tidy_outbox(context.settings.keep).await {
            Ok(tidied) => {
                if tidied.switched {
                    failpoint::reach(failpoint::RELAY_ROTATING).await;
                }
                observe::outbox_tidied(&tidied);
                name_blockers(&mut named, &tidied.blockers);
            }
            Err(error) => failed("make room in the outbox", &error),
        }
        if Instant::now() >= count_at {
            let begun = Instant::now();
            match context.store.backlog().await {
                Ok(backlog) => observe::outbox_backlog(&backlog),
                Err(error) => failed("count what waits", &error),
            }
            count_at = Instant::now() + begun.elapsed() * COUNTING_SHARE + Duration::from_millis(500);
        }
    }
}

/// Says who has held the outbox up for long, once for each.
fn name_blockers(named: &mut Vec<i32>, blockers: &[Blocker]) {
    let since_ms = now_ms() - NAMED_AFTER_MS;
    for blocker in blockers.iter().filter(|blocker| blocker.since_ms < since_ms) {
        if !named.contains(&blocker.pid) {
            // What it runs may hold what must not be in a log; `semel outbox status` shows it.
            let Blocker { holds, pid, who, since_ms, state, .. } = blocker;
            tracing::warn!(holds, pid, who, since_ms, state, "a session of the database holds the outbox up");
        }
    }
    *named = blockers.iter().filter(|blocker| blocker.since_ms < since_ms).map(|blocker| blocker.pid).collect();
}
