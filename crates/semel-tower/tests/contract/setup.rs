//! Mistakes in setting the layer up are told at once; the policy is published and requests are counted.

use crate::common::{Backend, Script, Server};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use metrics_exporter_prometheus::PrometheusBuilder;
use semel::Semel;
use semel_tower::{IdempotencyLayer, Leased, Policy, Principal, Problem, Requirement, Tx};
use tower::ServiceExt;

async fn a_request_without_a_principal_is_refused<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let problem = server.post("/act").token("anonymous").key("k").send().await.problem(500, "internal-error");
    assert!(problem["detail"].as_str().unwrap().contains("inside the authentication"), "{problem}");
    assert_eq!(server.world.runs(), 0);
}

async fn a_transaction_taken_wrongly_is_told_as_a_mistake<B: Backend>() {
    let every_5xx = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::SERVICE_UNAVAILABLE];
    let server = Server::<B>::start(Policy::new().terminal(every_5xx)).await;
    for (path, why) in [
        ("/twice", "taken twice"),
        ("/bare", "outside a protected request"),
        ("/two-stores", "another store"),
        ("/leased", "does not lease"),
    ] {
        let problem = server.post(path).key("k").send().await.problem(500, "internal-error");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{path}: {problem}");
    }
    assert!(server.backend.states().await.is_empty(), "a mistake is never stored");
}

async fn a_transaction_taken_on_a_leased_route_is_told_as_a_mistake<B: Backend>() {
    let leased = Leased::new(std::time::Duration::from_secs(30));
    let server = Server::<B>::start(Policy::new().leased(leased)).await;
    let problem = server.post("/json").key("k").send().await.problem(500, "internal-error");
    assert!(problem["detail"].as_str().unwrap().contains("LeaseHandle"), "{problem}");
    assert!(server.backend.states().await.is_empty(), "a mistake leaves the key new");
}

async fn the_layer_twice_on_a_route_is_told_as_a_mistake<B: Backend>() {
    let backend = B::start().await;
    let layer = IdempotencyLayer::new(Semel::new(backend.store()), Policy::new()).unwrap();
    let inside = Router::new().route("/act", post(needs_tx::<B>)).route_layer(layer.clone());
    let answer = send(inside.layer(layer), "/act").await;
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text(answer).await.contains("stands twice"));
    assert!(backend.states().await.is_empty());
}

