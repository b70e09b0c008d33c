//! Three small scenes, one for each place where something is sent again.

use anyhow::{Context, Result, ensure};
use semel_payments::event::CHARGE_CREATED;
use semel_sqlite::Sqlite;

use super::client::{ACCOUNTS, Intent, Note};
use super::forwarder::Hold;
use super::progress::Progress;
use super::stage::Stage;

/// Opens the accounts that all scenes use.
pub(super) async fn prepare(stage: &Stage) -> Result<()> {
    let mut opening = tokio::task::JoinSet::new();
    for number in 0..ACCOUNTS {
        let payments = stage.payments();
        opening.spawn(async move { payments.open_account(number).await });
    }
    opening.join_all().await.into_iter().collect()
}

/// One key, charged three times: one effect, two replays (I2, I3).
pub(super) async fn retried(stage: &Stage, store: &Sqlite, intent: Intent, progress: &Progress) -> Result<Note> {
    progress.scene("1  A client sends one charge three times");
    let (payments, mut note) = (stage.payments(), Note::default());
    for _ in 0..3 {
        payments.charge(intent, &mut note).await?;
    }
    let effects = charges(store, intent).await?;
    ensure!(
        (effects, note.replays, note.charges.len()) == (1, 2, 1),
        "three attempts made {effects} charges and {} replays, and named {} charges",
        note.replays,
        note.charges.len()
    );
    progress.fact("one effect, two replays, three equal answers");
    Ok(note)
}

/// The relay is killed after the consumer acknowledged an event and before it could note that: the event comes again
/// with the same id, and applies once (I4, I6).
pub(super) async fn relay_killed(
    stage: &mut Stage,
    store: &Sqlite,
    intent: Intent,
    progress: &Progress,
) -> Result<Note> {
    progress.scene("2  The relay is killed between publishing an event and noting it");
    let held = stage.forwarder.hold_next(CHARGE_CREATED, Hold::Acknowledged);
    let mut note = Note::default();
    stage.payments().charge(intent, &mut note).await?;
    let held = tokio::time::timeout(super::PATIENCE, held).await.context("no event was published")??;
    stage.kill_relay().await?;
    progress.fact("the consumer has acknowledged, the relay is dead and has not heard of it");
    let event = held.event.clone();
    held.lose();
    stage.start_relay().await?;
    delivered_twice(stage, &event).await?;
    applied_once(stage, store, intent).await?;
    progress.fact("another relay sent the event again, with the same id; it was recognised");
    Ok(note)
}

/// The consumer is killed after its effect is committed and before the relay hears of it: the relay sends the event
/// again, to the next consumer, which recognises it (I6).
pub(super) async fn consumer_killed(
    stage: &mut Stage,
    store: &Sqlite,
    intent: Intent,
    progress: &Progress,
) -> Result<Note> {
    progress.scene("3  The consumer is killed between its effect and the acknowledgement");
    let held = stage.forwarder.hold_next(CHARGE_CREATED, Hold::Sent);
    let mut note = Note::default();
    stage.payments().charge(intent, &mut note).await?;
    let held = tokio::time::timeout(super::PATIENCE, held).await.context("no event was published")??;
    let committed = format!("SELECT count(*) = 1 FROM payments_receipts WHERE amount = {}", intent.0);
    stage.until(store, "the receipt is committed", &committed).await?;
    stage.kill_consumer().await?;
    progress.fact("the receipt is in the file, the consumer is dead, the relay has heard nothing");
    let event = held.event.clone();
    held.lose();
    stage.start_consumer().await?;
    delivered_twice(stage, &event).await?;
    applied_once(stage, store, intent).await?;
    progress.fact("the relay sent the event again; the next consumer recognised it");
    Ok(note)
}

async fn charges(store: &Sqlite, intent: Intent) -> Result<i64> {
    let sql = "SELECT count(*) FROM payments_charges WHERE amount = ?1";
    Ok(store.read(|file| file.query_row(sql, [intent.0], |row| row.get(0))).await?)
}

/// Waits until an event has come twice.
async fn delivered_twice(stage: &Stage, event: &str) -> Result<()> {
    let twice = async {
        while stage.forwarder.deliveries_of(event) < 2 {
            tokio::time::sleep(super::LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(super::PATIENCE, twice).await.context("the event did not come again")
}

/// Waits until all is applied, and makes sure that the intent's receipt was issued once.
async fn applied_once(stage: &Stage, store: &Sqlite, intent: Intent) -> Result<()> {
    stage.settle(store, |_, _| ()).await?;
    let sql = "SELECT coalesce(sum(issued), 0) FROM payments_receipts WHERE amount = ?1";
    let issued: i64 = store.read(|file| file.query_row(sql, [intent.0], |row| row.get(0))).await?;
    ensure!(issued == 1, "the receipt was issued {issued} times");
    Ok(())
}
