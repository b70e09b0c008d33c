//! Processes are started, stopped, continued and killed as told; the naive control doubles.
#![allow(clippy::unwrap_used, missing_docs)]

use std::net::SocketAddr;
use std::time::Duration;

use semel_testkit::control::Control;
use semel_testkit::database::TempDatabase;
use semel_testkit::process::Service;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const NAIVE: &str = env!("CARGO_BIN_EXE_naive");

async fn charge(address: SocketAddr, key: String) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = r#"{"amount":5}"#;
    let request = format!(
        "POST /charges HTTP/1.1\r\nHost: {address}\r\nIdempotency-Key: {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    answer
}

#[tokio::test]
async fn the_naive_control_doubles_under_a_race_and_replays_in_sequence() {
    let database = TempDatabase::create().await;
    let url = database.url();
    let services = [Service::spawn(NAIVE, &[&url], &[]).await, Service::spawn(NAIVE, &[&url], &[]).await];

    let first = charge(services[0].address(), "calm".into()).await;
    let second = charge(services[1].address(), "calm".into()).await;
    assert_eq!(first.lines().last(), second.lines().last());

    let mut racing = tokio::task::JoinSet::new();
    for round in 0..20 {
        for service in services.iter().cycle().take(16) {
            racing.spawn(charge(service.address(), format!("race-{round}")));
        }
    }
    racing.join_all().await;
    let doubled = "SELECT count(*) FROM (SELECT key FROM naive_charges GROUP BY key HAVING count(*) > 1) doubled";
    let doubled: i64 = database.connect().await.query_one(doubled, &[]).await.unwrap().get(0);
    assert!(doubled > 0, "check-then-insert did not double once");
}

#[test]
fn other_crates_find_the_control() {
    assert_eq!(semel_testkit::naive::binary(), std::path::Path::new(NAIVE));
}

#[tokio::test]
async fn a_stopped_process_answers_only_after_it_continues() {
    let database = TempDatabase::create().await;
    let mut service = Service::spawn(NAIVE, &[&database.url()], &[]).await;
    charge(service.address(), "before".into()).await;
    service.stop().await;
    let answer = charge(service.address(), "during".into());
    tokio::pin!(answer);
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut answer).await.is_err());
    service.cont();
    answer.await;
    assert!(!service.terminate().await.success());
}

#[tokio::test]
async fn a_killed_process_is_gone_when_the_kill_returns() {
    let database = TempDatabase::create().await;
    let mut service = Service::spawn(NAIVE, &[&database.url()], &[]).await;
    service.kill9().await;
    assert!(TcpStream::connect(service.address()).await.is_err());
}

#[tokio::test]
async fn a_process_that_cannot_start_tells_why_at_once() {
    let output = Service::try_spawn(NAIVE, &["postgres://127.0.0.1:1/none"], &[]).await.unwrap_err();
    assert!(output.contains("naive could not start"), "{output}");
}

#[tokio::test]
async fn a_parked_process_goes_on_when_released() {
    let mut control = Control::listen().await;
    let address = control.address();
    let process = tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"claimed\n").await.unwrap();
        stream.read_u8().await.unwrap()
    });
    let other = TcpStream::connect(address).await.unwrap();
    other.writable().await.unwrap();
    other.try_write(b"parsed\n").unwrap();
    let parked = control.reached("claimed", Duration::from_secs(10)).await;
    assert_eq!(control.reached("parsed", Duration::from_secs(10)).await.point(), "parsed");
    parked.release().await;
    process.await.unwrap();
}

#[tokio::test]
#[should_panic(expected = "`claimed` was not reached")]
async fn a_point_that_is_not_reached_fails_the_test() {
    Control::listen().await.reached("claimed", Duration::from_millis(50)).await;
}
