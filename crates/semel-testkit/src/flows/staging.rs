//! A job is there if and only if the transaction that staged it committed.

use semel::consume::Fate;
use semel::flow::{FlowRecord, FlowState, FlowStore, Job, Kind, MAX_JOBS};
use semel::once::Error as OnceError;
use semel::{Claim, Consumer, Delivery, Error, Execution, Fingerprint, Key, Outcome, Reply, Scope, Store, Tx};

use super::harness::Harness;
use super::lab::{DAY, FLOW, Lab, audit, done, reply, start, terms};
use crate::poll::until;

/// The flow that jobs are of.
pub(super) const MAIL: &str = "mail";

/// A mail with this text.
pub(super) fn job(text: &str) -> Job {
    Job::new("tenant", MAIL, text).unwrap()
}

/// Stages a mail in a transaction of its own, and returns its key.
pub(super) async fn stages<H: Harness>(lab: &Lab<H>, text: &str) -> Key {
    let mut tx = lab.harness.begin().await;
    let key = Job::key(tx.execution(), 0);
    tx.stage(job(text));
    H::commit(tx).await.unwrap();
    key
}

/// I1: keyed work that is refused, forgotten, failed or dropped takes its jobs along.
pub async fn a_job_of_keyed_work_is_there_if_and_only_if_its_effect_is<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let cases = [
        (reply(201), 1),
        (reply(303), 1),
        (reply(402), 0),
        (reply(402).keep(), 1),
        (reply(409), 0),
        (reply(500), 0),
        (reply(500).terminal(), 0),
    ];
    let mut expected = 0;
    for (reply, jobs) in cases {
        let (key, status) = (Key::random(), reply.status());
        orders(&lab, &key, reply).await.unwrap();
        expected += jobs;
        assert_eq!(lab.lists(MAIL).await.len(), expected, "after a {status}");
        assert_eq!(lab.harness.count(key.as_str()).await, jobs as u64, "after a {status}");
    }
    let fresh = Key::random();
    let failed = lab.semel.once(&lab.scope, &fresh, &lab.fingerprint, async |tx| {
        tx.stage(job("never"));
        Err::<Reply, &str>("no")
    });
    assert!(matches!(failed.await, Err(OnceError::Effect("no"))));
    let ask = lab.ask(&Key::random());
    let Claim::Fresh(mut tx) = lab.semel.claim(&ask).await.unwrap() else { panic!("the key is new") };
    tx.stage(job("never"));
    drop(tx);
    assert_eq!(lab.lists(MAIL).await.len(), expected);
}

/// A retry of keyed work is answered, and stages nothing.
pub async fn keyed_work_that_is_replayed_stages_nothing_again<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    for _ in 0..3 {
        orders(&lab, &key, reply(201)).await.unwrap();
    }
    let run = lab.store().show_key(&lab.scope, &key).await.unwrap().unwrap().execution;
    assert_eq!(keys(&lab.lists(MAIL).await), [Job::key(run, 0)]);
}

/// The keys of jobs follow from the run and their place in it, so that a run which is repeated stages the same.
pub async fn the_keys_of_jobs_derive_from_their_run_and_their_place<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let run = lab.semel.once(&lab.scope, &key, &lab.fingerprint, async |tx| {
        for text in ["one", "two", "three"] {
            tx.stage(job(text));
        }
        Ok::<Reply, Error>(reply(201))
    });
    run.await.unwrap();
    let run = lab.store().show_key(&lab.scope, &key).await.unwrap().unwrap().execution;
    let staged = lab.lists(MAIL).await;
    assert_eq!(keys(&staged), derived(run, 3));
    for record in &staged {
        assert_eq!(record.scope, Scope::new("tenant", MAIL).unwrap());
    }
    for journal in lab.takes(MAIL).await {
        let text: String = serde_json::from_slice(&journal.input.bytes).unwrap();
        let place = ["one", "two", "three"].iter().position(|staged| *staged == text).unwrap();
        assert_eq!(*journal.lease.key(), Job::key(run, u32::try_from(place).unwrap()));
    }
}

/// I1, I2: a step stages its jobs with its record, under keys of its own.
pub async fn a_job_of_a_step_is_there_if_and_only_if_the_step_is_recorded<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let journal = lab.begins().await;
    let lease = &journal.lease;
    let stage = async |step: &str| {
        let mut tx = lab.store().begin_step(lease, step).await.unwrap();
        H::insert(&mut tx, step).await.unwrap();
        tx.stage(job(step));
        tx.stage(job(step));
        tx
    };
    stage("reserve").await.rollback().await;
    drop(stage("reserve").await);
    assert_eq!(lab.lists(MAIL).await, Vec::new());
    stage("reserve").await.record(&done("reserve", Kind::Commit, b"1")).await.unwrap();
    let mut expected = derived(lease.execution.named_step("reserve"), 2);
    expected.sort();
    assert_eq!(keys(&lab.lists(MAIL).await), expected);
    let again = stage("reserve").await.record(&done("reserve", Kind::Commit, b"1")).await;
    assert!(matches!(again, Err(Error::Raced)), "{again:?}");
    assert_eq!(keys(&lab.lists(MAIL).await), expected, "the step was recorded already");
    stage("deliver").await.record(&done("deliver", Kind::Commit, b"1")).await.unwrap();
    expected.extend(derived(lease.execution.named_step("deliver"), 2));
    expected.sort();
    assert_eq!(keys(&lab.lists(MAIL).await), expected);
    assert_eq!((lab.harness.count("reserve").await, lab.harness.count("deliver").await), (1, 1));
}

