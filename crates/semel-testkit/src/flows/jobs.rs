//! Jobs run after the commit that staged them, and completers share the work.

use std::time::Duration;

use semel::flow::{self, Definition, FlowRecord, FlowState, FlowStore, Job, Settings};
use semel::once::Error as OnceError;
use semel::{Error, Flow, Key, Reply, Scope, Store, Tx, intent};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::harness::Harness;
use super::lab::FLOW;
use super::resuming::order;
use super::shop::{Shop, Worker, build, settings};
use super::staging::{MAIL, job, stages};
use super::world::{Order, World, calls};
use crate::poll::until;

/// A mail: one call, and what it came to.
fn mail<H: Harness>(world: &World) -> Definition<H::Store> {
    let (at, psp) = (world.clone(), world.psp.clone());
    Definition::new(MAIL, move |flow: Flow<H::Store>, text: String| send::<H>(flow, at.clone(), text)).calling([psp])
}

async fn send<H: Harness>(flow: Flow<H::Store>, world: World, text: String) -> flow::Result<Reply> {
    world.note(&text);
    let sent = calls::<H>(&flow, &world, "send").await?;
    Ok(Reply::json(200, &sent)?)
}

/// The key under which the mail of this job is sent.
fn derived(job: &Key) -> String {
    intent::key(&Scope::new("tenant", MAIL).unwrap(), MAIL, job, "send")
}

/// A process that runs mails, and nothing else.
async fn mailer<H: Harness>(shop: &Shop<H>) -> Worker<H> {
    let worker = Worker::start(&shop.lab.harness, mail::<H>(&shop.world)).await;
    worker.completes();
    worker
}

/// Waits until so many mails have ended.
async fn sends<H: Harness>(shop: &Shop<H>, count: usize) {
    until(&format!("{count} mails have ended"), async || {
        let mails = shop.lab.lists(MAIL).await;
        mails.iter().filter(|mail| mail.state == FlowState::Completed).count() == count
    })
    .await;
}

/// What is staged with an order is sent once that is committed; a retry of the order sends nothing more.
pub async fn a_job_runs_after_its_commit_under_a_key_of_its_own<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    let _mailer = mailer(&shop).await;
    for _ in 0..2 {
        let ran = shop.lab.semel.once(&shop.lab.scope, &key, &shop.lab.fingerprint, async |tx| {
            H::insert(tx, "order").await?;
            tx.stage(job("thank you"));
            Ok::<Reply, Error>(Reply::new(201, "").unwrap())
        });
        ran.await.unwrap();
    }
    let fresh = Key::random();
    let refused = shop.lab.semel.once(&shop.lab.scope, &fresh, &shop.lab.fingerprint, async |tx| {
        tx.stage(job("never"));
        Err::<Reply, &str>("no")
    });
    assert!(matches!(refused.await, Err(OnceError::Effect("no"))));
    sends(&shop, 1).await;
    // Whatever was staged before this one has had its turn when this one has ended.
    stages(&shop.lab, "and good bye").await;
    sends(&shop, 2).await;
    let run = shop.lab.store().show_key(&shop.lab.scope, &key).await.unwrap().unwrap().execution;
    assert_eq!(shop.world.remote.requested("send").len(), 2);
    assert_eq!(shop.world.remote.done("send")[0], derived(&Job::key(run, 0)));
    assert_eq!((shop.world.ran("thank you"), shop.world.ran("never")), (1, 0));
}

/// I8: a job may run more than once, and its calls carry one key.
pub async fn a_job_whose_worker_dies_is_sent_once<H: Harness>() {
    let shop = Shop::<H>::open().await;
    for (place, requested) in [("before send", 1), ("after send", 2), ("send done", 1)] {
        let before = shop.world.remote.requested("send").len();
        shop.world.trap.arm(place);
        let dying = mailer(&shop).await;
        let key = stages(&shop.lab, place).await;
        shop.world.trap.springs_at(place).await;
        drop(dying);
        shop.lab.abandons().await;
        let _mailer = mailer(&shop).await;
        let is_sent = |mail: &FlowRecord| mail.key == key && mail.state == FlowState::Completed;
        until("the mail is sent", async || shop.lab.lists(MAIL).await.iter().any(&is_sent)).await;
        let after = shop.world.remote.requested("send");
        assert_eq!(after[before..], vec![derived(&key); requested], "{place}");
        assert_eq!(shop.world.remote.done("send").iter().filter(|done| **done == derived(&key)).count(), 1, "{place}");
    }
}

