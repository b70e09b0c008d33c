//! What breaks between the client and the commit, and what a retry finds.

use crate::common::faulty::{Fault, FaultyBackend};
use crate::common::script::Hold;
use crate::common::{Backend, Postgres, Script, Server};
use axum::response::IntoResponse;
use http::StatusCode;
use semel::Settings;
use semel_postgres::Isolation;
use semel_tower::{Policy, terminal};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const REQUEST: &str = "POST /act HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a1\r\nidempotency-key: k\r\n\
                       content-type: application/json\r\ncontent-length: 12\r\n\r\n{\"amount\":1}";

async fn an_unreachable_store_is_answered_503_and_nothing_runs_until_it_is_back<B: Backend>() {
    let mut server = Server::<B>::start(Policy::new()).await;
    let first = server.post("/act").key("before").send().await;
    server.backend.break_off().await;
    for body in ["{\"amount\":1}", "{\"amount\":2}"] {
        let answer = server.post("/act").key("k").body(body).send().await;
        answer.problem(503, "store-unavailable");
        assert!(answer.retry_after() >= 1);
    }
    server.backend.mend().await;
    assert_eq!(server.backend.effects().await, 1);
    server.post("/act").key("before").send().await.replays(&first);
    server.post("/act").key("k").send().await.ran(201);
    assert_eq!(server.backend.effects().await, 2);
}

async fn a_conflict_at_commit_is_answered_503_and_the_key_stays_new<B: Backend>() {
    let server = Server::<FaultyBackend<B>>::start(Policy::new()).await;
    server.backend.next(Fault::Conflict);
    let answer = server.post("/act").key("k").send().await;
    answer.problem(503, "store-unavailable");
    assert!(answer.retry_after() >= 1);
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 0));
    let first = server.post("/act").key("k").send().await;
    first.ran(201);
    server.post("/act").key("k").send().await.replays(&first);
    assert_eq!((server.world.runs(), server.backend.effects().await), (2, 1));
}

async fn what_a_handler_answers_after_a_deadlock_is_not_stored<B: Backend>() {
    let server = Server::<FaultyBackend<B>>::start(Policy::new()).await;
    for status in [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::INTERNAL_SERVER_ERROR] {
        server.backend.next_deadlocks();
        server.world.next(Script::answer(terminal(status)));
        server.post("/act").key("k").send().await.problem(503, "store-unavailable");
        assert!(server.backend.states().await.is_empty());
    }
    server.post("/act").key("k").send().await.ran(201);
    assert_eq!(server.backend.effects().await, 1);
}

async fn a_run_that_lost_the_race_is_answered_with_the_winners_reply<B: Backend>() {
    let server = Server::<FaultyBackend<B>>::start(Policy::new()).await;
    server.backend.next(Fault::Raced);
    let answer = server.post("/act").key("k").send().await;
    assert!(answer.status == 201 && answer.replayed(), "{answer:?}");
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn a_commit_whose_acknowledgement_is_lost_is_asked_about_and_answered<B: Backend>() {
    let server = Server::<FaultyBackend<B>>::start(Policy::new()).await;
    server.backend.next(Fault::Ambiguous);
    let first = server.post("/act").key("k").send().await;
    first.ran(201);
    server.post("/act").key("k").send().await.replays(&first);
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn a_client_that_disconnects_at_commit_loses_nothing<B: Backend>() {
    let server = Server::<FaultyBackend<B>>::start(Policy::new()).await;
    let (hold, held) = Hold::new();
    server.backend.next(Fault::Stop(hold));
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    connection.write_all(REQUEST.as_bytes()).await.unwrap();
    held.reached.await.unwrap();
    drop(connection);
    server.dropped().await;
    held.release.send(()).unwrap();
    let retry = server.post_until_settled("/act").await;
    assert!(retry.status == 201 && retry.replayed(), "{retry:?}");
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn a_client_that_disconnects_while_the_handler_runs_leaves_the_key_new<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let (script, held) = Script::held();
    server.world.next(script);
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    connection.write_all(REQUEST.as_bytes()).await.unwrap();
    held.reached.await.unwrap();
    drop(connection);
    server.dropped().await;
    assert!(held.release.is_closed(), "the handler was dropped");
    let retry = server.post_until_settled("/act").await;
    retry.ran(201);
    assert_eq!((server.world.runs(), server.backend.effects().await), (2, 1));
}

async fn a_body_that_breaks_off_runs_nothing<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    let half = &REQUEST[..REQUEST.len() - 4];
    connection.write_all(half.as_bytes()).await.unwrap();
    connection.shutdown().await.unwrap();
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut connection, &mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("body-incomplete"), "{answer}");
    assert_eq!(server.world.runs(), 0);
    server.post("/act").key("k").send().await.ran(201);
}

crate::common::on_both_stores!(
    an_unreachable_store_is_answered_503_and_nothing_runs_until_it_is_back,
    a_conflict_at_commit_is_answered_503_and_the_key_stays_new,
    what_a_handler_answers_after_a_deadlock_is_not_stored,
    a_run_that_lost_the_race_is_answered_with_the_winners_reply,
    a_commit_whose_acknowledgement_is_lost_is_asked_about_and_answered,
    a_client_that_disconnects_at_commit_loses_nothing,
    a_client_that_disconnects_while_the_handler_runs_leaves_the_key_new,
    a_body_that_breaks_off_runs_nothing,
);

/// SQLite has one writer and no such conflicts.
#[tokio::test]
async fn a_serialization_failure_in_the_handler_is_answered_503_and_the_key_stays_new() {
    let backend = Postgres::at(Isolation::Serializable).await;
    let server = Server::start_on(backend, Policy::new(), Settings::default()).await;
    for status in [StatusCode::CREATED, StatusCode::UNPROCESSABLE_ENTITY, StatusCode::BAD_GATEWAY] {
        let before = server.backend.effects().await;
        let (script, held) = Script::held_before_acting();
        server.world.next(Script { answer: Box::new(move |_| status.into_response()), ..script });
        let first = tokio::spawn(server.post("/counted").key(format!("first-{}", status.as_u16())).send());
        held.reached.await.unwrap();
        server.post("/counted").key(format!("second-{}", status.as_u16())).send().await.ran(201);
        held.release.send(()).unwrap();
        let conflicted = first.await.unwrap();
        conflicted.problem(503, "store-unavailable");
        assert!(conflicted.retry_after() >= 1);
        assert_eq!(server.backend.effects().await, before + 1);
    }
    server.post("/counted").key("first-422").send().await.ran(201);
    assert_eq!(server.backend.effects().await, 4);
}
