//! How a flow goes on when its worker stops: after a pause, after a person has looked, or backwards.

use std::time::Duration;

use semel::flow::Kept;
use semel::{Error, Lease};

use super::{Fenced, call, cut};
use crate::store::{Postgres, interval_ms};

const PARK: &str = include_str!("../sql/flow_park.sql");
const HOLD: &str = "SELECT semel.hold_flow($1, $2, $3, $4, $5, $6, $7)";
const UNWIND: &str = "SELECT semel.unwind_flow($1, $2, $3, $4, $5, $6, $7)";

/// The lease ends when the pause does, so that nobody takes the flow over before.
pub(super) async fn park(store: &Postgres, lease: &Lease, pause: Duration, cause: Option<&str>) -> Result<(), Error> {
    let fenced = Fenced::by(lease);
    let (pause_ms, cause) = (interval_ms(pause), cause.map(cut));
    call(store, PARK, &fenced.with(&[&pause_ms, &cause])).await
}

/// Step, flow and key are held in one commit.
pub(super) async fn hold(store: &Postgres, lease: &Lease, step: &str, why: &str) -> Result<(), Error> {
    let (fenced, why) = (Fenced::by(lease), cut(why));
    call(store, HOLD, &fenced.with(&[&step, &why])).await
}

pub(super) async fn unwind(store: &Postgres, lease: &Lease, failure: &Kept) -> Result<(), Error> {
    let fenced = Fenced::by(lease);
    let (bytes, sealed_by) = (failure.bytes.as_ref(), failure.sealed_by.as_deref());
    call(store, UNWIND, &fenced.with(&[&bytes, &sealed_by])).await
}
