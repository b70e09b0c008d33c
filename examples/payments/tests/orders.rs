//! An order is reserved, charged and booked once, or not at all, and its mail follows.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::sync::Arc;

use common::outside::{Somebody, ordering_on_both_stores};
use common::{Answer, App, on_both_stores};
use semel_testkit::poll::until;
use serde_json::{Value, json};
use tokio::task::JoinSet;

ordering_on_both_stores!(
    ordering_on_postgres, ordering_on_sqlite, crate::Somebody::trusted;
    an_order_is_reserved_charged_booked_and_confirmed,
    a_declined_card_gives_the_stock_back_and_its_402_is_replayed_verbatim,
    an_order_beyond_the_stock_charges_nobody_and_its_refusal_is_stored,
    an_order_that_could_not_be_booked_charges_nobody,
    identical_orders_at_once_make_one_charge,
    an_answer_that_is_lost_after_the_charge_does_not_charge_again,
    a_mail_that_is_late_does_not_hold_up_the_order,
    what_cannot_be_booked_any_more_is_refunded_once,
    no_two_orders_share_a_key_at_the_processor,
    an_order_whose_rows_were_lost_is_answered_by_its_charge,
);

ordering_on_both_stores!(
    away_on_postgres, away_on_sqlite, crate::Somebody::away;
    a_processor_that_is_down_declines_no_card_and_tells_nobody_where_it_is,
);

ordering_on_both_stores!(
    misplaced_on_postgres, misplaced_on_sqlite, crate::Somebody::misplaced;
    a_processor_at_a_wrong_path_declines_no_card,
);

ordering_on_both_stores!(
    impatient_on_postgres, impatient_on_sqlite, crate::Somebody::impatient;
    a_charge_in_doubt_is_looked_up_and_refunded_when_its_order_is_cancelled,
);

ordering_on_both_stores!(
    blind_on_postgres, blind_on_sqlite, crate::Somebody::blind;
    a_charge_that_nobody_can_tell_of_is_held_and_never_sent_again,
);

on_both_stores!(
    without_a_processor_orders_are_refused_and_their_keys_stay_new,
    stock_is_set_to_what_is_said_however_often,
);

fn order() -> Value {
    json!({
        "account": "shop", "sku": "tea", "quantity": 2, "amount": 1200, "currency": "EUR", "card": "tok_visa",
        "email": "ann@example.com",
    })
}

fn order_with(member: &str, value: impl Into<Value>) -> Value {
    let mut order = order();
    order[member] = value.into();
    order
}

/// Opens the shop's account and puts pieces into the stock.
async fn open(app: &App, pieces: i64) {
    app.account("shop", 0).await;
    stock(app, pieces).await;
}

async fn stock(app: &App, pieces: i64) {
    app.put("/stock/tea", json!({ "quantity": pieces })).await.is(200, &json!({ "sku": "tea", "quantity": pieces }));
}

async fn left(app: &App) -> i64 {
    app.get("/stock/tea").await.json()["quantity"].as_i64().unwrap()
}

async fn in_status(app: &App, status: &str) -> i64 {
    app.number(&format!("SELECT count(*) FROM payments_orders WHERE status = '{status}'")).await
}

/// Asserts that a retry gets the same answer, byte for byte.
#[track_caller]
fn replays(again: &Answer, first: &Answer) {
    assert!(again.replayed && !first.replayed, "{again:?}");
    assert_eq!((again.status, &again.body, &again.content_type), (first.status, &first.body, &first.content_type));
    assert_eq!(again.headers.get("link"), first.headers.get("link"));
}

