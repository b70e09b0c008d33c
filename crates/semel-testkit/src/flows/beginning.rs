//! A flow begins with its key, once, and goes on with what it began with.

use std::sync::Arc;
use std::time::Duration;

use semel::flow::{FlowState, FlowStore, Kind, Start};
use semel::lease::RecoveryPoint;
use semel::once::Error as OnceError;
use semel::operator::KeyState;
use semel::{Ask, Claim, Error, Fingerprint, Finished, Key, Outcome, Reply, Scope, Store};
use tokio::sync::Barrier;

use super::harness::{Harness, Rows};
use super::lab::{DAY, FLOW, INPUT, Lab, attempt, done, entry, kept, reply, start, terms};

/// A flow that was begun is known to everybody before anything of it ran.
pub async fn a_flow_is_committed_with_its_key_before_anything_runs<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let journal = lab.begins_under(&key).await;
    assert_eq!((journal.flow.as_str(), &journal.input), (FLOW, &kept(INPUT)));
    assert_eq!((&journal.lease.ask, journal.lease.epoch), (&lab.ask(&key), 1));
    assert_eq!((journal.lease.lease_for, journal.lease.retain), (Duration::from_secs(30), DAY));
    assert_eq!((journal.failures, &journal.unwinding, journal.entries.len()), (0, &None, 0));
    assert!(!journal.cancelled && !journal.restored && journal.age < Duration::from_secs(30), "{journal:?}");
    let other = lab.harness.another().await;
    let shown = other.show_flow(journal.lease.execution).await.unwrap().unwrap();
    assert_eq!((shown.record.state, shown.record.epoch, &shown.record.key), (FlowState::Running, 1, &key));
    let record = other.show_key(&lab.scope, &key).await.unwrap().unwrap();
    assert_eq!((record.state, record.execution), (KeyState::InProgress, journal.lease.execution));
    assert_eq!(record.lease.unwrap().recovery_point, None);
}

/// While its lease runs others wait; then the client's retry goes on with it.
pub async fn a_running_flow_is_in_flight_until_its_lease_ends<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let first = lab.begins_under(&key).await;
    let Claim::InFlight { retry_after } = lab.asks(&key, &start(FLOW)).await else { panic!("the lease runs") };
    assert!(retry_after > Duration::from_secs(5) && retry_after <= Duration::from_secs(30), "{retry_after:?}");
    lab.abandons().await;
    let second = lab.resumes(&key).await;
    assert_eq!((first.lease.execution, first.lease.epoch), (second.lease.execution, 1));
    assert_eq!(second.lease.epoch, 2);
    assert!(matches!(lab.asks(&key, &start(FLOW)).await, Claim::InFlight { .. }));
}

/// Nobody comes before the pause is over, and everybody is told when that is.
pub async fn a_pausing_flow_is_in_flight_until_its_pause_is_over<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let first = lab.begins_under(&key).await;
    lab.store().park_flow(&first.lease, Duration::from_secs(600), None).await.unwrap();
    lab.abandons().await;
    let Claim::InFlight { retry_after } = lab.asks(&key, &start(FLOW)).await else { panic!("it pauses") };
    assert!(retry_after > Duration::from_secs(500) && retry_after <= Duration::from_secs(570), "{retry_after:?}");
    assert!(matches!(charge(&lab, &key).await, Err(OnceError::InFlight { .. })));
    lab.harness.age(Duration::from_secs(570)).await;
    assert_eq!(lab.resumes(&key).await.lease.execution, first.lease.execution);
}

/// A client that is willing to wait is answered when the flow ends, or when its time is over.
pub async fn a_client_that_waits_is_answered_when_the_flow_ends<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let journal = lab.begins_under(&key).await;
    let waits = async |wait: Duration| {
        let ask = Ask { wait, ..lab.ask(&key) };
        lab.store().begin_flow(&ask, &terms("two"), &start(FLOW)).await.unwrap()
    };
    let ending = async {
        // Whoever asked before this one has found the flow in flight, too.
        assert!(matches!(waits(Duration::from_millis(300)).await, Claim::InFlight { .. }));
        lab.finishes(&journal.lease, 201, "effect").await.unwrap();
    };
    let (claim, ()) = tokio::join!(waits(Duration::from_secs(60)), ending);
    let Claim::Replay(stored) = claim else { panic!("the flow has ended: {claim:?}") };
    assert_eq!((stored.execution, stored.status), (journal.lease.execution, 201));
}

