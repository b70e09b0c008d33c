//! Flows to test with: the flow `order`, with one step that leaves one effect.

use std::time::Duration;

use bytes::Bytes;
use semel::flow::{FlowStore, Journal, Kept, Kind, Settled, Start, State};
use semel::operator::Audit;
use semel::{Claim, Key, LeaseTerms, OnExpiry, Tx as _};
use semel_sqlite::Sqlite;

use super::{File, ask, insert};

pub const LEASE: Duration = Duration::from_secs(30);

pub fn terms(holder: &str) -> LeaseTerms {
    LeaseTerms {
        lease_for: LEASE,
        holder: holder.to_owned(),
        on_expiry: OnExpiry::Resume,
        retain: Duration::from_secs(24 * 60 * 60),
    }
}

pub fn kept(bytes: &'static str) -> Kept {
    Kept { bytes: Bytes::from_static(bytes.as_bytes()), sealed_by: None }
}

pub fn done(step: &str) -> Settled {
    Settled { step: step.to_owned(), kind: Kind::Commit, state: State::Done, result: kept("1") }
}

pub fn audit() -> Audit {
    Audit { actor: "ada".to_owned(), reason: "a test".to_owned() }
}

pub async fn begun(store: &Sqlite, key: &Key) -> Journal {
    let start = Start { flow: "order".to_owned(), input: kept("{}") };
    match store.begin_flow(&ask(key), &terms("worker"), &start).await.unwrap() {
        Claim::Fresh(journal) => journal,
        other => panic!("the key is new, not {other:?}"),
    }
}

/// Begins a flow and records one step of it, with one effect.
pub async fn with_a_step(store: &Sqlite, key: &Key) -> Journal {
    let journal = begun(store, key).await;
    let mut tx = store.begin_step(&journal.lease, "reserve").await.unwrap();
    insert(&mut tx, "reserved").await.unwrap();
    tx.record(&done("reserve")).await.unwrap();
    journal
}

/// How many flows and steps the file has.
pub fn rows(file: &File) -> (i64, i64) {
    let sql = "SELECT (SELECT count(*) FROM semel_flows), (SELECT count(*) FROM semel_flow_steps)";
    file.connection().query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}
