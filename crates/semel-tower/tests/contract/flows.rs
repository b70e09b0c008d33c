//! Flows over HTTP: what a keyed request gets whose work outlives it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::script::World;
use crate::common::{Backend, Script, Server};
use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;
use metrics_exporter_prometheus::PrometheusBuilder;
use semel::flow::{self, Definition, Failed, FlowStore};
use semel::provider::{Call, Keys, Provider};
use semel::{Flow, Flows, Reply, Semel, Store};
use semel_tower::{FlowAnswer, FlowAsk, IdempotencyLayer, Policy, Problem, Tx};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// How long the flow `pauses` pauses.
const PAUSE: Duration = Duration::from_secs(3600);

/// One flow by its name, and routes that use the layer wrongly.
fn router<B: Backend<Store: FlowStore>>(semel: Semel<B::Store>, policy: Policy, world: &Arc<World>) -> Router {
    let somebody = Provider::http("somebody", Keys::None);
    let acts = Arc::clone(world);
    let renames = Arc::clone(world);
    let (declines, loses) = (somebody.clone(), somebody.clone());
    let flows = Flows::builder(semel.clone())
        .register(Definition::new("acts", move |flow, _: Value| acting::<B>(flow, Arc::clone(&acts))))
        .register(Definition::new("renames", move |flow, _: Value| renaming::<B>(flow, Arc::clone(&renames))))
        .register(Definition::new("dresses", |flow, _: Value| dressing::<B::Store>(flow)))
        .register(Definition::new("pauses", |flow, _: Value| pausing::<B::Store>(flow)))
        .register(
            Definition::new("declines", move |flow, _: Value| declining::<B::Store>(flow, declines.clone()))
                .calling([somebody.clone()]),
        )
        .register(
            Definition::new("loses", move |flow, _: Value| losing::<B::Store>(flow, loses.clone())).calling([somebody]),
        )
        .build()
        .unwrap();
    let layer = IdempotencyLayer::new(semel, policy).unwrap();
    let twice: Router<Flows<B::Store>> = Router::new().route("/twice", post(outside));
    let twice = twice.route_layer(layer.clone()).route_layer(layer.clone());
    Router::new()
        .route("/flow/{name}", post(run::<B::Store>))
        .route("/outside", post(outside))
        .route("/panics", post(panics))
        .route("/tx", post(needs_tx::<B>))
        .route_layer(layer)
        .route("/bare", post(bare))
        .merge(twice)
        .with_state(flows)
}

async fn start<B: Backend<Store: FlowStore>>(answer_within: Duration) -> Server<B> {
    let (backend, world) = (B::start().await, Arc::new(World::default()));
    let policy = Policy::new().operation("work").flow(answer_within);
    let router = router::<B>(Semel::new(backend.store()), policy, &world);
    Server::serve(backend, world, router).await
}

async fn run<S: FlowStore>(
    State(flows): State<Flows<S>>,
    Path(name): Path<String>,
    ask: FlowAsk,
    Json(input): Json<Value>,
) -> FlowAnswer {
    flows.run(&name, &ask, &input).await.into()
}

async fn outside() -> StatusCode {
    StatusCode::CREATED
}

async fn panics(_ask: FlowAsk) -> StatusCode {
    panic!("the handler panics");
}

async fn needs_tx<B: Backend>(_tx: Tx<B::Store>) -> StatusCode {
    StatusCode::CREATED
}

async fn bare(_ask: FlowAsk) -> StatusCode {
    StatusCode::CREATED
}

/// One effect, as the script says, and a reply that no two runs share.
async fn acting<B: Backend<Store: FlowStore>>(flow: Flow<B::Store>, world: Arc<World>) -> flow::Result<Reply> {
    let (script, run) = world.begin();
    flow.commit("act", async move |tx: &mut <B::Store as Store>::Tx| B::act(tx, "flow").await).await?;
    if let Some(hold) = script.hold {
        hold.stop().await;
    }
    let answer = json!({ "run": run });
    flow.finish(async move |_: &mut <B::Store as Store>::Tx| Ok::<_, flow::Error>(Reply::json(201, &answer)?)).await
}

