//! Leased work over HTTP: takeover, hold, the fence, and what a disconnect leaves.

use std::time::Duration;

use crate::common::server::PATIENCE;
use crate::common::{Backend, Script, Server};
use axum::response::IntoResponse;
use http::StatusCode;
use semel::OnExpiry;
use semel_tower::{Leased, Policy};
use tokio::io::AsyncWriteExt;

fn leased() -> Leased {
    Leased::new(Duration::from_secs(30))
}

async fn start<B: Backend>(leased: Leased) -> Server<B> {
    Server::<B>::start(Policy::new().leased(leased)).await
}

async fn leased_work_completes_its_key_and_replays<B: Backend>() {
    let server = start::<B>(leased()).await;
    let first = server.post("/leased").key("k").send().await;
    first.ran(201);
    server.post("/leased").key("k").send().await.replays(&first);
    assert_eq!(server.backend.states().await, ["completed"]);
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn leased_work_in_flight_is_answered_409_and_another_fingerprint_422<B: Backend>() {
    let server = start::<B>(leased()).await;
    let (script, held) = Script::held();
    server.world.next(script);
    let running = tokio::spawn(server.post("/leased").key("k").send());
    held.reached.await.unwrap();
    let answer = server.post("/leased").key("k").send().await;
    answer.problem(409, "key-in-flight");
    assert!((1..=30).contains(&answer.retry_after()));
    server.post("/leased").key("k").body("{\"amount\":2}").send().await.problem(422, "key-reused");
    held.release.send(()).unwrap();
    running.await.unwrap().ran(201);
    assert_eq!(server.world.runs(), 1);
}

async fn an_expired_lease_is_taken_over_at_its_recovery_point_and_the_late_worker_is_refused<B: Backend>() {
    let server = start::<B>(leased()).await;
    let (script, held) = Script::held();
    server.world.next(script);
    let late = tokio::spawn(server.post("/leased").key("k").send());
    held.reached.await.unwrap();
    server.backend.expire_leases().await;
    server.post("/leased").key("k").body("{\"amount\":2}").send().await.problem(422, "key-reused");
    let second = server.post("/leased").key("k").send().await;
    second.ran(201);
    assert_eq!(server.world.points(), [None, Some("reserved".to_owned())]);
    held.release.send(()).unwrap();
    late.await.unwrap().problem(409, "key-in-flight");
    server.post("/leased").key("k").send().await.replays(&second);
    assert_eq!(server.backend.effects().await, 1);
}

async fn an_expired_lease_that_is_held_is_answered_outcome_unknown<B: Backend>() {
    let server = start::<B>(leased().on_expiry(OnExpiry::Hold)).await;
    let (script, held) = Script::held();
    server.world.next(script);
    let late = tokio::spawn(server.post("/leased").key("k").send());
    held.reached.await.unwrap();
    server.backend.expire_leases().await;
    for _ in 0..2 {
        server.post("/leased").key("k").send().await.problem(409, "outcome-unknown");
    }
    server.post("/leased").key("k").body("{\"amount\":2}").send().await.problem(422, "key-reused");
    held.release.send(()).unwrap();
    assert_eq!(late.await.unwrap().status, 409);
    assert_eq!(server.backend.states().await, ["unknown"]);
    assert_eq!(server.world.runs(), 1);
}

async fn a_worker_that_lost_its_lease_is_stopped<B: Backend>() {
    let server = start::<B>(Leased::new(Duration::from_millis(300))).await;
    let (script, held) = Script::held();
    server.world.next(script);
    let late = tokio::spawn(server.post("/leased").key("k").send());
    held.reached.await.unwrap();
    // A renewal may come between the expiry and the takeover, so both are tried until the takeover is first.
    let taking_over = async {
        loop {
            server.backend.expire_leases().await;
            let answer = server.post("/leased").key("k").send().await;
            if answer.status != StatusCode::CONFLICT {
                return answer;
            }
        }
    };
    tokio::time::timeout(PATIENCE, taking_over).await.expect("the work is taken over").ran(201);
    late.await.unwrap().problem(409, "key-in-flight");
    assert!(held.release.is_closed(), "the handler that lost its lease was dropped");
    assert_eq!(server.backend.effects().await, 1);
}

async fn a_lease_is_renewed_while_the_handler_runs<B: Backend>() {
    let lease = Duration::from_millis(300);
    let server = start::<B>(Leased::new(lease)).await;
    let (script, held) = Script::held();
    server.world.next(script);
    let running = tokio::spawn(server.post("/leased").key("k").send());
    held.reached.await.unwrap();
    let until = tokio::time::Instant::now() + 3 * lease;
    while tokio::time::Instant::now() < until {
        server.post("/leased").key("k").send().await.problem(409, "key-in-flight");
        tokio::time::sleep(lease / 6).await;
    }
    held.release.send(()).unwrap();
    running.await.unwrap().ran(201);
    assert_eq!(server.world.runs(), 1);
}

async fn a_5xx_of_leased_work_gives_the_lease_up_and_a_retry_resumes_at_once<B: Backend>() {
    let server = start::<B>(leased()).await;
    server.world.next(Script::answer(StatusCode::BAD_GATEWAY));
    server.post("/leased").key("k").send().await.ran(502);
    server.world.next(Script::answer(StatusCode::TOO_MANY_REQUESTS));
    server.post("/leased").key("k").send().await.ran(429);
    server.post("/leased").key("k").send().await.ran(201);
    let reserved = Some("reserved".to_owned());
    assert_eq!(server.world.points(), [None, reserved.clone(), reserved]);
    assert_eq!(server.backend.effects().await, 1);
}

async fn a_4xx_of_leased_work_is_stored_beside_its_steps<B: Backend>() {
    let server = start::<B>(leased()).await;
    server.world.next(Script::answer((StatusCode::PAYMENT_REQUIRED, "declined")));
    let first = server.post("/leased").key("k").send().await;
    first.ran(402);
    server.post("/leased").key("k").send().await.replays(&first);
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn a_terminal_5xx_of_leased_work_is_stored_as_failed<B: Backend>() {
    let server = Server::<B>::start(Policy::new().leased(leased()).terminal([StatusCode::BAD_GATEWAY])).await;
    server.world.next(Script::answer((StatusCode::BAD_GATEWAY, "gone for good")));
    let first = server.post("/leased").key("k").send().await;
    first.ran(502);
    server.post("/leased").key("k").send().await.replays(&first);
    assert_eq!(server.backend.states().await, ["failed"]);
}

async fn leased_work_past_its_limit_gives_the_lease_up<B: Backend>() {
    let server = start::<B>(leased().limit(Duration::from_millis(200))).await;
    let (script, _held) = Script::held();
    server.world.next(script);
    server.post("/leased").key("k").send().await.problem(503, "deadline-exceeded");
    server.post("/leased").key("k").send().await.ran(201);
    assert_eq!(server.backend.effects().await, 1);
}

async fn a_client_that_disconnects_does_not_stop_leased_work<B: Backend>() {
    let server = start::<B>(leased()).await;
    let (script, held) = Script::held();
    let (answered, was_answered) = tokio::sync::oneshot::channel();
    server.world.next(Script {
        answer: Box::new(move |_| {
            let _ = answered.send(());
            (StatusCode::CREATED, "done").into_response()
        }),
        ..script
    });
    let mut connection = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let request = "POST /leased HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a1\r\nidempotency-key: k\r\n\
                   content-type: application/json\r\ncontent-length: 12\r\n\r\n{\"amount\":1}";
    connection.write_all(request.as_bytes()).await.unwrap();
    held.reached.await.unwrap();
    drop(connection);
    server.dropped().await;
    held.release.send(()).unwrap();
    was_answered.await.unwrap();
    let retry = server.post_until_settled("/leased").await;
    assert!(retry.replayed() && retry.body == "done", "{retry:?}");
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

crate::common::on_both_stores!(
    leased_work_completes_its_key_and_replays,
    leased_work_in_flight_is_answered_409_and_another_fingerprint_422,
    an_expired_lease_is_taken_over_at_its_recovery_point_and_the_late_worker_is_refused,
    an_expired_lease_that_is_held_is_answered_outcome_unknown,
    a_worker_that_lost_its_lease_is_stopped,
    a_lease_is_renewed_while_the_handler_runs,
    a_5xx_of_leased_work_gives_the_lease_up_and_a_retry_resumes_at_once,
    a_4xx_of_leased_work_is_stored_beside_its_steps,
    a_terminal_5xx_of_leased_work_is_stored_as_failed,
    leased_work_past_its_limit_gives_the_lease_up,
    a_client_that_disconnects_does_not_stop_leased_work,
);
