//! The tier in Redis: whatever becomes of it, it says maybe or nothing.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::{Duration, Instant};

use semel::Consumer;
use semel::tier::Tier;
use semel_brokers::redis::RedisTier;
use semel_testkit::broker::server_url;
use semel_testkit::poll::until;
use semel_testkit::redis::{Redis, RedisRecipe};

async fn order(url: &str, words: &[&str]) {
    let mut connection = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    redis::cmd(words[0]).arg(&words[1..]).exec_async(&mut connection).await.unwrap();
}

/// A tier that waits long enough for an answer on a busy machine.
async fn patient(url: &str) -> RedisTier {
    let prefix = uuid::Uuid::new_v4().simple();
    RedisTier::connect(&format!("{url}?prefix={prefix}&answer_ms=10000")).await.unwrap()
}

#[tokio::test]
async fn what_was_noted_may_have_been_seen_by_that_consumer_in_that_generation() {
    let tier = patient(&server_url::<RedisRecipe>()).await;
    let [one, other] = ["one", "other"].map(|name| Consumer::new(name).unwrap());
    tier.note(&one, &["a", "b"]).await;
    assert_eq!(tier.maybe_seen(&one, &["a", "c", "b"]).await, [true, false, true]);
    assert_eq!(tier.maybe_seen(&other, &["a", "b"]).await, [false, false]);
    assert_eq!(tier.maybe_seen(&one.clone().in_generation(1), &["a", "b"]).await, [false, false]);
    assert!(tier.maybe_seen(&one, &[]).await.is_empty());
    assert_eq!(tier.troubles(), 0);
}

#[tokio::test]
async fn a_flushed_tier_has_seen_nothing_and_a_lying_one_says_maybe() {
    let server = Redis::temporary().unwrap();
    let tier = patient(&server.url()).await;
    let consumer = Consumer::new("c").unwrap();
    tier.note(&consumer, &["a"]).await;
    order(&server.url(), &["FLUSHALL"]).await;
    assert_eq!(tier.maybe_seen(&consumer, &["a"]).await, [false]);

    let lying = RedisTier::connect(&format!("{}?prefix=p&answer_ms=10000", server.url())).await.unwrap();
    order(&server.url(), &["SET", "p:0:1:c:never", "a lie"]).await;
    assert_eq!(lying.maybe_seen(&consumer, &["never", "a"]).await, [true, false]);
    order(&server.url(), &["LPUSH", "p:0:1:c:list", "no text"]).await;
    assert_eq!(lying.maybe_seen(&consumer, &["list"]).await, [false]);
    assert_eq!(lying.troubles(), 0);
}

#[tokio::test]
async fn a_tier_that_is_gone_says_no_at_once_and_is_asked_again_when_it_is_back() {
    let mut server = Redis::temporary().unwrap();
    let tier = patient(&server.url()).await;
    let consumer = Consumer::new("c").unwrap();
    tier.note(&consumer, &["a"]).await;
    assert_eq!(tier.maybe_seen(&consumer, &["a"]).await, [true]);
    server.kill().unwrap();
    // The first may find a broken connection; nobody waits for the next ones.
    assert_eq!(tier.maybe_seen(&consumer, &["a"]).await, [false]);
    assert!(tier.troubles() >= 1);
    let asked = Instant::now();
    for _ in 0..1000 {
        assert_eq!(tier.maybe_seen(&consumer, &["a", "b"]).await, [false, false]);
        tier.note(&consumer, &["c"]).await;
    }
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    server.restart().unwrap();
    until("the tier answers again", async || tier.maybe_seen(&consumer, &["a"]).await == [true]).await;
}

#[tokio::test]
async fn a_server_that_accepts_and_never_answers_costs_little() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/0?timeout_ms=200", silent.local_addr().unwrap());
    let tier = RedisTier::connect(&url).await.unwrap();
    assert_eq!(tier.troubles(), 1);
    let consumer = Consumer::new("c").unwrap();
    let asked = Instant::now();
    for _ in 0..1000 {
        assert_eq!(tier.maybe_seen(&consumer, &["a"]).await, [false]);
    }
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_server_that_is_stopped_costs_one_timeout_and_then_nothing() {
    let server = Redis::temporary().unwrap();
    let tier = RedisTier::connect(&format!("{}?answer_ms=100", server.url())).await.unwrap();
    let consumer = Consumer::new("c").unwrap();
    order(&server.url(), &["CLIENT", "PAUSE", "60000", "ALL"]).await;
    let asked = Instant::now();
    assert_eq!(tier.maybe_seen(&consumer, &["a"]).await, [false]);
    assert!(asked.elapsed() >= Duration::from_millis(100), "{:?}", asked.elapsed());
    let asked = Instant::now();
    for _ in 0..1000 {
        assert_eq!(tier.maybe_seen(&consumer, &["a"]).await, [false]);
    }
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(tier.troubles(), 1);
}

#[tokio::test]
async fn an_id_is_forgotten_after_its_time() {
    let url = server_url::<RedisRecipe>();
    let prefix = uuid::Uuid::new_v4().simple().to_string();
    let tier = RedisTier::connect(&format!("{url}?prefix={prefix}&ttl=1s&answer_ms=10000")).await.unwrap();
    let consumer = Consumer::new("c").unwrap();
    tier.note(&consumer, &["a"]).await;
    assert_eq!(tier.maybe_seen(&consumer, &["a"]).await, [true]);
    until("it is forgotten", async || tier.maybe_seen(&consumer, &["a"]).await == [false]).await;
}

#[tokio::test]
async fn a_tiers_url_is_checked_and_its_password_is_shown_nowhere() {
    for url in ["redis://u:hidden@127.0.0.1:1/0?ttl=0s", "redis://u:hidden@127.0.0.1:1/0?maxlen=1"] {
        let error = RedisTier::connect(url).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hidden"), "{error:?}");
    }
    let tier = RedisTier::connect("redis://u:hidden@127.0.0.1:1/0").await.unwrap();
    assert!(!format!("{tier:?}").contains("hidden"));
}