/// A reply with headers that belong to one client, one connection or one moment, and one that belongs to it.
async fn dressing<S: FlowStore>(_flow: Flow<S>) -> flow::Result<Reply> {
    let mut reply = Reply::json(201, "dressed")?;
    for (name, value) in [
        ("Set-Cookie", "session=1"),
        ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("content-length", "3"),
        ("connection", "close"),
        ("idempotent-replayed", "true"),
        ("x-cost", "1"),
    ] {
        reply = reply.header(name, value)?;
    }
    Ok(reply)
}

/// The second version of it knows the step by another name.
async fn renaming<B: Backend<Store: FlowStore>>(flow: Flow<B::Store>, world: Arc<World>) -> flow::Result<Reply> {
    let (_, run) = world.begin();
    let step = if run == 2 { "renamed" } else { "act" };
    flow.commit(step, async move |tx: &mut <B::Store as Store>::Tx| B::act(tx, "flow").await).await?;
    if run == 1 {
        return Err(flow::Error::retry("not today"));
    }
    Ok(Reply::json(201, "renamed")?)
}

async fn pausing<S: FlowStore>(flow: Flow<S>) -> flow::Result<Reply> {
    flow.sleep_until("pause", SystemTime::now() + PAUSE).await?;
    Ok(Reply::json(201, "slept")?)
}

async fn declining<S: FlowStore>(flow: Flow<S>, somebody: Provider) -> flow::Result<Reply> {
    let called = flow.call("call", &somebody, |_: Call| async { Err::<Value, Failed>(Failed::terminal("no")) }).await;
    let problem = Problem::new(StatusCode::PAYMENT_REQUIRED, "declined", "they said no");
    let answer = called.map_err(|error| error.replying(problem.reply().unwrap()))?;
    Ok(Reply::json(201, &answer)?)
}

async fn losing<S: FlowStore>(flow: Flow<S>, somebody: Provider) -> flow::Result<Reply> {
    let lost = |_: Call| async { Err::<Value, Failed>(Failed::unknown("the connection broke")) };
    let answer = flow.call("call", &somebody, lost).await?;
    Ok(Reply::json(201, &answer)?)
}

async fn a_flow_completes_its_key_and_replays<B: Backend<Store: FlowStore>>() {
    let server = start::<B>(LONG).await;
    let first = server.post("/flow/acts").key("k").send().await;
    first.ran(201);
    server.post("/flow/acts").key("\"k\"").send().await.replays(&first);
    server.post("/flow/acts").key("k").body("{\"amount\":2}").send().await.problem(422, "key-reused");
    server.post("/flow/acts").token("b1").key("k").send().await.ran(201);
    assert_eq!(server.backend.states().await, ["completed", "completed"]);
    assert_eq!((server.world.runs(), server.backend.effects().await), (2, 2));
}

async fn a_flow_under_way_is_answered_409_with_retry_after<B: Backend<Store: FlowStore>>() {
    let server = start::<B>(LONG).await;
    let (script, held) = Script::held();
    server.world.next(script);
    let running = tokio::spawn(server.post("/flow/acts").key("k").send());
    held.reached.await.unwrap();
    let answer = server.post("/flow/acts").key("k").send().await;
    answer.problem(409, "key-in-flight");
    assert!((1..=30).contains(&answer.retry_after()));
    server.post("/flow/acts").key("k").body("{\"amount\":2}").send().await.problem(422, "key-reused");
    held.release.send(()).unwrap();
    running.await.unwrap().ran(201);
    assert_eq!(server.world.runs(), 1);
}

async fn a_flow_that_pauses_is_answered_409_until_its_pause_is_over<B: Backend<Store: FlowStore>>() {
    let server = start::<B>(LONG).await;
    for _ in 0..2 {
        let answer = server.post("/flow/pauses").key("k").send().await;
        answer.problem(409, "key-in-flight");
        assert!((PAUSE.as_secs() - 60..=PAUSE.as_secs()).contains(&answer.retry_after()), "{answer:?}");
    }
    assert_eq!(server.backend.states().await, ["in_progress"]);
}

async fn a_flow_that_failed_for_good_is_replayed_verbatim<B: Backend<Store: FlowStore>>() {
    let server = start::<B>(LONG).await;
    let first = server.post("/flow/declines").key("k").send().await;
    first.ran(402).problem(402, "declined");
    server.post("/flow/declines").key("k").send().await.replays(&first);
    assert_eq!(server.backend.states().await, ["failed"]);
}

