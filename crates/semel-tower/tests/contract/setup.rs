//! Mistakes in setting the layer up are told at once; the policy is published and requests are counted.

use crate::common::{Backend, Script, Server};
use http::{Method, StatusCode};
use metrics_exporter_prometheus::PrometheusBuilder;
use semel_tower::{Leased, Policy, Requirement};

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

crate::common::on_both_stores!(
    a_request_without_a_principal_is_refused,
    a_transaction_taken_wrongly_is_told_as_a_mistake,
    a_transaction_taken_on_a_leased_route_is_told_as_a_mistake,
    the_published_policy_says_what_runs,
    each_protected_request_is_counted_once_by_its_outcome,
);
