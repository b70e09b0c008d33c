//! When the execution of leased work begins, and what an answer leaves before and after that.

use std::time::Duration;

use crate::common::faulty::FaultyBackend;
use crate::common::script::Hold;
use crate::common::{Backend, Script, Server};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use semel::{OnExpiry, once};
use semel_tower::{Leased, Policy, Problem};
use tokio::io::AsyncWriteExt;

async fn start<B: Backend>(on_expiry: OnExpiry) -> Server<B> {
    let leased = Leased::new(Duration::from_secs(30)).on_expiry(on_expiry);
    Server::<B>::start(Policy::new().leased(leased)).await
}

fn panics(_: usize) -> Response {
    panic!("before it began")
}

async fn leased_work_refused_before_it_began_leaves_the_key_new<B: Backend>() {
    for on_expiry in [OnExpiry::Resume, OnExpiry::Hold] {
        let server = start::<B>(on_expiry).await;
        let broken = server.post("/leased-json").key("k").body("{").send().await;
        broken.ran(400);
        server.post("/leased-json").key("k").content_type("text/plain").send().await.ran(415);
        assert_eq!(server.world.runs(), 0);
        for status in [400, 404, 409, 422, 429, 500, 503] {
            server.world.next(Script::refuse(StatusCode::from_u16(status).unwrap()));
            server.post("/leased").key("k").send().await.ran(status);
            assert!(server.backend.states().await.is_empty(), "{status} leaves the key new");
        }
        server.world.next(Script { answer: Box::new(panics), ..Script::refuse(()) });
        server.post("/leased").key("k").send().await.problem(500, "internal-error");
        assert!(server.backend.states().await.is_empty());
        // A new key takes any request, also one with another fingerprint.
        server.post("/leased-json").key("k").send().await.ran(201);
        server.post("/leased").key("k").body("{\"amount\":2}").send().await.ran(201);
        assert_eq!(server.backend.effects().await, 2);
    }
}

async fn a_5xx_or_panic_after_leased_work_began_is_held_as_unknown<B: Backend>() {
    let answers: [fn(usize) -> Response; 2] = [|_| StatusCode::BAD_GATEWAY.into_response(), panics];
    for answer in answers {
        for path in ["/leased", "/leased-outside"] {
            let server = start::<B>(OnExpiry::Hold).await;
            server.world.next(Script { answer: Box::new(answer), ..Script::usual() });
            assert!(server.post(path).key("k").send().await.status.is_server_error());
            for _ in 0..2 {
                server.post(path).key("k").send().await.problem(409, "outcome-unknown");
            }
            assert_eq!((server.world.runs(), server.backend.states().await), (1, vec!["unknown".to_owned()]), "{path}");
        }
    }
}

async fn a_run_that_takes_over_and_refuses_before_it_began_leaves_the_work_as_it_was<B: Backend>() {
    let server = start::<B>(OnExpiry::Resume).await;
    server.world.next(Script::answer(StatusCode::BAD_GATEWAY));
    server.post("/leased-outside").key("k").send().await.ran(502);
    let execution = server.backend.executions().await;
    assert_eq!(execution.len(), 1);
    server.world.next(Script::refuse(StatusCode::UNPROCESSABLE_ENTITY));
    server.post("/leased-outside").key("k").send().await.ran(422);
    assert_eq!(server.backend.states().await, ["in_progress"]);
    let last = server.post("/leased-outside").key("k").send().await;
    last.ran(201);
    server.post("/leased-outside").key("k").send().await.replays(&last);
    assert_eq!((server.world.runs(), server.backend.executions().await), (3, execution));
}

async fn a_4xx_of_a_run_that_goes_on_from_a_recovery_point_is_stored<B: Backend>() {
    let server = start::<B>(OnExpiry::Resume).await;
    server.world.next(Script::answer(StatusCode::BAD_GATEWAY));
    server.post("/leased").key("k").send().await.ran(502);
    server.world.next(Script::refuse((StatusCode::PAYMENT_REQUIRED, "declined")));
    let second = server.post("/leased").key("k").send().await;
    second.ran(402);
    server.post("/leased").key("k").send().await.replays(&second);
    assert_eq!(server.world.points(), [None, Some("reserved".to_owned())]);
}

async fn a_problem_of_the_layers_own_is_not_stored_beside_the_steps<B: Backend>() {
    let server = start::<B>(OnExpiry::Resume).await;
    server.world.next(Script::answer(Problem::from(once::Error::<Problem>::Mismatch)));
    server.post("/leased").key("k").send().await.problem(422, "key-reused");
    let second = server.post("/leased").key("k").send().await;
    second.ran(201);
    server.post("/leased").key("k").send().await.replays(&second);
    assert_eq!((server.world.runs(), server.backend.effects().await), (2, 1));
}

async fn steps_run_one_after_another_and_a_committed_one_is_not_committed_again<B: Backend>() {
    let server = start::<B>(OnExpiry::Resume).await;
    server.post("/leased-twice").key("k").send().await.problem(500, "internal-error");
    assert_eq!(server.world.points(), [Some("second".to_owned())]);
    assert_eq!((server.backend.effects().await, server.backend.states().await), (2, vec!["in_progress".to_owned()]));
}

async fn a_client_that_disconnects_while_its_lease_commits_leaves_a_worker<B: Backend>() {
    let policy = Policy::new().leased(Leased::new(Duration::from_secs(600)));
    let server = Server::<FaultyBackend<B>>::start(policy).await;
    let (hold, held) = Hold::new();
    server.backend.next_lease_stops(hold);
    let mut connection = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let request = "POST /leased HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a1\r\nidempotency-key: k\r\n\
                   content-type: application/json\r\ncontent-length: 12\r\n\r\n{\"amount\":1}";
    connection.write_all(request.as_bytes()).await.unwrap();
    held.reached.await.unwrap();
    assert_eq!(server.backend.states().await, ["in_progress"]);
    drop(connection);
    server.dropped().await;
    held.release.send(()).expect("somebody still holds the lease");
    let retry = server.post_until_settled("/leased").await;
    assert!(retry.status == 201 && retry.replayed(), "{retry:?}");
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

crate::common::on_both_stores!(
    leased_work_refused_before_it_began_leaves_the_key_new,
    a_5xx_or_panic_after_leased_work_began_is_held_as_unknown,
    a_run_that_takes_over_and_refuses_before_it_began_leaves_the_work_as_it_was,
    a_4xx_of_a_run_that_goes_on_from_a_recovery_point_is_stored,
    a_problem_of_the_layers_own_is_not_stored_beside_the_steps,
    steps_run_one_after_another_and_a_committed_one_is_not_committed_again,
    a_client_that_disconnects_while_its_lease_commits_leaves_a_worker,
);