async fn an_order_is_reserved_charged_booked_and_confirmed(app: App, outside: Somebody) {
    let _completing = app.complete();
    open(&app, 5).await;
    let first = app.post("/orders", "k", order()).await;
    let charges = outside.executed("charge").await;
    assert_eq!(charges.len(), 1, "{charges:?}");
    let id = first.json()["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("or_"), "{id}");
    first.is(201, &json!({ "id": id, "status": "completed", "charge": charges[0]["id"] }));
    assert_eq!((&charges[0]["amount"], &charges[0]["reference"]), (&1200.into(), &"k".into()));

    assert_eq!((left(&app).await, app.balance("shop").await), (3, 1200));
    let shown = json!({
        "id": id, "account": "shop", "sku": "tea", "quantity": 2, "amount": 1200, "currency": "EUR", "referrer": null,
        "status": "completed", "charge": charges[0]["id"],
    });
    app.get(&format!("/orders/{id}")).await.is(200, &shown);
    app.get_as("demo-b1", &format!("/orders/{id}")).await.is_problem(404, "order-not-found");
    assert_eq!(app.summary().await, json!({ "charges": 1, "transfers": 0, "entries": 2, "sum": 0 }));
    app.books_are_right().await;

    replays(&app.post("/orders", "k", order()).await, &first);
    app.post("/orders", "k", order_with("quantity", 1)).await.is_problem(422, "key-reused");
    assert_eq!((left(&app).await, outside.received("/charges").await), (3, 1));

    until("the mail is sent", async || outside.executed("mail").await.len() == 1).await;
    let mails = outside.executed("mail").await;
    assert_eq!((&mails[0]["to"], &mails[0]["reference"]), (&"ann@example.com".into(), &id.as_str().into()));
}

async fn a_declined_card_gives_the_stock_back_and_its_402_is_replayed_verbatim(app: App, outside: Somebody) {
    open(&app, 5).await;
    let declined = order_with("card", "tok_declined");
    let first = app.post("/orders", "k", declined.clone()).await;
    first.is_problem(402, "card-declined");
    assert_eq!((left(&app).await, in_status(&app, "failed").await), (5, 1));
    replays(&app.post("/orders", "k", declined).await, &first);
    assert_eq!(outside.received("/charges").await, 1);
    assert_eq!((outside.executed("charge").await.len(), outside.executed("refund").await.len()), (0, 0));
    assert!(app.events().await.is_empty(), "what did not happen is not told");
    assert_eq!(app.balance("shop").await, 0);
    // A new intent with another card is another order.
    assert_eq!(app.post("/orders", "new", order()).await.status, 201);
    assert_eq!(left(&app).await, 3);
}

async fn an_order_beyond_the_stock_charges_nobody_and_its_refusal_is_stored(app: App, outside: Somebody) {
    open(&app, 1).await;
    let first = app.post("/orders", "k", order()).await;
    first.is_problem(422, "out-of-stock");
    stock(&app, 5).await;
    replays(&app.post("/orders", "k", order()).await, &first);
    assert_eq!((left(&app).await, outside.received("/charges").await), (5, 0));
    assert_eq!(app.number("SELECT count(*) FROM payments_orders").await, 0);
    assert_eq!(app.post("/orders", "new", order()).await.status, 201);
    app.post("/orders", "unknown", order_with("sku", "coffee")).await.is_problem(422, "out-of-stock");
}

async fn an_order_that_could_not_be_booked_charges_nobody(app: App, outside: Somebody) {
    app.post("/orders", "early", order()).await.is_problem(404, "account-not-found");
    open(&app, 5).await;
    let again = app.post("/orders", "early", order()).await;
    again.is_problem(404, "account-not-found");
    assert!(again.replayed);
    app.post("/orders", "usd", order_with("currency", "USD")).await.is_problem(422, "currency-mismatch");
    assert_eq!((left(&app).await, outside.received("/charges").await), (5, 0));

    for (member, value, code) in [
        ("account", json!("a b"), "account-invalid"),
        ("sku", json!("a/b"), "sku-invalid"),
        ("quantity", json!(0), "quantity-invalid"),
        ("quantity", json!(1.5), "quantity-invalid"),
        ("amount", json!(0), "amount-invalid"),
        ("currency", json!("eur"), "currency-invalid"),
        ("card", json!("a b"), "card-invalid"),
        ("email", json!("ann"), "email-invalid"),
        ("referrer", json!("a b"), "account-invalid"),
        ("referrer", json!("shop"), "same-account"),
        ("tip", json!(1), "body-invalid"),
    ] {
        app.post("/orders", "k", order_with(member, value)).await.is_problem(422, code);
    }
    let fresh = app.post("/orders", "k", order()).await;
    assert_eq!((fresh.status, fresh.replayed), (201, false), "what was refused before the flow left the key new");
}

async fn identical_orders_at_once_make_one_charge(app: App, outside: Somebody) {
    let app = Arc::new(app);
    open(&app, 100).await;
    for round in 1..=5_u32 {
        let mut clients = JoinSet::new();
        for _ in 0..16 {
            let app = Arc::clone(&app);
            clients.spawn(async move { app.post("/orders", &format!("k-{round}"), order()).await });
        }
        let answers = clients.join_all().await;
        let fresh: Vec<_> = answers.iter().filter(|answer| answer.status == 201 && !answer.replayed).collect();
        assert_eq!(fresh.len(), 1, "{answers:?}");
        for answer in &answers {
            match answer.status {
                201 => assert_eq!(answer.body, fresh[0].body),
                _ => answer.is_problem(409, "key-in-flight"),
            }
        }
        let round_i64 = i64::from(round);
        assert_eq!((outside.received("/charges").await, outside.keys().await), (round_i64, round as usize));
        assert_eq!((left(&app).await, app.balance("shop").await), (100 - 2 * round_i64, 1200 * round_i64));
    }
    assert_eq!(outside.executed("charge").await.len(), 5);
    app.books_are_right().await;
}

async fn an_answer_that_is_lost_after_the_charge_does_not_charge_again(app: App, outside: Somebody) {
    open(&app, 5).await;
    outside.fault("charge", json!({ "type": "cut_after" })).await;
    outside.fault("charge", json!({ "type": "error_after" })).await;
    let answer = app.post("/orders", "k", order()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!((outside.received("/charges").await, outside.keys().await), (3, 1));
    assert_eq!(outside.executed("charge").await.len(), 1);
    assert_eq!((left(&app).await, app.balance("shop").await), (3, 1200));
}

async fn a_mail_that_is_late_does_not_hold_up_the_order(app: App, outside: Somebody) {
    open(&app, 5).await;
    let first = app.post("/orders", "k", order()).await;
    assert_eq!(first.status, 201);
    assert_eq!(outside.received("/mails").await, 0, "nobody sends mails yet");
    replays(&app.post("/orders", "k", order()).await, &first);

    outside.fault("mail", json!({ "type": "refuse" })).await;
    outside.fault("mail", json!({ "type": "cut_after" })).await;
    let _completing = app.complete();
    until("the job has ended", async || app.completed("confirmation_mail").await == 1).await;
    assert_eq!(outside.received("/mails").await, 3, "it was handed over until it was accepted");
    assert_eq!(outside.executed("mail").await.len(), 1, "it was handed over twice under one key");
}

async fn what_cannot_be_booked_any_more_is_refunded_once(app: App, outside: Somebody) {
    const MOST: i64 = 1 << 53;
    app.account("shop", MOST - 1200).await;
    stock(&app, 5).await;
    outside.fault("charge", json!({ "type": "slow", "ms": 8000 })).await;
    let app = Arc::new(app);
    let ordering = tokio::spawn({
        let app = Arc::clone(&app);
        async move { app.post("/orders", "k", order()).await }
    });
    until("the charge is under way", async || outside.received("/charges").await == 1).await;
    let notice = json!({ "transaction_id": "t", "account": "shop", "amount": 1 });
    assert_eq!(app.webhook(notice).await.status, 200);

    let first = ordering.await.unwrap();
    first.is_problem(422, "balance-limit");
    let (charges, refunds) = (outside.executed("charge").await, outside.executed("refund").await);
    assert_eq!((charges.len(), refunds.len()), (1, 1));
    assert_eq!(refunds[0]["charge"], charges[0]["id"]);
    assert_ne!(refunds[0]["key"], charges[0]["key"]);
    assert_eq!((left(&app).await, in_status(&app, "failed").await), (5, 1));
    assert_eq!(app.balance("shop").await, MOST - 1199);
    replays(&app.post("/orders", "k", order()).await, &first);
    assert_eq!(outside.received("/refunds").await, 1);
}

async fn no_two_orders_share_a_key_at_the_processor(app: App, outside: Somebody) {
    open(&app, 5).await;
    app.put_as("demo-b1", "/accounts/shop", json!({ "currency": "EUR" })).await;
    app.put_as("demo-b1", "/stock/tea", json!({ "quantity": 5 })).await;
    for (token, key) in [("demo-a1", "same"), ("demo-a1", "other"), ("demo-b1", "same")] {
        assert_eq!(app.post_as(token, "/orders", key, order()).await.status, 201);
    }
    let charges = outside.executed("charge").await;
    let keys: std::collections::BTreeSet<_> = charges.iter().map(|charge| charge["key"].as_str().unwrap()).collect();
    assert_eq!((charges.len(), keys.len()), (3, 3));
    assert!(keys.iter().all(|key| key.len() == semel::intent::KEY_CHARACTERS), "{keys:?}");
}

async fn an_order_whose_rows_were_lost_is_answered_by_its_charge(app: App, outside: Somebody) {
    open(&app, 5).await;
    let first = app.post("/orders", "k", order()).await;
    assert_eq!(first.status, 201, "{first:?}");
    app.lose_flows().await;
    let again = app.post("/orders", "k", order()).await;
    assert_eq!((again.status, again.replayed), (201, false), "{again:?}");
    assert_ne!(again.json()["id"], first.json()["id"]);
    assert_eq!(again.json()["charge"], first.json()["charge"]);
    assert_eq!((outside.received("/charges").await, outside.executed("charge").await.len()), (2, 1));
}

/// Asserts that the client is told that nobody was charged, and nothing of how the processor is called.
async fn could_not_be_asked(app: &App, first: &Answer, failure: &str) {
    first.is_problem(422, "flow-failed");
    let body = first.json();
    assert_eq!((&body["failure"], &body["step"]), (&failure.into(), &"charge".into()));
    let detail = "The card processor could not be asked; nothing was charged, and the pieces are back in the stock.";
    assert_eq!(body["detail"], detail);
    assert_eq!((left(app).await, in_status(app, "failed").await), (5, 1));
    replays(&app.post("/orders", "k", order()).await, first);
}

async fn a_processor_that_is_down_declines_no_card_and_tells_nobody_where_it_is(app: App, outside: Somebody) {
    open(&app, 5).await;
    let first = app.post("/orders", "k", order()).await;
    could_not_be_asked(&app, &first, "gave-up").await;
    assert_eq!(outside.received("/charges").await, 0);
}

async fn a_processor_at_a_wrong_path_declines_no_card(app: App, outside: Somebody) {
    open(&app, 5).await;
    let first = app.post("/orders", "k", order()).await;
    could_not_be_asked(&app, &first, "refused").await;
    assert_eq!(outside.received("/charges").await, 0);
}

async fn a_charge_in_doubt_is_looked_up_and_refunded_when_its_order_is_cancelled(app: App, outside: Somebody) {
    open(&app, 5).await;
    outside.fault("charge", json!({ "type": "cut_after" })).await;
    app.post("/orders", "k", order()).await.is_problem(409, "key-in-flight");
    assert_eq!((left(&app).await, in_status(&app, "pending").await), (3, 1));
    app.cancel("order").await;
    let _completing = app.complete();
    until("the order is undone", async || in_status(&app, "failed").await == 1).await;
    let ended = async || app.post("/orders", "k", order()).await.replayed;
    until("the order has its reply", ended).await;
    app.post("/orders", "k", order()).await.is_problem(422, "flow-cancelled");
    let (charges, refunds) = (outside.executed("charge").await, outside.executed("refund").await);
    assert_eq!((charges.len(), refunds.len()), (1, 1));
    assert_eq!(refunds[0]["charge"], charges[0]["id"]);
    assert_eq!((left(&app).await, outside.received("/charges").await), (5, 1));
}

async fn a_charge_that_nobody_can_tell_of_is_held_and_never_sent_again(app: App, outside: Somebody) {
    let _completing = app.complete();
    open(&app, 5).await;
    outside.fault("charge", json!({ "type": "cut_after" })).await;
    for _ in 0..3 {
        let answer = app.post("/orders", "k", order()).await;
        answer.is_problem(409, "outcome-unknown");
        assert!(!answer.replayed);
    }
    assert_eq!((outside.received("/charges").await, outside.executed("charge").await.len()), (1, 1));
    // Nothing is given back while it may have been paid.
    assert_eq!((left(&app).await, in_status(&app, "pending").await), (3, 1));
}

async fn without_a_processor_orders_are_refused_and_their_keys_stay_new(app: App) {
    open(&app, 5).await;
    for body in [order(), order_with("quantity", 1)] {
        let answer = app.post("/orders", "k", body).await;
        answer.is_problem(503, "provider-missing");
        assert!(!answer.replayed);
    }
    let without_key = app.request(reqwest::Method::POST, "/orders").bearer_auth("demo-a1").json(&order());
    App::send(without_key).await.is_problem(400, "key-missing");
    assert_eq!(left(&app).await, 5);
}

async fn stock_is_set_to_what_is_said_however_often(app: App) {
    app.get("/stock/tea").await.is(200, &json!({ "sku": "tea", "quantity": 0 }));
    for pieces in [5, 5, 0, 1_000_000_000] {
        stock(&app, pieces).await;
        assert_eq!(left(&app).await, pieces);
    }
    app.get_as("demo-b1", "/stock/tea").await.is(200, &json!({ "sku": "tea", "quantity": 0 }));
    for wrong in [json!(-1), json!(1.5), json!("1"), json!(1_000_000_001)] {
        app.put("/stock/tea", json!({ "quantity": wrong })).await.is_problem(422, "quantity-invalid");
    }
    app.put("/stock/a%20b", json!({ "quantity": 1 })).await.is_problem(422, "sku-invalid");
    app.get("/orders/or_none").await.is_problem(404, "order-not-found");
    app.get("/orders/a%00b").await.is_problem(404, "order-not-found");
}
