//! Whatever races, each intent counts once and the books add up to zero.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::sync::Arc;

use common::{App, on_both_stores};
use serde_json::json;
use tokio::task::JoinSet;

on_both_stores!(
    sixteen_identical_webhooks_credit_once,
    sixteen_identical_puts_make_one_charge,
    sixteen_identical_keyed_charges_make_one,
    an_account_opened_sixteen_times_is_created_once,
    random_transfers_keep_the_books_at_zero,
);

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_identical_webhooks_credit_once_under_serializable() {
    let serializable = semel_postgres::Isolation::Serializable;
    let options = semel_postgres::Options { isolation: serializable, ..semel_postgres::Options::default() };
    sixteen_identical_webhooks_credit_once(App::on_postgres_with(options).await).await;
}

/// Sends the same thing sixteen times at once and collects the answers.
async fn sixteen<F>(app: &Arc<App>, send: impl Fn(Arc<App>) -> F) -> Vec<common::Answer>
where
    F: Future<Output = common::Answer> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        tasks.spawn(send(Arc::clone(app)));
    }
    tasks.join_all().await
}

async fn sixteen_identical_webhooks_credit_once(app: App) {
    let app = Arc::new(app);
    app.account("cash", 0).await;
    for round in 0..10 {
        let body = json!({ "transaction_id": format!("bank-{round}"), "account": "cash", "amount": 10 });
        let answers = sixteen(&app, |app| {
            let body = body.clone();
            async move { app.webhook(body).await }
        })
        .await;
        for answer in answers {
            answer.is(200, &body);
        }
        assert_eq!(app.balance("cash").await, 10 * (round + 1));
    }
    app.books_are_right().await;
}

async fn sixteen_identical_puts_make_one_charge(app: App) {
    let app = Arc::new(app);
    app.account("cash", 0).await;
    let answers = sixteen(&app, |app| async move {
        app.put("/charges/order-1", json!({ "account": "cash", "amount": 10, "currency": "EUR" })).await
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    assert!(answers.iter().all(|answer| answer.body == answers[0].body && matches!(answer.status, 200 | 201)));
    assert_eq!(app.balance("cash").await, 10);
    app.books_are_right().await;
}

async fn sixteen_identical_keyed_charges_make_one(app: App) {
    let app = Arc::new(app);
    app.account("cash", 0).await;
    let answers = sixteen(&app, |app| async move {
        app.post("/charges", "k", json!({ "account": "cash", "amount": 10, "currency": "EUR" })).await
    })
    .await;
    let fresh: Vec<_> = answers.iter().filter(|answer| answer.status == 201 && !answer.replayed).collect();
    assert_eq!(fresh.len(), 1);
    for answer in &answers {
        match answer.status {
            201 => assert_eq!(answer.body, fresh[0].body),
            _ => answer.is_problem(409, "key-in-flight"),
        }
    }
    assert_eq!(app.balance("cash").await, 10);
    app.books_are_right().await;
}

async fn an_account_opened_sixteen_times_is_created_once(app: App) {
    let app = Arc::new(app);
    let answers =
        sixteen(&app, |app| async move { app.put("/accounts/cash", json!({ "currency": "EUR" })).await }).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 15);
}

async fn random_transfers_keep_the_books_at_zero(app: App) {
    const ACCOUNTS: u64 = 4;
    let app = Arc::new(app);
    for i in 0..ACCOUNTS {
        app.account(&format!("acc-{i}"), 1000).await;
    }
    let mut tasks = JoinSet::new();
    for worker in 0..8_u64 {
        let app = Arc::clone(&app);
        tasks.spawn(async move {
            let mut done = 0_i64;
            let mut random = fixed_random(worker);
            for i in 0..25 {
                let from = random() % ACCOUNTS;
                let to = (from + 1 + random() % (ACCOUNTS - 1)) % ACCOUNTS;
                let amount = 1 + random() % 700;
                let body = json!({ "from": format!("acc-{from}"), "to": format!("acc-{to}"), "amount": amount });
                let key = format!("{worker}-{i}");
                // An impatient client: both at once, and the key makes them one.
                let (one, other) =
                    tokio::join!(app.post("/transfers", &key, body.clone()), app.post("/transfers", &key, body));
                let ran: Vec<_> = [one, other].into_iter().filter(|answer| answer.status != 409).collect();
                assert!(ran.iter().all(|answer| matches!(answer.status, 201 | 402)), "{ran:?}");
                assert_eq!(ran.iter().filter(|answer| !answer.replayed).count(), 1, "{ran:?}");
                assert!(ran.iter().all(|answer| answer.body == ran[0].body), "{ran:?}");
                done += i64::from(ran[0].status == 201);
            }
            done
        });
    }
    let done: i64 = tasks.join_all().await.into_iter().sum();
    assert!(done > 0 && done < 200, "some transfers are made and some refused, not {done} of 200");
    let summary = app.summary().await;
    assert_eq!(summary, json!({ "charges": 4, "transfers": done, "entries": 2 * (4 + done), "sum": 0 }));
    let mut total = 0;
    for i in 0..ACCOUNTS {
        total += app.balance(&format!("acc-{i}")).await;
    }
    assert_eq!(total, 1000 * ACCOUNTS as i64);
    app.books_are_right().await;
}

/// The same numbers on every run (splitmix64).
fn fixed_random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