/// The last step of a flow stages what follows it, unless it is refused.
pub async fn a_job_of_the_last_step_is_there_if_and_only_if_its_effect_is<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for (status, jobs) in [(402, 0), (201, 1)] {
        let journal = lab.begins().await;
        let mut tx = lab.store().begin_step(&journal.lease, "finish").await.unwrap();
        tx.stage(job("sent"));
        lab.semel.finish(&journal.lease.ask, tx, &reply(status)).await.unwrap();
        let run = journal.lease.execution.named_step("finish");
        assert_eq!(keys(&lab.lists(MAIL).await), derived(run, jobs), "after a {status}");
    }
}

/// I7: a worker that lost its flow stages nothing.
pub async fn a_worker_that_lost_its_flow_stages_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let late = lab.begins().await;
    lab.abandons().await;
    let current = lab.takes_one(FLOW).await;
    if let Ok(mut tx) = lab.store().begin_step(&late.lease, "reserve").await {
        tx.stage(job("late"));
        let refused = tx.record(&done("reserve", Kind::Commit, b"1")).await;
        assert!(matches!(refused, Err(Error::Fenced)), "{refused:?}");
    }
    assert_eq!(lab.lists(MAIL).await, Vec::new());
    lab.commits(&current.lease, "reserve", "effect").await.unwrap();
}

/// Transactions without a key stage jobs, too.
pub async fn a_job_of_an_ordinary_transaction_is_there_if_and_only_if_that_commits<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for rolls_back in [true, false] {
        let mut tx = lab.harness.begin().await;
        H::insert(&mut tx, "effect").await.unwrap();
        tx.stage(job("never"));
        if rolls_back {
            tx.rollback().await;
        } else {
            drop(tx);
        }
    }
    assert_eq!(lab.lists(MAIL).await, Vec::new());
    let mut tx = lab.harness.begin().await;
    let run = tx.execution();
    H::insert(&mut tx, "effect").await.unwrap();
    tx.stage(job("one"));
    tx.stage(job("two"));
    assert_eq!(lab.lists(MAIL).await, Vec::new(), "not before the commit");
    H::commit(tx).await.unwrap();
    assert_eq!(keys(&lab.lists(MAIL).await), derived(run, 2));
    assert_eq!(lab.harness.count("effect").await, 1);
}

/// I6: a message that fails alone takes its jobs along, and those beside it keep theirs.
pub async fn a_bad_message_of_a_batch_takes_its_jobs_along<H: Harness>() {
    struct Letter(Delivery, &'static str);
    impl AsRef<Delivery> for Letter {
        fn as_ref(&self) -> &Delivery {
            &self.0
        }
    }
    let lab = Lab::<H>::open().await;
    let consumer = Consumer::new("letters").unwrap();
    let letters = ["good", "bad", "better"].map(|text| Letter(Delivery::by_id(text).unwrap(), text));
    let consume = async || {
        lab.semel
            .consume_all(&consumer, &letters, async |tx, letter: &Letter| {
                tx.stage(job(letter.1));
                H::insert(tx, letter.1).await.unwrap();
                if letter.1 == "bad" { Err("bad") } else { Ok(()) }
            })
            .await
            .unwrap()
    };
    let fates = consume().await;
    assert!(matches!(&fates[..], [Fate::Applied, Fate::Failed("bad"), Fate::Applied]), "{fates:?}");
    consume().await;
    let mut texts: Vec<String> = Vec::new();
    for journal in lab.takes(MAIL).await {
        texts.push(serde_json::from_slice(&journal.input.bytes).unwrap());
    }
    texts.sort();
    assert_eq!(texts, ["better", "good"]);
}

/// A job is a flow that nobody has begun: the first worker that comes gets it, and it runs under its own key.
pub async fn a_staged_job_waits_for_its_first_worker<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let key = stages(&lab, "hello").await;
    let record = lab.lists(MAIL).await.remove(0);
    assert_eq!((&record.key, record.state, record.epoch), (&key, FlowState::Due, 1));
    assert_eq!((record.flow.as_str(), record.failures, record.last_step), (MAIL, 0, None));
    assert_eq!(lab.store().flow_pressure().await.unwrap().due.len(), 1);
    let taken = lab.takes_one(MAIL).await;
    let ask = &taken.lease.ask;
    assert_eq!((&ask.key, &ask.scope), (&key, &Scope::new("tenant", MAIL).unwrap()));
    assert_eq!(ask.fingerprint, Fingerprint::of_bytes(b"\"hello\""));
    assert_eq!((&*taken.input.bytes, &taken.input.sealed_by), (&b"\"hello\""[..], &None));
    assert_eq!((taken.lease.execution, taken.lease.epoch, taken.entries.len()), (record.execution, 2, 0));
    assert_eq!(lab.takes(MAIL).await, Vec::new());
    lab.finishes(&taken.lease, 200, "sent").await.unwrap();
    assert_eq!(lab.shows(&taken.lease).await.record.state, FlowState::Completed);
    let asked = lab.store().begin_flow(ask, &terms("three"), &start(MAIL)).await.unwrap();
    assert!(matches!(asked, Claim::Replay(_)), "{asked:?}");
}

