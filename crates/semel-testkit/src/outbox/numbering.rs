//! Which sequence each event gets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use semel::EventId;
use semel::outbox::{Cursor, HeldEvent, LaneHistory, LaneState, Page};
use semel::sink::Lane;

/// Numbers events the way a relay does: per lane and topic, one more than the count so far, in the order of the pages.
/// Where the counts were raised because held events got new sequences, a history says so, and that is followed.
#[derive(Debug, Clone)]
pub struct Numbering {
    lanes: BTreeMap<Lane, Numbered>,
}

#[derive(Debug, Clone)]
struct Numbered {
    state: LaneState,
    /// What lies after it is not numbered here.
    upto: Cursor,
    renumbered: VecDeque<LaneState>,
    redriven: BTreeMap<EventId, u64>,
    withheld: BTreeSet<EventId>,
}

impl Numbering {
    /// Goes on where these lanes stand.
    pub fn from_states(states: impl IntoIterator<Item = LaneState>) -> Numbering {
        let lanes = states.into_iter().map(|state| {
            let upto = Cursor::end_of(i64::MAX);
            let (renumbered, redriven, withheld) = Default::default();
            (state.lane, Numbered { state, upto, renumbered, redriven, withheld })
        });
        Numbering { lanes: lanes.collect() }
    }

    /// Goes over the past of these lanes once more, to where they stand.
    pub fn from_history(histories: impl IntoIterator<Item = LaneHistory>) -> Numbering {
        let lanes = histories.into_iter().map(|LaneHistory { from, upto, renumbered, redriven, withheld }| {
            (from.lane, Numbered { state: from, upto, renumbered: renumbered.into(), redriven, withheld })
        });
        Numbering { lanes: lanes.collect() }
    }

    /// Its lanes.
    pub fn lanes(&self) -> Vec<Lane> {
        self.lanes.keys().copied().collect()
    }

    /// Where reading begins: at the lane that is furthest behind.
    pub fn after(&self) -> Cursor {
        self.lanes.values().map(|lane| lane.state.cursor).min().unwrap_or(Cursor::START)
    }

    /// Where each lane stands.
    pub fn states(&self) -> Vec<LaneState> {
        self.lanes.values().map(|lane| lane.state.clone()).collect()
    }

    /// Numbers what a page holds, without what lanes have behind them, and moves all lanes past it. Of the past, what
    /// was held or skipped is counted and left out, and what was redriven has the number that it got last.
    pub fn pass(&mut self, page: &Page) -> Vec<HeldEvent> {
        let mut numbered = Vec::new();
        for written in &page.events {
            let Some(lane) = self.lanes.get_mut(&written.lane) else { continue };
            if written.cursor <= lane.state.cursor || written.cursor > lane.upto {
                continue;
            }
            lane.follow(written.cursor);
            let count = lane.state.counts.entry(written.event.topic.clone()).or_default();
            *count += 1;
            lane.state.cursor = written.cursor;
            if !lane.withheld.contains(&written.id) {
                let sequence = lane.redriven.get(&written.id).copied().unwrap_or(*count);
                numbered.push(HeldEvent { written: written.clone(), sequence });
            }
        }
        for lane in self.lanes.values_mut() {
            lane.state.cursor = lane.state.cursor.max(page.upto);
        }
        numbered
    }
}

impl Numbered {
    /// Takes over the counts of every state that lies before `next`.
    fn follow(&mut self, next: Cursor) {
        while self.renumbered.front().is_some_and(|state| state.cursor < next) {
            if let Some(state) = self.renumbered.pop_front() {
                self.state.counts = state.counts;
            }
        }
    }
}
