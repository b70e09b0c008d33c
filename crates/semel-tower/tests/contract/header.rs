//! The contract's first table: what the `Idempotency-Key` header may hold.

use crate::common::{Backend, Server};
use http::Method;
use semel_tower::{Mode, Policy, Requirement};

async fn a_quoted_key_is_accepted_in_both_modes_and_its_parameters_are_ignored<B: Backend>() {
    for mode in [Mode::Strict, Mode::Lenient] {
        let server = Server::<B>::start(Policy::new().header_mode(mode)).await;
        let first = server.post("/act").key("\"k\"").send().await;
        first.ran(201);
        server.post("/act").key("\"k\";v=2;note=\"x\"").send().await.replays(&first);
        assert_eq!(server.backend.effects().await, 1);
    }
}

async fn a_bare_key_is_refused_when_strict<B: Backend>() {
    let server = Server::<B>::start(Policy::new().header_mode(Mode::Strict)).await;
    let problem = server.post("/act").key("k").send().await.problem(400, "key-invalid");
    assert!(problem["detail"].as_str().unwrap().contains("quoted string"), "{problem}");
    assert_eq!(server.world.runs(), 0);
}

async fn a_bare_key_is_the_same_key_as_the_quoted_one_when_lenient<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    let first = server.post("/act").key("k").send().await;
    first.ran(201);
    server.post("/act").key("\"k\"").send().await.replays(&first);
    assert_eq!(server.backend.effects().await, 1);
}

async fn a_missing_key_is_refused_where_it_is_required<B: Backend>() {
    for mode in [Mode::Strict, Mode::Lenient] {
        let server = Server::<B>::start(Policy::new().header_mode(mode)).await;
        for method in [Method::POST, Method::PATCH] {
            server.request(method, "/act").send().await.problem(400, "key-missing");
        }
        assert_eq!(server.world.runs(), 0);
    }
}

async fn a_malformed_key_is_refused_in_both_modes_and_nothing_runs<B: Backend>() {
    let long = "x".repeat(256);
    let long_quoted = format!("\"{long}\"");
    let malformed: [(&[u8], &str); 12] = [
        (b"", "empty"),
        (b"\"\"", "empty"),
        (long_quoted.as_bytes(), "256 characters"),
        (b"\"a b\"", "visible ASCII"),
        (b"a b", ""),
        (b"\xff", ""),
        ("\"é\"".as_bytes(), ""),
        (b"\"", "quoted"),
        (b"\"k", "quoted"),
        (b"k\"", "quot"),
        (b"\"k\"x", "quoted"),
        (b"\"a\", \"b\"", "quoted"),
    ];
    for mode in [Mode::Strict, Mode::Lenient] {
        let server = Server::<B>::start(Policy::new().header_mode(mode)).await;
        for (value, why) in malformed {
            let problem = server.post("/act").key(value).send().await.problem(400, "key-invalid");
            assert!(problem["detail"].as_str().unwrap().contains(why), "{value:?}: {problem}");
        }
        server.post("/act").key(&long).send().await.problem(400, "key-invalid");
        assert_eq!(server.world.runs(), 0);
        let longest = format!("\"{}\"", "x".repeat(255));
        server.post("/act").key(longest).send().await.ran(201);
    }
}

async fn the_header_twice_is_refused<B: Backend>() {
    for mode in [Mode::Strict, Mode::Lenient] {
        let server = Server::<B>::start(Policy::new().header_mode(mode)).await;
        let problem = server.post("/act").key("\"k\"").key("\"k\"").send().await.problem(400, "key-invalid");
        assert!(problem["detail"].as_str().unwrap().contains("2 times"), "{problem}");
        assert_eq!(server.world.runs(), 0);
    }
}

async fn a_key_on_a_method_that_ignores_keys_is_passed_through<B: Backend>() {
    for mode in [Mode::Strict, Mode::Lenient] {
        let server = Server::<B>::start(Policy::new().header_mode(mode)).await;
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE] {
            for key in ["\"k\"", "not a key"] {
                let answer = server.request(method.clone(), "/act").key(key).send().await;
                answer.ran(201);
            }
        }
        assert_eq!((server.world.runs(), server.world.unprotected()), (10, 10));
    }
}

async fn put_and_delete_are_protected_where_opted_in<B: Backend>() {
    let server = Server::<B>::start(Policy::new().methods([Method::PUT, Method::DELETE])).await;
    for method in [Method::PUT, Method::DELETE] {
        server.request(method.clone(), "/act").send().await.problem(400, "key-missing");
        let first = server.request(method.clone(), "/act").key("k").send().await;
        first.ran(201);
        server.request(method, "/act").key("k").send().await.replays(&first);
    }
    server.post("/act").send().await.ran(201);
    assert_eq!((server.backend.effects().await, server.world.unprotected()), (2, 1));
}

async fn post_and_patch_are_protected_by_default<B: Backend>() {
    let server = Server::<B>::start(Policy::new()).await;
    for method in [Method::POST, Method::PATCH] {
        let first = server.request(method.clone(), "/act").key("k").send().await;
        first.ran(201);
        server.request(method, "/act").key("k").send().await.replays(&first);
    }
    assert_eq!(server.backend.effects().await, 2);
}

async fn an_optional_key_protects_where_it_is_sent<B: Backend>() {
    let server = Server::<B>::start(Policy::new().requirement(Requirement::Optional)).await;
    let first = server.post("/act").key("k").send().await;
    server.post("/act").key("k").send().await.replays(&first);
    server.post("/act").send().await.ran(201);
    server.post("/act").key("\"").send().await.problem(400, "key-invalid");
    assert_eq!((server.backend.effects().await, server.world.unprotected()), (1, 1));
}

async fn a_route_that_is_off_ignores_keys<B: Backend>() {
    let server = Server::<B>::start(Policy::new().requirement(Requirement::Off)).await;
    for key in ["\"k\"", "\"k\"", "not a key"] {
        server.post("/act").key(key).send().await.ran(201);
    }
    assert_eq!(server.world.unprotected(), 3);
}

async fn a_key_below_the_routes_minimum_is_refused<B: Backend>() {
    let server = Server::<B>::start(Policy::new().min_key_length(8)).await;
    let problem = server.post("/act").key("1234567").send().await.problem(400, "key-invalid");
    assert!(problem["detail"].as_str().unwrap().contains("at least 8"), "{problem}");
    server.post("/act").key("12345678").send().await.ran(201);
}

crate::common::on_both_stores!(
    a_quoted_key_is_accepted_in_both_modes_and_its_parameters_are_ignored,
    a_bare_key_is_refused_when_strict,
    a_bare_key_is_the_same_key_as_the_quoted_one_when_lenient,
    a_missing_key_is_refused_where_it_is_required,
    a_malformed_key_is_refused_in_both_modes_and_nothing_runs,
    the_header_twice_is_refused,
    a_key_on_a_method_that_ignores_keys_is_passed_through,
    put_and_delete_are_protected_where_opted_in,
    post_and_patch_are_protected_by_default,
    an_optional_key_protects_where_it_is_sent,
    a_route_that_is_off_ignores_keys,
    a_key_below_the_routes_minimum_is_refused,
);