/// A client that retries through a newer version of the service does not change what runs.
pub async fn a_resumed_flow_goes_on_with_the_function_and_the_input_that_it_began_with<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let first = lab.begins_under(&key).await;
    lab.commits(&first.lease, "reserve", "effect").await.unwrap();
    lab.abandons().await;
    let newer = Start { flow: "order-2".to_owned(), input: kept(b"{\"sku\":\"b\"}") };
    let Claim::Resume(second) = lab.asks(&key, &newer).await else { panic!("it was abandoned") };
    assert_eq!((second.flow.as_str(), &second.input), (FLOW, &kept(INPUT)));
    assert_eq!(entry(&second, "reserve"), entry(&lab.reads(&second.lease).await, "reserve"));
    assert_eq!(entry(&second, "reserve").result, Some(kept(b"1")));
    assert_eq!((lab.lists("order-2").await.len(), lab.lists(FLOW).await.len()), (0, 1));
}

/// I3.
pub async fn a_finished_flow_is_replayed_byte_for_byte<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let journal = lab.begins_under(&key).await;
    assert_eq!(lab.finishes(&journal.lease, 201, "effect").await.unwrap(), Finished::Stored);
    for _ in 0..2 {
        let Claim::Replay(stored) = lab.asks(&key, &start(FLOW)).await else { panic!("it has finished") };
        let replayed = Reply::from_stored(stored.status, &stored.headers, stored.body).unwrap();
        assert_eq!((stored.execution, replayed), (journal.lease.execution, reply(201)));
    }
    assert_eq!(charge(&lab, &key).await.unwrap(), Outcome::Replayed(reply(201)));
    assert_eq!(lab.harness.count("effect").await, 1);
}

/// A reused key changes nothing, whether the flow runs, was abandoned or has finished.
pub async fn another_fingerprint_is_a_mismatch_and_the_flow_stays<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let other = Ask::new(&lab.scope, &key, &Fingerprint::of_bytes(b"another request"));
    let reused = async || lab.store().begin_flow(&other, &terms("two"), &start("other")).await.unwrap();
    lab.begins_under(&key).await;
    assert!(matches!(reused().await, Claim::Mismatch));
    lab.abandons().await;
    assert!(matches!(reused().await, Claim::Mismatch));
    let second = lab.resumes(&key).await;
    assert_eq!((second.flow.as_str(), second.lease.epoch), (FLOW, 2));
    lab.finishes(&second.lease, 201, "effect").await.unwrap();
    assert!(matches!(reused().await, Claim::Mismatch));
    assert!(matches!(lab.asks(&key, &start(FLOW)).await, Claim::Replay(_)));
}

/// Where nobody knows, the client is told so and nothing runs.
pub async fn a_held_flow_is_unknown_to_its_client<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let journal = lab.begins_under(&key).await;
    lab.holds(&journal.lease, "charge").await;
    lab.abandons().await;
    assert!(matches!(lab.asks(&key, &start(FLOW)).await, Claim::Unknown));
    assert!(matches!(charge(&lab, &key).await, Err(OnceError::Unknown)));
    assert_eq!(lab.harness.count(key.as_str()).await, 0);
}

/// Leased work that has a recovery point has no journal, so no flow can go on with it.
pub async fn a_key_that_is_leased_without_a_flow_is_refused<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let Claim::Fresh(mut lease) = lab.semel.lease(&lab.ask(&key), &terms("one")).await.unwrap() else {
        panic!("the key is new");
    };
    let point = RecoveryPoint::new("reserved").unwrap();
    lab.semel.advance(&mut lease, &point, async |tx| H::insert(tx, "effect").await).await.unwrap();
    lab.abandons().await;
    let refused = lab.store().begin_flow(&lab.ask(&key), &terms("two"), &start(FLOW)).await;
    assert!(matches!(refused, Err(Error::Settings(_))), "{refused:?}");
    let Claim::Resume(resumed) = lab.semel.lease(&lab.ask(&key), &terms("two")).await.unwrap() else {
        panic!("it was abandoned");
    };
    assert_eq!((resumed.epoch, resumed.recovery_point), (2, Some(point)), "the refusal changed nothing");
    assert_eq!(lab.harness.rows().await, Rows { flows: 0, steps: 0 });
}