async fn a_flows_reply_cannot_carry_what_is_never_stored<B: Backend<Store: FlowStore>>() {
    let server = start::<B>(LONG).await;
    let first = server.post("/flow/dresses").key("k").send().await;
    first.ran(201);
    let again = server.post("/flow/dresses").key("k").send().await;
    again.replays(&first);
    for answer in [first, again] {
        assert_eq!((&answer.body[..], &answer.headers["x-cost"]), (&b"\"dressed\""[..], &"1".parse().unwrap()));
        assert!(!answer.headers.contains_key("set-cookie") && !answer.headers.contains_key("connection"), "{answer:?}");
        let date = answer.headers.get_all("date").iter().collect::<Vec<_>>();
        assert!(date.len() == 1 && !date[0].to_str().unwrap().contains("1970"), "{answer:?}");
        assert_eq!(answer.headers.get_all("content-length").iter().count(), 1);
    }
}

async fn a_flow_that_is_held_is_answered_outcome_unknown<B: Backend<Store: FlowStore>>() {
    let server = start::<B>(LONG).await;
    for _ in 0..2 {
        server.post("/flow/loses").key("k").send().await.problem(409, "outcome-unknown");
    }
    server.post("/flow/loses").key("k").body("{\"amount\":2}").send().await.problem(422, "key-reused");
    assert_eq!(server.backend.states().await, ["unknown"]);
}

async fn a_flow_that_does_not_fit_the_code_is_answered_500_and_goes_on_once_it_does<B: Backend<Store: FlowStore>>() {
    let server = start::<B>(LONG).await;
    let parked = server.post("/flow/renames").key("k").send().await;
    parked.problem(409, "key-in-flight");
    assert_eq!(parked.retry_after(), 1);
    server.backend.expire_leases().await;
    server.post("/flow/renames").key("k").send().await.problem(500, "flow-changed");
    server.post("/flow/renames").key("k").send().await.problem(409, "key-in-flight");
    server.backend.expire_leases().await;
    let last = server.post("/flow/renames").key("k").send().await;
    last.ran(201);
    server.post("/flow/renames").key("k").send().await.replays(&last);
    assert_eq!((server.world.runs(), server.backend.effects().await), (3, 1));
    server.post("/flow/nowhere").key("n").send().await.problem(500, "flow-changed");
}

async fn an_abandoned_flow_is_resumed_by_the_clients_retry<B: Backend<Store: FlowStore>>() {
    let server = start::<B>(LONG).await;
    let (script, held) = Script::held();
    server.world.next(script);
    let late = tokio::spawn(server.post("/flow/acts").key("k").send());
    held.reached.await.unwrap();
    server.backend.expire_leases().await;
    let second = server.post("/flow/acts").key("k").send().await;
    second.ran(201);
    held.release.send(()).unwrap();
    late.await.unwrap().problem(409, "key-in-flight");
    server.post("/flow/acts").key("k").send().await.replays(&second);
    assert_eq!((server.world.runs(), server.backend.effects().await), (2, 1));
}

async fn without_the_store_no_flow_begins<B: Backend<Store: FlowStore>>() {
    let mut server = start::<B>(LONG).await;
    server.backend.break_off().await;
    let answer = server.post("/flow/acts").key("k").send().await;
    answer.problem(503, "store-unavailable");
    assert!(answer.retry_after() >= 1);
    server.backend.mend().await;
    assert_eq!(server.world.runs(), 0);
    server.post("/flow/acts").key("k").send().await.ran(201);
}

async fn what_a_handler_refuses_before_its_flow_leaves_the_key_new<B: Backend<Store: FlowStore>>() {
    let server = start::<B>(LONG).await;
    server.post("/flow/acts").key("k").body("{").send().await.ran(400);
    server.post("/flow/acts").send().await.problem(400, "key-missing");
    server.post("/flow/acts").key("a b").send().await.problem(400, "key-invalid");
    server.post("/panics").key("k").send().await.problem(500, "internal-error");
    assert!(server.backend.states().await.is_empty());
    server.post("/flow/acts").key("k").send().await.ran(201);
}

async fn success_without_a_flow_is_told_as_a_mistake<B: Backend<Store: FlowStore>>() {
    let server = start::<B>(LONG).await;
    server.post("/outside").key("k").send().await.problem(500, "effect-outside");
    for (path, why) in [("/tx", "FlowAsk instead of Tx"), ("/bare", "Policy::flow"), ("/twice", "stands twice")] {
        let problem = server.post(path).key("k").send().await.problem(500, "internal-error");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{path}: {problem}");
    }
    assert!(server.backend.states().await.is_empty());
}

