//! The contract's third table: which replies are stored, and what becomes of the effect.

use std::time::Duration;

use crate::common::{Backend, Script, Server};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode};
use semel::{Settings, once};
use semel_tower::{Policy, Problem, keep, terminal};

/// Asserts that the key is as new: nothing is committed or stored, and the same key runs.
async fn stays_new<B: Backend>(server: &Server<B>, path: &str) {
    assert_eq!(server.backend.effects().await, 0);
    assert!(server.backend.states().await.is_empty());
    server.post(path).key("k").send().await.ran(201);
    assert_eq!(server.backend.effects().await, 1);
}

async fn a_request_rejected_before_execution_began_leaves_the_key_new<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    server.post("/act").token("").key("k").send().await.ran(401);
    let broken = server.post("/json").key("k").body("{").send().await;
    assert_eq!(broken.status, 400);
    let wrong_type = server.post("/json").key("k").content_type("text/plain").send().await;
    assert_eq!(wrong_type.status, 415);
    assert_eq!(server.world.runs(), 0);
    stays_new(&server, "/json").await;
}

async fn a_4xx_before_the_first_statement_is_not_stored<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    for status in [400, 403, 404, 422] {
        server.world.next(Script::refuse(StatusCode::from_u16(status).unwrap()));
        server.post("/act").key("k").send().await.ran(status);
    }
    stays_new(&server, "/act").await;
}

async fn a_2xx_or_3xx_commits_and_is_stored<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    for (position, status) in [200, 201, 202, 204, 303, 307].into_iter().enumerate() {
        let key = format!("k{status}");
        server.world.next(Script::answer(StatusCode::from_u16(status).unwrap()));
        let first = server.post("/act").key(&key).send().await;
        first.ran(status);
        server.post("/act").key(&key).send().await.replays(&first);
        assert_eq!(server.backend.effects().await, i64::try_from(position).unwrap() + 1);
    }
    assert!(server.backend.states().await.iter().all(|state| state == "completed"));
}

async fn binary_bodies_and_repeated_headers_replay_in_order_and_private_ones_do_not<B: Backend>() {
    let server = Server::<B>::start(Policy::new().allow_header("X-Cost")).await;
    let body: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let mut response = Response::new(Body::from(body.clone()));
    let lines: [(&str, &[u8]); 9] = [
        ("content-type", b"application/octet-stream"),
        ("link", b"</a>; rel=\"a\""),
        ("set-cookie", b"session=secret"),
        ("x-cost", b"caf\xe9"),
        ("link", b"</b>; rel=\"b\""),
        ("vary", b"accept"),
        ("x-private", b"1"),
        ("vary", b"accept-language"),
        ("etag", b"\"v1\""),
    ];
    for (name, value) in lines {
        let (name, value) = (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap());
        response.headers_mut().append(name, value);
    }
    server.world.next(Script::answer(response));
    let first = server.post("/act").key("k").send().await;
    assert_eq!(first.headers["set-cookie"], "session=secret");
    assert_eq!(first.headers["x-private"], "1");
    assert_eq!(first.body, body);
    let replay = server.post("/act").key("k").send().await;
    replay.replays(&first);
    assert_eq!(replay.headers.get_all("link").iter().count(), 2);
    assert!(!replay.headers.contains_key("set-cookie") && !replay.headers.contains_key("x-private"));
}

async fn a_2xx_from_a_handler_that_never_took_the_transaction_is_told_as_a_mistake<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    for status in [201, 303] {
        server.world.next(Script::answer(StatusCode::from_u16(status).unwrap()));
        server.post("/outside").key("k").send().await.problem(500, "effect-outside");
    }
    assert!(server.backend.states().await.is_empty());
}

async fn a_4xx_or_5xx_from_a_handler_that_never_took_the_transaction_passes<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    for status in [404, 500] {
        server.world.next(Script::answer(StatusCode::from_u16(status).unwrap()));
        server.post("/outside").key("k").send().await.ran(status);
    }
    assert!(server.backend.states().await.is_empty());
}