/// I11: same key, other tenant or other operation.
pub async fn flows_of_two_scopes_never_meet<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let first = lab.begins_under(&key).await;
    lab.commits(&first.lease, "reserve", "effect").await.unwrap();
    let mut executions = vec![first.lease.execution];
    for (tenant, operation) in [("other", "POST /orders"), ("tenant", "PUT /orders"), ("tenantP", "OST /orders")] {
        let ask = Ask::new(&Scope::new(tenant, operation).unwrap(), &key, &lab.fingerprint);
        let Claim::Fresh(other) = lab.store().begin_flow(&ask, &terms("one"), &start(FLOW)).await.unwrap() else {
            panic!("{ask:?} is blocked by another scope");
        };
        assert_eq!(other.entries, Vec::new());
        lab.commits(&other.lease, "reserve", "effect").await.unwrap();
        assert!(!executions.contains(&other.lease.execution));
        executions.push(other.lease.execution);
    }
    assert_eq!(lab.harness.count("effect").await, 4);
    lab.finishes(&first.lease, 201, "last").await.unwrap();
    let states: Vec<FlowState> = lab.lists(FLOW).await.iter().map(|record| record.state).collect();
    assert_eq!(states.iter().filter(|state| **state == FlowState::Running).count(), 3, "{states:?}");
}

/// I2: over two handles that share nothing but the database.
pub async fn clients_that_race_begin_one_flow<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let handles = [lab.store().clone(), lab.harness.another().await];
    for round in 1..=crate::counts::rounds(5, 50) {
        let (ask, begins) = (lab.ask(&Key::random()), Arc::new(Barrier::new(8)));
        let mut racers = tokio::task::JoinSet::new();
        for racer in 0..8 {
            let (store, ask, begins) = (handles[racer % 2].clone(), ask.clone(), Arc::clone(&begins));
            racers.spawn(async move {
                begins.wait().await;
                store.begin_flow(&ask, &terms(&format!("racer {racer}")), &start(FLOW)).await.unwrap()
            });
        }
        let mut fresh = 0;
        for claim in racers.join_all().await {
            match claim {
                Claim::Fresh(_) => fresh += 1,
                Claim::InFlight { .. } => {}
                other => panic!("a racer got {other:?}"),
            }
        }
        assert_eq!(fresh, 1, "one racer begins");
        assert_eq!(lab.harness.rows().await, Rows { flows: round.into(), steps: 0 });
    }
}

/// I12: the bounds of Rust and of the database agree.
pub async fn the_longest_names_and_the_largest_results_fit<H: Harness>() {
    use semel::flow::{MAX_FLOW_CHARACTERS, MAX_KEPT_BYTES, MAX_STEP_CHARACTERS, UNDO};
    let (lab, key) = (Lab::<H>::open().await, Key::new("~".repeat(255)).unwrap());
    let (flow, large) = ("f".repeat(MAX_FLOW_CHARACTERS), vec![b'1'; MAX_KEPT_BYTES]);
    // Sealing adds a nonce of 24 bytes and a tag of 16.
    let mut sealed = kept(&vec![b'1'; MAX_KEPT_BYTES + 40]);
    sealed.sealed_by = Some("s".repeat(semel::seal::MAX_ID_CHARACTERS));
    let journal = lab.begins_as(&key, &Start { flow: flow.clone(), input: sealed.clone() }).await;
    let (step, undo) = ("s".repeat(MAX_STEP_CHARACTERS), format!("{UNDO}{}", "s".repeat(MAX_STEP_CHARACTERS)));
    let tx = lab.store().begin_step(&journal.lease, &step).await.unwrap();
    semel::Tx::record(tx, &done(&step, Kind::Commit, &large)).await.unwrap();
    let provider = "p".repeat(semel::provider::MAX_NAME_CHARACTERS);
    let counted = semel::flow::Attempt { provider: &provider, ..attempt(&undo, 1) };
    lab.store().count_attempt(&journal.lease, &counted).await.unwrap();
    lab.store().settle_step(&journal.lease, &done(&undo, Kind::Call, &large)).await.unwrap();
    lab.store().unwind_flow(&journal.lease, &sealed).await.unwrap();
    lab.abandons().await;
    let taken = lab.takes_one(&flow).await;
    assert_eq!((&taken.input, &taken.unwinding), (&sealed, &Some(sealed.clone())));
    assert_eq!(entry(&taken, &step).result, Some(kept(&large)));
    assert_eq!(entry(&taken, &undo).intent.as_ref().unwrap().provider, provider);
}

/// Runs keyed work that is no flow under the key.
async fn charge<H: Harness>(lab: &Lab<H>, key: &Key) -> Result<Outcome, OnceError<Error>> {
    let label = key.clone();
    lab.semel
        .once(&lab.scope, key, &lab.fingerprint, async move |tx| {
            H::insert(tx, label.as_str()).await?;
            Ok(reply(200))
        })
        .await
}
