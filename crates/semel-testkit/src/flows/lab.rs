//! A store with what most tests need at hand.

use std::sync::Arc;
use std::time::Duration;

use semel::flow::{
    Attempt, Entry, FlowFilter, FlowRecord, FlowShown, FlowStore, Journal, Kept, Kind, Settled, Start, State,
};
use semel::once::Settings;
use semel::operator::Audit;
use semel::{
    Ask, Claim, Error, Fingerprint, Finished, Key, Lease, LeaseTerms, OnExpiry, Reply, Scope, Semel, Stored, Tx,
};

use super::harness::Harness;

/// The flow that most tests begin.
pub(super) const FLOW: &str = "order";

/// What it begins with.
pub(super) const INPUT: &[u8] = br#"{"sku":"a"}"#;

/// Past the end of every lease of [`terms`].
pub(super) const PAST_A_LEASE: Duration = Duration::from_secs(31);

/// How long keys are kept.
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A harness with what most tests need at hand.
pub(super) struct Lab<H: Harness> {
    pub(super) harness: Arc<H>,
    pub(super) semel: Semel<H::Store>,
    pub(super) scope: Scope,
    pub(super) fingerprint: Fingerprint,
}

impl<H: Harness> Lab<H> {
    /// A lab on a fresh database.
    pub(super) async fn open() -> Lab<H> {
        let harness = Arc::new(H::create().await);
        let semel = Semel::with_settings(harness.store().clone(), Settings::default()).await.unwrap();
        let scope = Scope::new("tenant", "POST /orders").unwrap();
        Lab { harness, semel, scope, fingerprint: Fingerprint::of_bytes(b"a request") }
    }

    pub(super) fn store(&self) -> &H::Store {
        self.harness.store()
    }

    /// The question for this key.
    pub(super) fn ask(&self, key: &Key) -> Ask {
        Ask::new(&self.scope, key, &self.fingerprint)
    }

    /// Begins a flow under a key of its own.
    pub(super) async fn begins(&self) -> Journal {
        self.begins_under(&Key::random()).await
    }

    /// Begins a flow under a key that is new.
    pub(super) async fn begins_under(&self, key: &Key) -> Journal {
        self.begins_as(key, &start(FLOW)).await
    }

    /// Begins this flow under a key that is new.
    pub(super) async fn begins_as(&self, key: &Key, start: &Start) -> Journal {
        match self.asks(key, start).await {
            Claim::Fresh(journal) => journal,
            other => panic!("a new key gave {other:?}"),
        }
    }

    /// Asks for a key by which a flow may be begun or resumed.
    pub(super) async fn asks(&self, key: &Key, start: &Start) -> Claim<Journal, Stored> {
        self.store().begin_flow(&self.ask(key), &terms("one"), start).await.unwrap()
    }

    /// Takes over a flow by its client's retry.
    pub(super) async fn resumes(&self, key: &Key) -> Journal {
        match self.store().begin_flow(&self.ask(key), &terms("two"), &start(FLOW)).await.unwrap() {
            Claim::Resume(journal) => journal,
            other => panic!("an abandoned flow gave {other:?}"),
        }
    }

    /// Takes over what there is of a flow.
    pub(super) async fn takes(&self, flow: &str) -> Vec<Journal> {
        self.store().take_flows(flow, &terms("two"), 100).await.unwrap()
    }

    /// Takes over the only flow that is due.
    pub(super) async fn takes_one(&self, flow: &str) -> Journal {
        let mut taken = self.takes(flow).await;
        assert_eq!(taken.len(), 1, "{taken:?}");
        taken.remove(0)
    }

    /// Lets every lease end.
    pub(super) async fn abandons(&self) {
        self.harness.age(PAST_A_LEASE).await;
    }

    /// Commits a step whose effect is a row with this label.
    pub(super) async fn commits(&self, lease: &Lease, step: &str, label: &str) -> Result<(), Error> {
        let mut tx = self.store().begin_step(lease, step).await?;
        H::insert(&mut tx, label).await?;
        tx.record(&done(step, Kind::Commit, b"1")).await
    }