/// However long a job waited for its first worker, its life is before it; how long it then runs counts.
pub async fn the_life_of_a_job_begins_with_its_first_worker<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for retried in [false, true] {
        stages(&lab, "hello").await;
        lab.harness.age(2 * DAY).await;
        if retried {
            let run = lab.lists(MAIL).await.iter().find(|record| record.state == FlowState::Due).unwrap().execution;
            lab.store().retry_flow(run, &audit("go on"), false).await.unwrap();
            lab.harness.age(2 * DAY).await;
        }
        let taken = lab.takes_one(MAIL).await;
        for journal in [&taken, &lab.reads(&taken.lease).await] {
            assert!(journal.age < DAY && journal.lived < DAY, "{journal:?}");
        }
        lab.harness.age(DAY).await;
        let again = lab.takes_one(MAIL).await;
        assert!(again.age >= DAY && again.lived >= DAY, "{again:?}");
        lab.finishes(&again.lease, 200, "sent").await.unwrap();
    }
}

/// I12.
pub async fn more_jobs_than_allowed_commit_nothing<H: Harness>() {
    let lab = Lab::<H>::open().await;
    for (jobs, fits) in [(MAX_JOBS + 1, false), (MAX_JOBS, true)] {
        let key = Key::random();
        let label = key.clone();
        let run = lab.semel.once(&lab.scope, &key, &lab.fingerprint, async move |tx| {
            H::insert(tx, label.as_str()).await?;
            (0..jobs).for_each(|number| tx.stage(job(&number.to_string())));
            Ok::<Reply, Error>(reply(201))
        });
        let ran = run.await;
        assert_eq!(ran.is_ok(), fits, "{ran:?}");
        let expected = if fits { (1, MAX_JOBS) } else { (0, 0) };
        assert_eq!((lab.harness.count(key.as_str()).await, lab.lists(MAIL).await.len()), expected);
    }
}

/// Who stages a job has begun: its refusal is remembered.
pub async fn execution_begins_with_a_job<H: Harness>() {
    let (lab, key) = (Lab::<H>::open().await, Key::random());
    let refused = lab.semel.once(&lab.scope, &key, &lab.fingerprint, async |tx| {
        tx.stage(job("never"));
        Ok::<Reply, Error>(reply(422))
    });
    assert_eq!(refused.await.unwrap(), Outcome::Fresh(reply(422)));
    assert_eq!(orders(&lab, &key, reply(201)).await.unwrap(), Outcome::Replayed(reply(422)));
    assert_eq!(lab.lists(MAIL).await, Vec::new());
}

/// Whoever waits for work of this process need not look for it.
pub async fn a_commit_wakes_whoever_waits_for_jobs<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let store = lab.store().clone();
    let waiting = tokio::spawn(async move { store.flow_staged().await });
    until("a staged job is told", async || {
        stages(&lab, "hello").await;
        waiting.is_finished()
    })
    .await;
}

/// Keyed work whose effect is a row labelled with the key, and a mail.
async fn orders<H: Harness>(lab: &Lab<H>, key: &Key, reply: Reply) -> Result<Outcome, OnceError<Error>> {
    let label = key.clone();
    lab.semel
        .once(&lab.scope, key, &lab.fingerprint, async move |tx| {
            H::insert(tx, label.as_str()).await?;
            tx.stage(job(label.as_str()));
            Ok(reply.clone())
        })
        .await
}

fn keys(records: &[FlowRecord]) -> Vec<Key> {
    let mut keys: Vec<Key> = records.iter().map(|record| record.key.clone()).collect();
    keys.sort();
    keys
}

/// The keys of so many jobs of a run, sorted.
fn derived(run: Execution, jobs: u32) -> Vec<Key> {
    let mut keys: Vec<Key> = (0..jobs).map(|ordinal| Job::key(run, ordinal)).collect();
    keys.sort();
    keys
}
