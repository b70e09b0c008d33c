//! The contract's second table: what a keyed request gets, by the state of its key.

use std::time::Duration;

use crate::common::{Backend, Script, Server};
use axum::response::IntoResponse;
use http::{Method, StatusCode};
use semel_tower::{Policy, Principal};

async fn a_new_key_runs<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    server.post("/act").key("k").send().await.ran(201);
    assert_eq!(server.backend.effects().await, 1);
    assert_eq!(server.world.seen(), ["{\"amount\":1}"]);
}

async fn an_expired_key_runs_as_new_with_a_new_execution_whatever_its_fingerprint<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    server.post("/act").key("k").send().await.ran(201);
    let first = server.backend.executions().await;
    server.backend.expire_keys().await;
    server.post("/act").key("k").send().await.ran(201);
    let second = server.backend.executions().await;
    server.backend.expire_keys().await;
    let third_answer = server.post("/act").key("k").body("{\"amount\":2}").send().await;
    third_answer.ran(201);
    let third = server.backend.executions().await;
    assert!(first.len() == 1 && second.len() == 1 && third.len() == 1);
    assert!(first != second && second != third && first != third);
    server.post("/act").key("k").body("{\"amount\":2}").send().await.replays(&third_answer);
    assert_eq!(server.backend.effects().await, 3);
}

async fn a_key_in_flight_is_answered_409_at_once_with_retry_after<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let (script, held) = Script::held();
    server.world.next(script);
    let running = tokio::spawn(server.post("/act").key("k").send());
    held.reached.await.unwrap();
    let answer = server.post("/act").key("k").send().await;
    answer.problem(409, "key-in-flight");
    assert!(answer.retry_after() >= 1);
    held.release.send(()).unwrap();
    let first = running.await.unwrap();
    first.ran(201);
    server.post("/act").key("k").send().await.replays(&first);
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn a_key_in_flight_with_another_fingerprint_is_answered_409_or_422<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let (script, held) = Script::held();
    server.world.next(script);
    let running = tokio::spawn(server.post("/act").key("k").send());
    held.reached.await.unwrap();
    let answer = server.post("/act").key("k").body("{\"amount\":2}").send().await;
    match answer.status.as_u16() {
        409 => drop(answer.problem(409, "key-in-flight")),
        _ => drop(answer.problem(422, "key-reused")),
    }
    held.release.send(()).unwrap();
    running.await.unwrap().ran(201);
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn a_bounded_wait_replays_what_the_run_in_flight_answers<B: Backend>() {
    let server = Server::<B>::start(Policy::new().wait(Duration::from_secs(30))).await;
    let (script, held) = Script::held();
    server.world.next(script);
    let running = tokio::spawn(server.post("/act").key("k").send());
    held.reached.await.unwrap();
    let mut waiting = tokio::spawn(server.post("/act").key("k").send());
    // Nobody is answered while the first one runs. The silence is only evidence; the replay at the end is the proof.
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err());
    held.release.send(()).unwrap();
    let first = running.await.unwrap();
    first.ran(201);
    waiting.await.unwrap().replays(&first);
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn a_bounded_wait_that_ends_is_answered_409<B: Backend>() {
    let server = Server::<B>::start(Policy::new().wait(Duration::from_millis(200))).await;
    let (script, held) = Script::held();
    server.world.next(script);
    let running = tokio::spawn(server.post("/act").key("k").send());
    held.reached.await.unwrap();
    let asked = std::time::Instant::now();
    server.post("/act").key("k").send().await.problem(409, "key-in-flight");
    assert!(asked.elapsed() >= Duration::from_millis(200));
    held.release.send(()).unwrap();
    running.await.unwrap().ran(201);
}

async fn a_waiting_request_runs_when_the_run_in_flight_is_rolled_back<B: Backend>() {
    let server = Server::<B>::start(Policy::new().wait(Duration::from_secs(30))).await;
    let (script, held) = Script::held();
    server.world.next(Script { answer: Box::new(|_| StatusCode::BAD_GATEWAY.into_response()), ..script });
    let running = tokio::spawn(server.post("/act").key("k").send());
    held.reached.await.unwrap();
    let waiting = tokio::spawn(server.post("/act").key("k").send());
    held.release.send(()).unwrap();
    running.await.unwrap().ran(502);
    waiting.await.unwrap().ran(201);
    assert_eq!(server.backend.effects().await, 1);
}