async fn a_nested_route_is_told_apart_by_the_target_that_the_client_sent<B: Backend>() {
    let backend = B::start().await;
    let layer = IdempotencyLayer::new(Semel::new(backend.store()), Policy::new().operation("act")).unwrap();
    let inside = Router::new().route("/act", post(needs_tx::<B>)).route_layer(layer);
    let router = Router::new().nest("/v1", inside.clone()).nest("/v2", inside);
    assert_eq!(send(router.clone(), "/v1/act").await.status(), StatusCode::CREATED);
    let reused = send(router.clone(), "/v2/act").await;
    assert_eq!(reused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(send(router, "/v1/act").await.headers().contains_key("idempotent-replayed"));
}

async fn a_path_that_no_route_matches_is_still_not_found<B: Backend>() {
    let backend = B::start().await;
    let layer = IdempotencyLayer::new(Semel::new(backend.store()), Policy::new()).unwrap();
    let router = Router::new().route("/act", post(needs_tx::<B>)).layer(layer);
    for path in ["/nowhere", "/elsewhere", "/nowhere"] {
        assert_eq!(send(router.clone(), path).await.status(), StatusCode::NOT_FOUND);
    }
    assert!(backend.states().await.is_empty());
}

async fn needs_tx<B: Backend>(mut tx: Tx<B::Store>) -> Result<StatusCode, Problem> {
    B::act(&mut tx, "needs").await?;
    Ok(StatusCode::CREATED)
}

/// Sends a keyed request of tenant `a` straight into a router.
async fn send(router: Router, path: &str) -> Response {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().unwrap();
    request.headers_mut().insert("idempotency-key", "k".parse().unwrap());
    request.extensions_mut().insert(Principal::new("a"));
    router.oneshot(request).await.unwrap()
}

async fn text(answer: Response) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

async fn the_published_policy_says_what_runs<B: Backend>() {
    let server = Server::<B>::start(Policy::new().min_key_length(8).methods([Method::POST])).await;
    let answer = server.request(Method::GET, "/idempotency-policy").send().await;
    assert_eq!((answer.status.as_u16(), &answer.headers["content-type"]), (200, &"application/json".parse().unwrap()));
    let document: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(document["header"], "Idempotency-Key");
    assert_eq!(document["retention_seconds"], 86400.0);
    let route = &document["routes"][0];
    assert_eq!(route["methods"], serde_json::json!(["POST"]));
    assert_eq!((&route["header_mode"], &route["min_key_characters"]), (&"lenient".into(), &8.into()));
    assert!(document["fingerprint"]["json"].as_str().unwrap().contains("RFC 8785"));
    assert!(document["stored_replies"]["408, 409, 425, 429"].as_str().unwrap().contains("not stored"));
}

async fn each_protected_request_is_counted_once_by_its_outcome<B: Backend>() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let policy = Policy::new().operation("charges.create").requirement(Requirement::Required);
    let mut server = Server::<B>::start(policy).await;

    server.post("/act").key("k").send().await.ran(201);
    assert!(server.post("/act").key("k").send().await.replayed());
    server.post("/act").key("k").body("{}").send().await.problem(422, "key-reused");
    server.post("/act").send().await.problem(400, "key-missing");
    server.post("/act").key("\"").send().await.problem(400, "key-invalid");
    server.world.next(Script::answer(StatusCode::BAD_GATEWAY));
    server.post("/act").key("k2").send().await.ran(502);
    let (script, held) = Script::held();
    server.world.next(script);
    let running = tokio::spawn(server.post("/act").key("k3").send());
    held.reached.await.unwrap();
    server.post("/act").key("k3").send().await.problem(409, "key-in-flight");
    held.release.send(()).unwrap();
    running.await.unwrap().ran(201);
    server.request(Method::GET, "/act").key("k").send().await.ran(201);
    server.backend.break_off().await;
    server.post("/act").key("k4").send().await.problem(503, "store-unavailable");
    server.backend.mend().await;

    let rendered = metrics.render();
    let mut counted: Vec<&str> =
        rendered.lines().filter(|line| line.starts_with("semel_key_requests_total{")).collect();
    counted.sort_unstable();
    let line = |outcome: &str, count: u32| {
        format!("semel_key_requests_total{{operation=\"charges.create\",outcome=\"{outcome}\"}} {count}")
    };
    let expected = [
        line("fresh", 2),
        line("in_flight", 1),
        line("invalid", 1),
        line("mismatch", 1),
        line("missing", 1),
        line("replayed", 1),
        line("rolled_back", 1),
        line("unavailable", 1),
    ];
    assert_eq!(counted, expected);
}

async fn a_request_without_a_key_where_none_is_needed_is_not_counted_even_if_refused<B: Backend>() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let policy = Policy::new().operation("charges.create").requirement(Requirement::Optional).authorise(|parts| {
        let allowed = parts.headers.contains_key("x-allowed");
        Box::pin(async move { if allowed { Ok(()) } else { Err(StatusCode::FORBIDDEN.into_response()) } })
    });
    let server = Server::<B>::start(policy).await;
    server.post("/act").send().await.ran(403);
    server.post("/act").header("x-allowed", "1").send().await.ran(201);
    assert!(!metrics.render().contains("semel_key_requests_total{"), "{}", metrics.render());
    server.post("/act").key("k").send().await.ran(403);
    let counted = "semel_key_requests_total{operation=\"charges.create\",outcome=\"rolled_back\"} 1";
    assert!(metrics.render().contains(counted), "{}", metrics.render());
}

async fn how_long_a_lease_took_is_recorded_as_a_claim<B: Backend>() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let server = Server::<B>::start(Policy::new().leased(Leased::new(std::time::Duration::from_secs(30)))).await;
    server.post("/leased").key("k").send().await.ran(201);
    assert!(server.post("/leased").key("k").send().await.replayed());
    assert!(metrics.render().contains("semel_claim_seconds_count 2"), "{}", metrics.render());
}

crate::common::on_both_stores!(
    a_request_without_a_principal_is_refused,
    a_transaction_taken_wrongly_is_told_as_a_mistake,
    a_transaction_taken_on_a_leased_route_is_told_as_a_mistake,
    the_layer_twice_on_a_route_is_told_as_a_mistake,
    a_nested_route_is_told_apart_by_the_target_that_the_client_sent,
    a_path_that_no_route_matches_is_still_not_found,
    the_published_policy_says_what_runs,
    each_protected_request_is_counted_once_by_its_outcome,
    a_request_without_a_key_where_none_is_needed_is_not_counted_even_if_refused,
    how_long_a_lease_took_is_recorded_as_a_claim,
);