async fn a_transaction_moved_into_a_task_commits_nothing_and_is_told_as_a_mistake<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let (script, held) = Script::held();
    server.world.next(script);
    server.post("/away").key("k").send().await.problem(500, "effect-outside");
    held.reached.await.unwrap();
    server.post("/away").key("k").send().await.problem(409, "key-in-flight");
    held.release.send(()).unwrap();
    assert_eq!(server.backend.effects().await, 0);
    assert!(server.backend.states().await.is_empty());
}

async fn a_4xx_after_the_first_statement_rolls_the_effect_back_and_is_stored<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    for status in [400, 402, 404, 410, 422] {
        let key = format!("k{status}");
        let status = StatusCode::from_u16(status).unwrap();
        server.world.next(Script::answer(Problem::new(status, "insufficient-funds", "the balance is 3")));
        let first = server.post("/act").key(&key).send().await;
        first.problem(status.as_u16(), "insufficient-funds");
        server.post("/act").key(&key).send().await.replays(&first);
    }
    assert_eq!((server.world.runs(), server.backend.effects().await), (5, 0));
}

async fn a_4xx_that_the_handler_keeps_commits_its_effect<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    server.world.next(Script::answer(keep((StatusCode::PAYMENT_REQUIRED, "declined"))));
    let first = server.post("/act").key("k").send().await;
    first.ran(402);
    server.post("/act").key("k").send().await.replays(&first);
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn a_408_409_425_or_429_is_rolled_back_and_not_stored_even_if_kept<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    for status in [408, 409, 425, 429] {
        let status = StatusCode::from_u16(status).unwrap();
        server.world.next(Script::answer(status));
        server.post("/act").key("k").send().await.ran(status.as_u16());
        server.world.next(Script::answer(keep(status)));
        server.post("/act").key("k").send().await.ran(status.as_u16());
    }
    stays_new(&server, "/act").await;
}

async fn a_problem_of_the_layers_own_is_never_stored_even_as_a_4xx_after_a_statement<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let reused = || Problem::from(once::Error::<Problem>::Mismatch);
    server.world.next(Script::answer(reused()));
    server.post("/act").key("k").send().await.problem(422, "key-reused");
    server.world.next(Script::answer(keep(reused())));
    server.post("/act").key("k").send().await.problem(422, "key-reused");
    stays_new(&server, "/act").await;
}

async fn a_5xx_is_rolled_back_and_not_stored<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    for status in [500, 501, 502, 503] {
        server.world.next(Script::answer(StatusCode::from_u16(status).unwrap()));
        server.post("/act").key("k").send().await.ran(status);
    }
    stays_new(&server, "/act").await;
}

async fn a_panic_is_rolled_back_and_not_stored<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    server.post("/panic").key("k").send().await.problem(500, "internal-error");
    stays_new(&server, "/panic").await;
}

async fn a_run_past_the_deadline_is_rolled_back_and_not_stored<B: Backend>() {
    let settings = Settings { deadline: Duration::from_millis(200), ..Settings::default() };
    let server = Server::<B>::start_with(Policy::new(), settings).await;
    let (script, _held) = Script::held();
    server.world.next(script);
    let answer = server.post("/act").key("k").send().await;
    answer.problem(503, "deadline-exceeded");
    assert!(answer.retry_after() >= 1);
    stays_new(&server, "/act").await;
}

async fn a_5xx_marked_terminal_is_rolled_back_and_stored_as_failed<B: Backend>() {
    let server = Server::<B>::start(Policy::new().terminal([StatusCode::NOT_IMPLEMENTED])).await;
    server.world.next(Script::answer(terminal((StatusCode::BAD_GATEWAY, "never again"))));
    let by_handler = server.post("/act").key("k1").send().await;
    by_handler.ran(502);
    server.world.next(Script::answer((StatusCode::NOT_IMPLEMENTED, "by the route")));
    let by_route = server.post("/act").key("k2").send().await;
    by_route.ran(501);
    server.post("/act").key("k1").send().await.replays(&by_handler);
    server.post("/act").key("k2").send().await.replays(&by_route);
    assert_eq!(server.backend.states().await, ["failed", "failed"]);
    assert_eq!((server.world.runs(), server.backend.effects().await), (2, 0));
}

