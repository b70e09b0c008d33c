//! How the provider behaves when nothing goes wrong.

use std::str::FromStr;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use rusqlite::Transaction;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::answer::Answer;
use crate::shared::Shared;

/// How keys are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keys {
    /// A repeat is recognised without end.
    On,
    /// Keys are ignored, though the ledger notes them: every request executes.
    Off,
    /// A repeat is recognised if it arrives within so many milliseconds of the first. After that it executes again.
    WindowMs(u64),
}

impl Keys {
    /// Whether a repeat that arrives `age_ms` after the first is recognised.
    pub(crate) fn recognise(self, age_ms: i64) -> bool {
        match self {
            Keys::On => true,
            Keys::Off => false,
            Keys::WindowMs(window_ms) => u64::try_from(age_ms).unwrap_or(0) < window_ms,
        }
    }
}

impl FromStr for Keys {
    type Err = String;

    fn from_str(text: &str) -> Result<Keys, String> {
        let wrong = || format!("{text:?} says nothing about keys; use `on`, `off`, or a number of milliseconds");
        match text {
            "on" => Ok(Keys::On),
            "off" => Ok(Keys::Off),
            number => number.parse().map(Keys::WindowMs).map_err(|_| wrong()),
        }
    }
}

/// How the provider behaves. Settings are in the ledger, so they survive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// How keys are treated.
    pub keys: Keys,
    /// Whether `GET /operations` answers; if not, it is 501.
    pub look_up: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { keys: Keys::On, look_up: true }
    }
}

impl Settings {
    /// Stores these if the ledger is new.
    pub(crate) fn begin(self, tx: &Transaction<'_>) -> Result<(), Error> {
        self.write(tx, include_str!("../sql/settings_begin.sql"))
    }

    pub(crate) fn load(tx: &Transaction<'_>) -> Result<Settings, Error> {
        let mut find = tx.prepare_cached(include_str!("../sql/settings_find.sql"))?;
        let (keys, look_up): (String, bool) = find.query_row((), |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(Settings { keys: serde_json::from_str(&keys)?, look_up })
    }

    fn write(self, tx: &Transaction<'_>, sql: &str) -> Result<(), Error> {
        tx.prepare_cached(sql)?.execute((serde_json::to_string(&self.keys)?, self.look_up))?;
        Ok(())
    }
}

/// `GET /settings`.
pub(crate) async fn show(State(shared): State<Arc<Shared>>) -> Result<Json<Settings>, Answer> {
    Ok(Json(shared.ledger.transact(Settings::load).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    keys: Option<Keys>,
    look_up: Option<bool>,
}

/// `PUT /settings`: changes what is named, and answers with all settings once they are on the disk.
pub(crate) async fn change(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Json<Settings>, Answer> {
    let change: Change = serde_json::from_slice(&body).map_err(|error| Answer::invalid(&error.to_string()))?;
    let changed = shared.ledger.transact(move |tx| {
        let settings = Settings::load(tx)?;
        let settings = Settings {
            keys: change.keys.unwrap_or(settings.keys),
            look_up: change.look_up.unwrap_or(settings.look_up),
        };
        settings.write(tx, include_str!("../sql/settings_change.sql"))?;
        Ok(settings)
    });
    Ok(Json(changed.await?))
}