    /// Ends a flow with this status, and a row with this label.
    pub(super) async fn finishes(&self, lease: &Lease, status: u16, label: &str) -> Result<Finished, Error> {
        let mut tx = self.store().begin_step(lease, "finish").await?;
        H::insert(&mut tx, label).await?;
        self.semel.finish(&lease.ask, tx, &reply(status)).await
    }

    /// Counts an attempt of a call to the provider `psp` under the key `derived`.
    pub(super) async fn counts(&self, lease: &Lease, step: &str, number: u32) -> Result<(), Error> {
        self.store().count_attempt(lease, &attempt(step, number)).await
    }

    /// Counts the first attempt of a call and holds the flow for it.
    pub(super) async fn holds(&self, lease: &Lease, step: &str) {
        self.counts(lease, step, 1).await.unwrap();
        self.store().hold_flow(lease, step, "nobody knows").await.unwrap();
    }

    /// What is recorded of a flow.
    pub(super) async fn reads(&self, lease: &Lease) -> Journal {
        self.store().read_flow(lease).await.unwrap()
    }

    /// What an operator sees of a flow.
    pub(super) async fn shows(&self, lease: &Lease) -> FlowShown {
        self.store().show_flow(lease.execution).await.unwrap().unwrap()
    }

    /// Every flow of this name, the newest first.
    pub(super) async fn lists(&self, flow: &str) -> Vec<FlowRecord> {
        let filter = FlowFilter { flow: Some(flow.to_owned()), limit: 1000, ..FlowFilter::default() };
        self.store().list_flows(&filter).await.unwrap()
    }
}

/// Lease terms of half a minute.
pub(super) fn terms(holder: &str) -> LeaseTerms {
    LeaseTerms {
        lease_for: Duration::from_secs(30),
        holder: holder.to_owned(),
        on_expiry: OnExpiry::Resume,
        retain: DAY,
    }
}

/// The same, for a flow that is held when it was abandoned.
pub(super) fn holding_terms() -> LeaseTerms {
    LeaseTerms { on_expiry: OnExpiry::Hold, ..terms("two") }
}

/// A start of this flow with [`INPUT`].
pub(super) fn start(flow: &str) -> Start {
    Start { flow: flow.to_owned(), input: kept(INPUT) }
}

/// Bytes that are not sealed.
pub(super) fn kept(bytes: &[u8]) -> Kept {
    Kept { bytes: bytes.to_vec().into(), sealed_by: None }
}

/// The end of a step that is done.
pub(super) fn done(step: &str, kind: Kind, result: &[u8]) -> Settled {
    Settled { step: step.to_owned(), kind, state: State::Done, result: kept(result) }
}

/// An attempt of a call to the provider `psp` under the key `derived`.
pub(super) fn attempt(step: &str, number: u32) -> Attempt<'_> {
    Attempt { step, provider: "psp", key: "derived", number, opened: Duration::ZERO }
}

/// What a step is recorded as.
pub(super) fn entry<'a>(journal: &'a Journal, step: &str) -> &'a Entry {
    let found = journal.entries.iter().find(|entry| entry.step == step);
    found.unwrap_or_else(|| panic!("there is no step {step} in {:?}", journal.entries))
}

/// The names of the steps, in their order.
pub(super) fn steps(journal: &Journal) -> Vec<&str> {
    journal.entries.iter().map(|entry| entry.step.as_str()).collect()
}

/// Who changes something by hand, and why.
pub(super) fn audit(reason: &str) -> Audit {
    Audit { actor: "tester".to_owned(), reason: reason.to_owned() }
}

/// A reply with a body that is no text.
pub(super) fn reply(status: u16) -> Reply {
    Reply::new(status, [0, 159, 146, 150, 13, 10].to_vec()).and_then(|reply| reply.header("x-flow", "order")).unwrap()
}