async fn a_reply_larger_than_the_limit_is_rolled_back<B: Backend>() {
    let settings = Settings { reply_limit: 1000, ..Settings::default() };
    let server = Server::<B>::start_with(Policy::new(), settings).await;
    // One body beyond the limit, and one that only its headers carry beyond it.
    for size in [1001, 990] {
        server.world.next(Script::answer("x".repeat(size)));
        server.post("/act").key("k").send().await.problem(500, "reply-too-large");
    }
    server.world.next(Script::answer(keep((StatusCode::PAYMENT_REQUIRED, "x".repeat(1001)))));
    server.post("/act").key("k").send().await.problem(500, "reply-too-large");
    let endless = futures_util::stream::repeat(Ok::<_, std::convert::Infallible>("x".repeat(100)));
    server.world.next(Script::answer(Body::from_stream(endless).into_response()));
    server.post("/act").key("k").send().await.problem(500, "reply-too-large");
    server.world.next(Script::answer((StatusCode::BAD_GATEWAY, "x".repeat(1001))));
    assert_eq!(server.post("/act").key("k").send().await.ran(502).body.len(), 1001);
    stays_new(&server, "/act").await;
}

async fn a_reply_that_breaks_off_is_rolled_back<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let frames = [Ok("half"), Err("the source is gone")];
    server.world.next(Script::answer(Body::from_stream(futures_util::stream::iter(frames)).into_response()));
    server.post("/act").key("k").send().await.problem(500, "internal-error");
    stays_new(&server, "/act").await;
}

async fn a_request_body_larger_than_the_limit_is_not_run<B: Backend>() {
    let server = Server::<B>::start(Policy::new().body_limit(1000)).await;
    let body = "x".repeat(1001);
    server.post("/act").key("k").body(body.clone()).send().await.problem(413, "body-too-large");
    server.post("/act").key("k").body(body).send_chunked().await.problem(413, "body-too-large");
    assert_eq!(server.world.runs(), 0);
    server.post("/act").key("k").body("x".repeat(1000)).send_chunked().await.ran(201);
}

crate::common::on_both_stores!(
    a_request_rejected_before_execution_began_leaves_the_key_new,
    a_4xx_before_the_first_statement_is_not_stored,
    a_2xx_or_3xx_commits_and_is_stored,
    binary_bodies_and_repeated_headers_replay_in_order_and_private_ones_do_not,
    a_2xx_from_a_handler_that_never_took_the_transaction_is_told_as_a_mistake,
    a_4xx_or_5xx_from_a_handler_that_never_took_the_transaction_passes,
    a_transaction_moved_into_a_task_commits_nothing_and_is_told_as_a_mistake,
    a_4xx_after_the_first_statement_rolls_the_effect_back_and_is_stored,
    a_4xx_that_the_handler_keeps_commits_its_effect,
    a_408_409_425_or_429_is_rolled_back_and_not_stored_even_if_kept,
    a_problem_of_the_layers_own_is_never_stored_even_as_a_4xx_after_a_statement,
    a_5xx_is_rolled_back_and_not_stored,
    a_panic_is_rolled_back_and_not_stored,
    a_run_past_the_deadline_is_rolled_back_and_not_stored,
    a_5xx_marked_terminal_is_rolled_back_and_stored_as_failed,
    a_reply_larger_than_the_limit_is_rolled_back,
    a_reply_that_breaks_off_is_rolled_back,
    a_request_body_larger_than_the_limit_is_not_run,
);
