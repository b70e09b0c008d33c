//! An order fails after it has reserved and charged, and whoever undoes it is killed at every point on the way.

use semel::failpoint::{
    FLOW_CALLED, FLOW_FINISHED, FLOW_FINISHING, FLOW_INTENDED, FLOW_SETTLED, FLOW_STEP_COMMITTED, FLOW_STEP_EFFECT,
    FLOW_UNWINDING,
};
use semel::flow::FlowState;
use semel_postgres::Postgres;
use semel_sqlite::Sqlite;
use semel_testkit::control::Control;
use semel_testkit::counts::rounds;
use semel_testkit::poll::PATIENCE;
use serde_json::{Value, json};

use super::shop::{PRICE, Placing, Shop};
use super::stage::{Flowing, STOCK, Stage};

/// The most that an account may have.
const MOST: u64 = 1 << 53;

/// What is passed on the way from the failed booking to the end: the reason, the refund, the stock, and the reply.
const AFTER_THE_CHARGE: [&str; 8] = [
    FLOW_UNWINDING,
    FLOW_INTENDED,
    FLOW_CALLED,
    FLOW_SETTLED,
    FLOW_STEP_EFFECT,
    FLOW_STEP_COMMITTED,
    FLOW_FINISHING,
    FLOW_FINISHED,
];

/// The same where no charge was made: there is nothing to refund.
const WITHOUT_A_CHARGE: [&str; 7] =
    [FLOW_CALLED, FLOW_SETTLED, FLOW_UNWINDING, FLOW_STEP_EFFECT, FLOW_STEP_COMMITTED, FLOW_FINISHING, FLOW_FINISHED];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_is_undone_an_order_on_postgres_is_refunded_once() {
    refunded::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_is_undone_an_order_on_sqlite_is_refunded_once() {
    refunded::<Sqlite>().await;
}

async fn refunded<S: Flowing>() {
    let stage = Stage::<S>::set(&[], &[]).await;
    for round in 1..=rounds(1, 10) {
        let (key, account) = (format!("k-{round}"), format!("full-{round}"));
        let mut control = Control::listen().await;
        let mut doomed = stage.start_armed(FLOW_SETTLED, 0, &control).await;
        doomed.put(&format!("/accounts/{account}"), json!({ "currency": "EUR" })).await;
        let filled = json!({ "account": account, "amount": MOST - PRICE, "currency": "EUR" });
        doomed.put(&format!("/charges/open-{account}"), filled).await;
        let placing = doomed.placing_for(&account, &key);
        let unanswered = tokio::spawn(async move { placing.once().await });
        let parked = control.reached(FLOW_SETTLED, PATIENCE).await;
        // The card is charged, and now the account has no room for the money.
        doomed.credit(&account, &account, 1).await;
        doomed.service.kill9().await;
        drop(parked);
        assert!(unanswered.await.unwrap().is_err(), "nobody answers from the grave");
        for point in AFTER_THE_CHARGE {
            stage.kill_on_the_way(point).await;
        }

        let mut last = stage.start().await;
        ended(&stage, &last, &key, &last.placing_for(&account, &key), (422, "balance-limit")).await;
        let (charges, refunds) = (stage.outside.executed("charge").await, stage.outside.executed("refund").await);
        let round = usize::try_from(round).unwrap();
        assert_eq!((charges.len(), refunds.len()), (round, round));
        let refunded = |charge: &&Value| refunds.iter().filter(|refund| refund["charge"] == charge["id"]).count() == 1;
        assert!(charges.iter().all(|charge| refunded(&charge)), "{charges:?} {refunds:?}");
        assert_eq!(last.balance(&account).await, MOST - PRICE + 1);
        last.service.terminate().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_is_undone_a_declined_order_on_postgres_gives_its_stock_back_once() {
    declined::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_is_undone_a_declined_order_on_sqlite_gives_its_stock_back_once() {
    declined::<Sqlite>().await;
}

async fn declined<S: Flowing>() {
    let stage = Stage::<S>::set(&[], &[]).await;
    for round in 1..=rounds(1, 10) {
        let key = format!("k-{round}");
        let mut control = Control::listen().await;
        let mut doomed = stage.start_armed(FLOW_INTENDED, 0, &control).await;
        let placing = doomed.placing(&key).with_card("tok_declined");
        let unanswered = tokio::spawn(async move { placing.once().await });
        let parked = control.reached(FLOW_INTENDED, PATIENCE).await;
        doomed.service.kill9().await;
        drop(parked);
        assert!(unanswered.await.unwrap().is_err(), "nobody answers from the grave");
        for point in WITHOUT_A_CHARGE {
            stage.kill_on_the_way(point).await;
        }

        let mut last = stage.start().await;
        let placing = last.placing(&key).with_card("tok_declined");
        ended(&stage, &last, &key, &placing, (402, "card-declined")).await;
        let outside = &stage.outside;
        assert_eq!((outside.count("charge").await, outside.count("refund").await), (0, 0));
        assert_eq!((outside.declined().await, outside.repeated_keys().await), (u64::from(round), 0));
        assert_eq!(last.balance("shop").await, 0);
        last.service.terminate().await;
    }
}

/// Waits until the order has failed, by itself, and asserts that nothing of it is left but its answer.
async fn ended<S: Flowing>(stage: &Stage<S>, last: &Shop, key: &str, placing: &Placing, expected: (u16, &str)) {
    stage.until_all(&[key], FlowState::Failed).await;
    let first = placing.once().await.unwrap();
    let problem: Value = serde_json::from_slice(&first.body).unwrap();
    assert_eq!((first.status, problem["code"].as_str().unwrap()), expected, "{problem}");
    let again = placing.once().await.unwrap();
    assert!(first.replayed && again == first, "{again:?}");
    let order = format!("or_{}", stage.order(key).await.execution.as_uuid().simple());
    assert_eq!(last.get(&format!("/orders/{order}")).await["status"], "failed");
    assert_eq!(last.stock().await, STOCK, "the pieces are back, once");
    assert_eq!((last.balance("bob").await, stage.outside.count("mail").await), (0, 0));
}
