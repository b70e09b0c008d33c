//! What goes wrong at random, the same in every run.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use rusqlite::{OptionalExtension, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Error;
use crate::answer::Answer;
use crate::fault::{Fault, MAX_SLOW_MS};
use crate::kind::Kind;
use crate::shared::Shared;

/// What is thrown for requests of one kind.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Dice {
    kind: Kind,
    seed: u64,
    percent: Percent,
    /// How long a slow request is under way.
    #[serde(default = "short")]
    slow_ms: u64,
}

fn short() -> u64 {
    50
}

/// How many of a hundred requests each fault strikes.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Percent {
    slow: u8,
    error_before: u8,
    error_after: u8,
    cut_before: u8,
    cut_after: u8,
    refuse: u8,
    webhook_twice: u8,
}

impl Dice {
    fn check(&self) -> Result<(), String> {
        if self.faults().iter().map(|(percent, _)| u32::from(*percent)).sum::<u32>() > 100 {
            return Err("the members of `percent` must not add up to more than 100".to_owned());
        }
        if self.percent.webhook_twice > 0 && self.kind != Kind::Charge {
            return Err("only charges have webhooks".to_owned());
        }
        if self.slow_ms > MAX_SLOW_MS {
            return Err(format!("`slow_ms` must be at most {MAX_SLOW_MS}"));
        }
        Ok(())
    }

    fn faults(&self) -> [(u8, Fault); 7] {
        [
            (self.percent.slow, Fault::Slow { ms: self.slow_ms }),
            (self.percent.error_before, Fault::ErrorBefore),
            (self.percent.error_after, Fault::ErrorAfter { sticky: false }),
            (self.percent.cut_before, Fault::CutBefore),
            (self.percent.cut_after, Fault::CutAfter),
            (self.percent.refuse, Fault::Refuse),
            (self.percent.webhook_twice, Fault::WebhookTwice { url: None }),
        ]
    }

    /// What the throw with this number says.
    fn fault(&self, throw: u64) -> Option<Fault> {
        let mut thrown = below_100(self.seed, throw);
        for (percent, fault) in self.faults() {
            match thrown.checked_sub(u64::from(percent)) {
                Some(rest) => thrown = rest,
                None => return Some(fault),
            }
        }
        None
    }
}

/// The number that follows from the seed at this place (splitmix64).
fn below_100(seed: u64, place: u64) -> u64 {
    let mut mixed = seed.wrapping_add(place.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) % 100
}

/// `POST /faults/random`: from now on, what goes wrong with requests of this kind follows from the seed and from how
/// many came since, in the order in which they came. A crash does not begin it anew.
pub(crate) async fn choose(State(shared): State<Arc<Shared>>, body: Bytes) -> Result<Answer, Answer> {
    let dice: Dice = serde_json::from_slice(&body).map_err(|error| Answer::invalid(&error.to_string()))?;
    dice.check().map_err(|wrong| Answer::invalid(&wrong))?;
    let chosen = shared.ledger.transact(move |tx| {
        let row = (dice.kind.as_str(), serde_json::to_string(&dice)?);
        tx.prepare_cached(include_str!("../sql/dice_choose.sql"))?.execute(row)?;
        Ok(dice.seed)
    });
    Ok(Answer::new(StatusCode::CREATED, &json!({ "seed": chosen.await? })))
}

/// Throws for a request of this kind. When `tx` commits, the throw is counted.
pub(crate) fn throw(tx: &Transaction<'_>, kind: Kind) -> Result<Option<Fault>, Error> {
    let mut find = tx.prepare_cached(include_str!("../sql/dice_find.sql"))?;
    let found = find.query_row((kind.as_str(),), |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)));
    let Some((chosen, thrown)) = found.optional()? else { return Ok(None) };
    tx.prepare_cached(include_str!("../sql/dice_throw.sql"))?.execute((kind.as_str(),))?;
    let dice: Dice = serde_json::from_str(&chosen)?;
    Ok(dice.fault(thrown.cast_unsigned()))
}