async fn a_flow_that_takes_too_long_goes_on_without_its_request<B: Backend<Store: FlowStore>>() {
    let server = start::<B>(Duration::from_millis(200)).await;
    let (script, held) = Script::held();
    server.world.next(script);
    server.post("/flow/acts").key("k").send().await.problem(409, "key-in-flight");
    held.reached.await.unwrap();
    held.release.send(()).unwrap();
    let retry = server.post_until_settled("/flow/acts").await;
    assert!(retry.replayed() && retry.status == StatusCode::CREATED, "{retry:?}");
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn a_client_that_disconnects_does_not_stop_its_flow<B: Backend<Store: FlowStore>>() {
    let server = start::<B>(LONG).await;
    let (script, held) = Script::held();
    server.world.next(script);
    let mut connection = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let request = "POST /flow/acts HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a1\r\nidempotency-key: k\r\n\
                   content-type: application/json\r\ncontent-length: 12\r\n\r\n{\"amount\":1}";
    connection.write_all(request.as_bytes()).await.unwrap();
    held.reached.await.unwrap();
    drop(connection);
    server.dropped().await;
    held.release.send(()).unwrap();
    let retry = server.post_until_settled("/flow/acts").await;
    assert!(retry.replayed() && retry.status == StatusCode::CREATED, "{retry:?}");
    assert_eq!((server.world.runs(), server.backend.effects().await), (1, 1));
}

async fn each_request_of_a_flow_is_counted_once_by_its_outcome<B: Backend<Store: FlowStore>>() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let mut server = start::<B>(LONG).await;
    server.post("/flow/acts").key("k").send().await.ran(201);
    assert!(server.post("/flow/acts").key("k").send().await.replayed());
    server.post("/flow/acts").key("k").body("{}").send().await.problem(422, "key-reused");
    server.post("/flow/acts").send().await.problem(400, "key-missing");
    server.post("/flow/acts").key("\"").send().await.problem(400, "key-invalid");
    server.post("/flow/declines").key("declined").send().await.ran(402);
    server.post("/flow/loses").key("lost").send().await.problem(409, "outcome-unknown");
    server.post("/flow/pauses").key("paused").send().await.problem(409, "key-in-flight");
    server.post("/flow/acts").key("broken").body("{").send().await.ran(400);
    server.post("/outside").key("outside").send().await.problem(500, "effect-outside");
    server.backend.break_off().await;
    server.post("/flow/acts").key("away").send().await.problem(503, "store-unavailable");
    server.backend.mend().await;

    let rendered = metrics.render();
    let mut counted: Vec<&str> =
        rendered.lines().filter(|line| line.starts_with("semel_key_requests_total{")).collect();
    counted.sort_unstable();
    let line = |outcome: &str, count: u32| {
        format!("semel_key_requests_total{{operation=\"work\",outcome=\"{outcome}\"}} {count}")
    };
    let expected = [
        line("fresh", 2),
        line("in_flight", 2),
        line("invalid", 1),
        line("mismatch", 1),
        line("missing", 1),
        line("replayed", 1),
        line("rolled_back", 2),
        line("unavailable", 1),
    ];
    assert_eq!(counted, expected);
}

crate::common::on_both_stores!(
    a_flow_completes_its_key_and_replays,
    a_flow_under_way_is_answered_409_with_retry_after,
    a_flow_that_pauses_is_answered_409_until_its_pause_is_over,
    a_flow_that_failed_for_good_is_replayed_verbatim,
    a_flows_reply_cannot_carry_what_is_never_stored,
    a_flow_that_is_held_is_answered_outcome_unknown,
    a_flow_that_does_not_fit_the_code_is_answered_500_and_goes_on_once_it_does,
    an_abandoned_flow_is_resumed_by_the_clients_retry,
    without_the_store_no_flow_begins,
    what_a_handler_refuses_before_its_flow_leaves_the_key_new,
    success_without_a_flow_is_told_as_a_mistake,
    a_flow_that_takes_too_long_goes_on_without_its_request,
    a_client_that_disconnects_does_not_stop_its_flow,
    each_request_of_a_flow_is_counted_once_by_its_outcome,
);