/// A step that runs again stages the same job.
pub async fn a_job_of_a_step_runs_once_however_often_the_step_does<H: Harness>() {
    fn ordering<H: Harness>(world: &World) -> Definition<H::Store> {
        let world = world.clone();
        Definition::new(FLOW, move |flow: Flow<H::Store>, _: Order| place::<H>(flow, world.clone()))
    }
    async fn place<H: Harness>(flow: Flow<H::Store>, world: World) -> flow::Result<Reply> {
        let at = world.clone();
        let staged = flow.commit("reserve", async move |tx| {
            tx.stage(job("thank you"));
            at.trap.pass("within reserve").await;
            Ok::<(), Error>(())
        });
        staged.await?;
        world.trap.pass("reserve done").await;
        flow.finish(async |tx| {
            tx.stage(job("good bye"));
            Ok::<Reply, flow::Error>(Reply::new(201, "")?)
        })
        .await
    }
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    for place in ["within reserve", "reserve done"] {
        shop.dies_at(place, ordering::<H>, &key).await;
    }
    assert_eq!(shop.answers(ordering::<H>, &key).await.reply().status(), 201);
    let _mailer = mailer(&shop).await;
    sends(&shop, 2).await;
    assert_eq!((shop.world.ran("thank you"), shop.world.ran("good bye")), (1, 1));
    let run = shop.shows(&key).await.record.execution.named_step("reserve");
    assert!(shop.world.remote.done("send").contains(&derived(&Job::key(run, 0))));
}

/// I7: completers share what there is, and none of it is run by two.
pub async fn many_jobs_over_two_completers_run_once_each<H: Harness>() {
    let shop = Shop::<H>::open().await;
    let _mailers = (mailer(&shop).await, mailer(&shop).await);
    let jobs = usize::try_from(crate::counts::rounds(60, 600)).unwrap();
    for number in 0..jobs {
        stages(&shop.lab, &format!("mail {number}")).await;
    }
    sends(&shop, jobs).await;
    let mut sent = shop.world.remote.requested("send");
    assert_eq!(sent.len(), jobs);
    sent.sort();
    sent.dedup();
    assert_eq!(sent.len(), jobs, "each under a key of its own");
    assert!((0..jobs).all(|number| shop.world.ran(&format!("mail {number}")) == 1));
}

/// What nobody here has registered is left alone, and stays visible.
pub async fn jobs_that_nobody_knows_stay_visible<H: Harness>() {
    let (shop, key) = (Shop::<H>::open().await, Key::random());
    stages(&shop.lab, "hello").await;
    shop.dies_at("reserve done", order::<H>, &key).await;
    shop.completes(order::<H>, &key).await;
    let due = shop.lab.store().flow_pressure().await.unwrap().due;
    assert_eq!(due.iter().map(|due| (due.flow.as_str(), due.count)).collect::<Vec<_>>(), [(MAIL, 1)]);
    assert!(due[0].oldest >= Duration::from_secs(31), "{due:?}");
    let _mailer = mailer(&shop).await;
    sends(&shop, 1).await;
}

/// A completer that is told to stop lets what it runs end, and takes nothing more.
pub async fn a_completer_that_stops_lets_its_runs_end<H: Harness>() {
    let shop = Shop::<H>::open().await;
    let (stop, completing) = completer(&shop, settings());
    shop.world.trap.hold("before send");
    stages(&shop.lab, "hello").await;
    shop.world.trap.springs_at("before send").await;
    drop(stop);
    assert!(!completing.is_finished(), "it waits for what it runs");
    shop.world.trap.thaw();
    completing.await.unwrap();
    assert_eq!(shop.lab.lists(MAIL).await[0].state, FlowState::Completed);
    stages(&shop.lab, "too late").await;
    assert_eq!((shop.world.ran("hello"), shop.world.ran("too late")), (1, 0));
    assert_eq!(shop.lab.lists(MAIL).await.iter().filter(|mail| mail.state == FlowState::Due).count(), 1);
}

/// One that cannot wait gives back what it has not ended, at once.
pub async fn a_completer_without_patience_gives_its_runs_back<H: Harness>() {
    let shop = Shop::<H>::open().await;
    let (stop, completing) = completer(&shop, Settings { grace: Duration::ZERO, ..settings() });
    shop.world.trap.arm("before send");
    let key = stages(&shop.lab, "hello").await;
    shop.world.trap.springs_at("before send").await;
    drop(stop);
    completing.await.unwrap();
    assert_eq!(shop.lab.lists(MAIL).await[0].state, FlowState::Due, "nobody waits for its lease to end");
    let _mailer = mailer(&shop).await;
    sends(&shop, 1).await;
    assert_eq!(shop.world.remote.requested("send"), [derived(&key)]);
}

/// A completer of this process, which works until the sender is dropped.
fn completer<H: Harness>(shop: &Shop<H>, settings: Settings) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let completer = build(shop.lab.semel.clone(), mail::<H>(&shop.world), settings).completer();
    let (stop, stopped) = oneshot::channel();
    let completing = tokio::spawn(async move {
        completer.run(async move { stopped.await.unwrap_or_default() }).await;
    });
    (stop, completing)
}