async fn a_completed_key_replays<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let first = server.post("/act").key("k").send().await;
    for _ in 0..3 {
        server.post("/act").key("k").send().await.replays(&first);
    }
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn a_completed_key_with_another_fingerprint_is_answered_422_and_its_record_is_untouched<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let first = server.post("/act/1").key("k").send().await;
    server.post("/act/1").key("k").body("{\"amount\":2}").send().await.problem(422, "key-reused");
    server.post("/act/2").key("k").send().await.problem(422, "key-reused");
    server.post("/act/1?x=1").key("k").send().await.problem(422, "key-reused");
    server.post("/act/1").key("k").content_type("text/plain").send().await.problem(422, "key-reused");
    server.post("/act/1").key("k").send().await.replays(&first);
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn a_json_body_written_otherwise_is_the_same_request<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let first = server.post("/act").key("k").body("{\"a\":1,\"b\":[true,\"x\"]}").send().await;
    let again = server.post("/act").key("k").body(" { \"b\" : [ true, \"\\u0078\" ], \"a\" : 1.0 } ");
    again.content_type("application/json; charset=utf-8").send().await.replays(&first);
    server.post("/act").key("k").body("{\"a\":1,\"b\":[\"x\",true]}").send().await.problem(422, "key-reused");
}

async fn another_operation_has_its_own_keys<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    server.post("/act").key("k").send().await.ran(201);
    server.request(Method::PATCH, "/act").key("k").send().await.ran(201);
    server.post("/json").key("k").send().await.ran(201);
    assert_eq!(server.backend.effects().await, 3);
}

async fn two_tenants_with_the_same_key_never_see_or_block_each_other<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let (script, held) = Script::held_before_acting();
    server.world.next(script);
    let running = tokio::spawn(server.post("/act").token("a1").key("k").send());
    held.reached.await.unwrap();
    server.post("/act").token("b1").key("k").send().await.ran(201);
    held.release.send(()).unwrap();
    let first = running.await.unwrap();
    first.ran(201);
    let replay = server.post("/act").token("a1").key("k").send().await;
    replay.replays(&first);
    let others = server.post("/act").token("b1").key("k").send().await;
    assert!(others.replayed() && others.body != first.body);
    assert_eq!(server.backend.effects().await, 2);
}

async fn a_rotated_token_of_the_same_tenant_replays_and_a_revoked_one_does_not<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let first = server.post("/act").token("a1").key("k").send().await;
    server.post("/act").token("a2").key("k").send().await.replays(&first);
    for token in ["revoked", ""] {
        let refused = server.post("/act").token(token).key("k").send().await;
        refused.ran(401);
        assert!(refused.body.is_empty());
    }
}

async fn the_authorise_hook_runs_before_a_replay_and_its_refusal_is_not_stored<B: Backend>() {
    let policy = Policy::new().authorise(|parts| {
        let tenant = parts.extensions.get::<Principal>().map(|principal| principal.as_str().to_owned());
        let allowed = parts.headers.get("x-allowed").is_some() && tenant.as_deref() == Some("a");
        Box::pin(async move { if allowed { Ok(()) } else { Err(StatusCode::FORBIDDEN.into_response()) } })
    });
    let server = Server::<B>::start(policy).await;
    server.post("/act").key("k").send().await.ran(403);
    server.post("/act").send().await.ran(403);
    assert!(server.backend.states().await.is_empty());
    let first = server.post("/act").header("x-allowed", "1").key("k").send().await;
    first.ran(201);
    server.post("/act").key("k").send().await.ran(403);
    server.post("/act").header("x-allowed", "1").key("k").send().await.replays(&first);
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn the_same_body_with_two_keys_is_two_effects<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    server.post("/act").key("k1").send().await.ran(201);
    server.post("/act").key("k2").send().await.ran(201);
    assert_eq!(server.backend.effects().await, 2);
}

async fn simultaneous_identical_requests_have_one_effect<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    for round in 0..10 {
        let racing: Vec<_> =
            (0..16).map(|_| tokio::spawn(server.post("/act").key(format!("k{round}")).send())).collect();
        let mut answers = Vec::new();
        for answer in racing {
            answers.push(answer.await.unwrap());
        }
        let (ran, others): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| answer.status == 201 && !answer.replayed());
        assert_eq!(ran.len(), 1);
        for other in others {
            if other.replayed() {
                other.replays(&ran[0]);
            } else {
                other.problem(409, "key-in-flight");
            }
        }
        assert_eq!(server.backend.effects().await, round + 1);
    }
}

crate::common::on_both_stores!(
    a_new_key_runs,
    an_expired_key_runs_as_new_with_a_new_execution_whatever_its_fingerprint,
    a_key_in_flight_is_answered_409_at_once_with_retry_after,
    a_key_in_flight_with_another_fingerprint_is_answered_409_or_422,
    a_bounded_wait_replays_what_the_run_in_flight_answers,
    a_bounded_wait_that_ends_is_answered_409,
    a_waiting_request_runs_when_the_run_in_flight_is_rolled_back,
    a_completed_key_replays,
    a_completed_key_with_another_fingerprint_is_answered_422_and_its_record_is_untouched,
    a_json_body_written_otherwise_is_the_same_request,
    another_operation_has_its_own_keys,
    two_tenants_with_the_same_key_never_see_or_block_each_other,
    a_rotated_token_of_the_same_tenant_replays_and_a_revoked_one_does_not,
    the_authorise_hook_runs_before_a_replay_and_its_refusal_is_not_stored,
    the_same_body_with_two_keys_is_two_effects,
    simultaneous_identical_requests_have_one_effect,
);
