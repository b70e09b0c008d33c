//! What a relay reads and holds, where only this store could get it wrong.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use common::{File, all_events, event};
use semel::operator::Audit;
use semel::outbox::{
    Cursor, EventState, HeldEvent, HeldKey, HeldState, Holding, Intervention, LANES, LaneState, PageLimit, RelayId,
    Written,
};
use semel::sink::Lane;
use semel::{Outbox, Tx as _};
use semel_sqlite::Sqlite;

const ROOMY: PageLimit = PageLimit { events: 100_000, bytes: 1 << 30 };

#[tokio::test]
async fn a_page_is_bounded_by_what_it_passes_over_too() {
    let file = File::create().await;
    let store = file.open().await;
    // Many events of other lanes lie before the one of this lane.
    let mut tx = store.begin().await.unwrap();
    let copies = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 25000)
                  INSERT INTO semel_events
                      (id, lane, emitted_at, topic, ordering_key, type, content_type, headers, payload)
                  SELECT zeroblob(16), 1, 0, 't', 'k', 'y', 'c', '[]', zeroblob(0) FROM n";
    tx.execute(copies, ()).await.unwrap();
    tx.emit(event("last"));
    tx.commit().await.unwrap();
    let lane = Lane::of("last");
    assert_ne!(lane, Lane(1));
    let (mut after, mut pages) = (Cursor::START, Vec::new());
    while let Some(page) = store.page(after, &[lane], ROOMY).await.unwrap() {
        after = page.upto;
        pages.push(page.events.len());
    }
    assert_eq!(pages, [0, 0, 1]);
    assert_eq!(store.page(Cursor::START, &[Lane(1)], ROOMY).await.unwrap().unwrap().events.len(), 10_000);
    assert_eq!(store.backlog().await.unwrap().events, 25_001);
}

/// A relay that holds the first events of a key.
struct Holder {
    store: Sqlite,
    id: RelayId,
    state: LaneState,
    written: Vec<Written>,
    _file: File,
}

impl Holder {
    async fn new(state: HeldState, held: usize) -> Holder {
        let file = File::create().await;
        let store = file.open().await;
        let mut tx = store.begin().await.unwrap();
        (0..3).for_each(|_| tx.emit(event("key")));
        tx.commit().await.unwrap();
        let written = all_events(&store).await;
        let id = store.join_relays("relay", Duration::from_secs(600)).await.unwrap().id;
        let lanes = store.take_lanes(id, LANES).await.unwrap();
        let lane = lanes.into_iter().find(|state| state.lane == Lane::of("key")).unwrap();
        let holder = Holder { store, id, state: lane, written, _file: file };
        let hold = Holding::Hold { key: Some(holder.key(state)), events: holder.numbered(0..held) };
        holder.apply(hold).await;
        holder
    }

    fn key(&self, state: HeldState) -> HeldKey {
        HeldKey {
            lane: self.state.lane,
            ordering_key: "key".to_owned(),
            state,
            attempts: 7,
            retry_at_ms: i64::MAX,
            error: "refused".to_owned(),
            since_ms: 0,
            events: 0,
        }
    }

    fn numbered(&self, which: std::ops::Range<usize>) -> Vec<HeldEvent> {
        which.map(|n| HeldEvent { written: self.written[n].clone(), sequence: n as u64 + 1 }).collect()
    }

    async fn apply(&self, holding: Holding) {
        self.store.hold(self.id, &self.state, &[holding]).await.unwrap();
    }

    async fn row(&self) -> Option<HeldKey> {
        self.store.held_keys(&[self.state.lane]).await.unwrap().pop()
    }

    async fn skip(&self, which: usize) {
        let audit = Audit { actor: "ada".to_owned(), reason: "useless".to_owned() };
        let skipped = self.store.skip_event(self.written[which].id, &audit, false).await.unwrap();
        assert_eq!(skipped, Intervention::Done(1));
    }
}

/// I4: between a relay's look and its write, somebody may free the key that it believes to be held.
#[tokio::test]
async fn what_is_held_behind_a_key_that_was_just_freed_is_tried() {
    let holder = Holder::new(HeldState::Parked, 1).await;
    holder.skip(0).await;
    assert_eq!(holder.row().await, None);
    // Neither does a late word about an attempt bring the empty key back.
    holder.apply(Holding::Update(holder.key(HeldState::Parked))).await;
    assert_eq!(holder.row().await, None);
    holder.apply(Holding::Hold { key: None, events: holder.numbered(1..3) }).await;
    let row = holder.row().await.unwrap();
    assert_eq!((row.state, row.attempts, row.events), (HeldState::Redriving, 0, 2));
    assert!(row.retry_at_ms <= holder.store.backlog().await.unwrap().now_ms);
    let record = holder.store.show_event(holder.written[1].id).await.unwrap().unwrap();
    assert_eq!(record.state, EventState::Redriving);
}

/// Its sequences have gone out to consumers without it, so it needs new ones, and those come with a redrive.
#[tokio::test]
async fn a_parked_key_stays_parked_when_its_first_event_is_skipped() {
    let holder = Holder::new(HeldState::Parked, 3).await;
    holder.skip(0).await;
    let row = holder.row().await.unwrap();
    assert_eq!((row.state, row.events), (HeldState::Parked, 2));
}

#[tokio::test]
async fn a_rebase_has_held_keys_renumbered() {
    for (before, after) in [(HeldState::Retrying, HeldState::Redriving), (HeldState::Parked, HeldState::Parked)] {
        let holder = Holder::new(before, 3).await;
        holder.store.leave_relays(holder.id).await.unwrap();
        let audit = Audit { actor: "ada".to_owned(), reason: "restored".to_owned() };
        holder.store.rebase(&audit, false).await.unwrap();
        assert_eq!(holder.row().await.unwrap().state, after);
    }
}
