//! Webhooks: what the provider tells without being asked.
//!
//! An event commits with the charge that it tells of, and is sent until somebody has answered 2xx. So it arrives at
//! least once, also over a crash, unless nobody takes it in all attempts of one process.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::CONTENT_TYPE;
use rusqlite::Transaction;
use serde_json::{Value, json};

use crate::Error;
use crate::shared::Shared;

const ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Something to tell, and how often it is still to be told.
#[derive(Debug)]
pub(crate) struct Event {
    id: String,
    url: String,
    body: String,
    remaining: i64,
}

impl Event {
    /// That a charge succeeded. Every time it is sent, it has the same id.
    pub(crate) fn charge_succeeded(url: &str, charge: &Value, times: i64) -> Event {
        let id = format!("evt_{}", uuid::Uuid::new_v4().simple());
        let body = json!({ "id": id, "type": "charge.succeeded", "data": charge }).to_string();
        Event { id, url: url.to_owned(), body, remaining: times }
    }

    /// Notes that it is to be sent, once `tx` has committed.
    pub(crate) fn insert(&self, tx: &Transaction<'_>) -> Result<(), Error> {
        let row = (&self.id, &self.url, &self.body, self.remaining);
        tx.prepare_cached(include_str!("../sql/webhook_insert.sql"))?.execute(row)?;
        Ok(())
    }

    fn waiting(tx: &Transaction<'_>) -> Result<Vec<Event>, Error> {
        let mut waiting = tx.prepare_cached(include_str!("../sql/webhooks_waiting.sql"))?;
        let events = waiting.query_map((), |row| {
            Ok(Event {
                id: row.get("id")?,
                url: row.get("url")?,
                body: row.get("body")?,
                remaining: row.get("remaining")?,
            })
        })?;
        Ok(events.collect::<Result<_, _>>()?)
    }
}

/// Refuses what would lead off this machine.
pub(crate) fn require_loopback(url: &str) -> Result<(), String> {
    let parsed = Url::parse(url).map_err(|error| format!("{url:?} is not a URL: {error}"))?;
    let host = parsed.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let on_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if on_loopback && parsed.scheme() == "http" {
        return Ok(());
    }
    Err(format!("a webhook goes to http:// and a loopback address such as 127.0.0.1, not to {url:?}"))
}

/// Sends what an earlier process left behind.
pub(crate) async fn resume(shared: &Arc<Shared>) -> Result<(), Error> {
    for event in shared.ledger.transact(Event::waiting).await? {
        deliver(shared, event);
    }
    Ok(())
}

/// Sends an event in the background.
pub(crate) fn deliver(shared: &Arc<Shared>, event: Event) {
    let shared = Arc::clone(shared);
    let mut closing = shared.closing.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = send(&shared, event) => {}
            _ = closing.changed() => {}
        }
    });
}

async fn send(shared: &Shared, mut event: Event) {
    while event.remaining > 0 {
        event.remaining = if arrives(shared, &event).await { event.remaining - 1 } else { 0 };
        let (id, remaining) = (event.id.clone(), event.remaining);
        let noted = shared.ledger.transact(move |tx| {
            tx.prepare_cached(include_str!("../sql/webhook_note.sql"))?.execute((id, remaining))?;
            Ok(())
        });
        if noted.await.is_err() {
            // It will be sent again by the next process, with the same id.
            return;
        }
    }
}

async fn arrives(shared: &Shared, event: &Event) -> bool {
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=ATTEMPTS {
        let request = shared.client.post(&event.url).header(CONTENT_TYPE, "application/json").body(event.body.clone());
        if request.send().await.is_ok_and(|response| response.status().is_success()) {
            return true;
        }
        if attempt < ATTEMPTS {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
    false
}
