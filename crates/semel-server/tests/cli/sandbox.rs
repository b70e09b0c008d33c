//! `semel sandbox`.

use std::time::{Duration, Instant};

use semel_testkit::process::Service;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Home, SEMEL, Sandbox, charge_body, on_both_stores, semel, semel_with};

on_both_stores!(
    a_charge_is_answered_and_its_retry_is_replayed,
    a_signal_lets_the_request_in_flight_finish,
    a_restart_replays_what_the_earlier_process_committed,
    a_request_that_does_not_end_is_cut_off_after_the_deadline,
    logs_are_lines_of_json_without_keys_and_bodies,
    sealed_replies_survive_a_rotation_and_a_key_they_need_cannot_be_left_out,
);

async fn a_charge_is_answered_and_its_retry_is_replayed(home: Home) {
    let sandbox = Sandbox::start(&home).await;
    sandbox.open_account("alice").await;
    let first = sandbox.charge("order-1").await;
    assert_eq!(first.status(), 201);
    let first = first.bytes().await.unwrap();
    let second = sandbox.charge("order-1").await;
    assert_eq!(second.status(), 201);
    assert_eq!(second.headers()["idempotent-replayed"], "true");
    assert_eq!(second.bytes().await.unwrap(), first);
    assert_eq!(sandbox.balance("alice").await, 500);
}

async fn a_restart_replays_what_the_earlier_process_committed(home: Home) {
    let mut sandbox = Sandbox::start(&home).await;
    sandbox.open_account("alice").await;
    let first = sandbox.charge("order-1").await.bytes().await.unwrap();
    sandbox.service.kill9().await;
    let sandbox = Sandbox::start(&home).await;
    assert_eq!(sandbox.charge("order-1").await.bytes().await.unwrap(), first);
    assert_eq!(sandbox.balance("alice").await, 500);
}

/// Sends a request's head and returns when the server has begun to read its body: from then on it is in flight.
async fn half_sent(sandbox: &Sandbox, target: &str, body: &str) -> TcpStream {
    let address = sandbox.service.address();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{target} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer demo-a1\r\nIdempotency-Key: \"order-1\"\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut continued = [0; 25];
    stream.read_exact(&mut continued).await.unwrap();
    assert_eq!(&continued, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

async fn a_request_that_does_not_end_is_cut_off_after_the_deadline(home: Home) {
    let mut sandbox = Sandbox::start_with(&home, &[("SEMEL_TRANSACTION_DEADLINE", "500ms")]).await;
    let mut stream = half_sent(&sandbox, "PUT /accounts/alice", "never sent").await;
    let started = Instant::now();
    assert!(sandbox.service.terminate().await.success());
    assert!(started.elapsed() >= Duration::from_millis(500), "it was given its time");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert!(!matches!(stream.read(&mut [0]).await, Ok(1..)));
    sandbox.output_with("still in flight").await;
}

async fn sealed_replies_survive_a_rotation_and_a_key_they_need_cannot_be_left_out(home: Home) {
    let old = "old:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    let both = format!("new:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=,{old}");
    let mut sandbox = Sandbox::start_with(&home, &[("SEMEL_REPLY_KEYS", old)]).await;
    sandbox.open_account("alice").await;
    let first = sandbox.charge("order-1").await.bytes().await.unwrap();
    assert!(sandbox.service.terminate().await.success());

    let arguments = ["sandbox", "--listen", "127.0.0.1:0", "--database-url", &home.url()];
    let stderr = semel(&arguments).failed_with(1);
    assert!(stderr.contains("\"old\""), "{stderr}");

    let sandbox = Sandbox::start_with(&home, &[("SEMEL_REPLY_KEYS", &both)]).await;
    assert_eq!(sandbox.charge("order-1").await.bytes().await.unwrap(), first);
    assert_eq!(sandbox.charge("order-2").await.status(), 201);
    let listed = semel(&["keys", "list", "--json", "--database-url", &home.url()]).succeeded();
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed[0]["sealed_by"], &listed[1]["sealed_by"]), (&"new".into(), &"old".into()));
    assert!(!sandbox.service.output().contains("AgICAgI"));
}

async fn a_signal_lets_the_request_in_flight_finish(home: Home) {
    let mut sandbox = Sandbox::start(&home).await;
    sandbox.open_account("alice").await;
    let address = sandbox.service.address();
    let body = charge_body().to_string();
    let mut stream = half_sent(&sandbox, "POST /charges", &body).await;

    let stopped = async {
        let status = sandbox.service.terminate().await;
        assert!(status.success(), "{status}");
    };
    let finished = async {
        // The listener closes once the signal was seen.
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        stream.write_all(body.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201 Created"), "{answer}");
        assert!(answer.contains("captured"), "{answer}");
    };
    tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(stopped, finished) }).await.unwrap();
    let sandbox = Sandbox::start(&home).await;
    assert_eq!(sandbox.balance("alice").await, 500);
}

#[tokio::test]
async fn the_first_line_is_the_address_and_a_session_to_try_follows() {
    let sandbox = Sandbox::start(&Home::sqlite()).await;
    let output = sandbox.output_with("curl ").await;
    let first = output.lines().find(|line| line.starts_with("semel")).unwrap();
    assert_eq!(first, format!("semel sandbox listening on http://{}", sandbox.service.address()));
    assert_ne!(sandbox.service.address().port(), 0);
}

#[tokio::test]
async fn the_session_it_prints_works_as_printed() {
    let home = Home::sqlite();
    let mut sandbox = Sandbox::start(&home).await;
    let printed = sandbox.output_with("/accounts/alice\n\n").await;
    let commands: Vec<&str> = printed.lines().filter(|line| line.trim_start().starts_with("curl ")).collect();
    assert_eq!(commands.len(), 4, "{printed}");
    let mut answers = Vec::new();
    for command in commands {
        let run = tokio::process::Command::new("sh").args(["-c", command]).output().await.unwrap();
        answers.push(String::from_utf8(run.stdout).unwrap());
    }
    assert!(answers[0].starts_with("HTTP/1.1 201"), "{}", answers[0]);
    assert!(answers[1].starts_with("HTTP/1.1 201") && !answers[1].contains("idempotent-replayed"), "{}", answers[1]);
    assert!(
        answers[2].starts_with("HTTP/1.1 201") && answers[2].contains("idempotent-replayed: true"),
        "{}",
        answers[2]
    );
    assert!(answers[3].contains(r#""balance":500"#), "{}", answers[3]);
    assert!(sandbox.service.terminate().await.success());
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let home = Home::sqlite();
    let stderr = semel(&["sandbox", "--listen", &address, "--database-url", &home.url()]).failed_with(1);
    assert!(stderr.contains(&format!("error: cannot listen on {address}")), "{stderr}");
    assert!(stderr.contains("--listen"), "{stderr}");
    assert!(stderr.contains("caused by: "), "{stderr}");
}

#[test]
fn demo_tokens_are_refused_off_loopback() {
    for tokens in [None, Some("demo-b1:b"), Some("my-secret-token:a,demo-a1:a")] {
        let environment: Vec<_> = tokens.iter().map(|tokens| ("SEMEL_SANDBOX_TOKENS", *tokens)).collect();
        let stderr = semel_with(&["sandbox", "--listen", "0.0.0.0:0"], &environment, "").failed_with(1);
        assert!(stderr.contains("demo tokens are public"), "{stderr}");
        assert!(stderr.contains("SEMEL_SANDBOX_TOKENS"), "{stderr}");
        assert!(!stderr.contains("my-secret-token"), "{stderr}");
    }
}

#[tokio::test]
async fn tokens_of_ones_own_replace_the_demo_tokens_and_are_not_printed() {
    let home = Home::sqlite();
    let url = home.url();
    let arguments = ["sandbox", "--listen", "0.0.0.0:0", "--database-url", &url];
    let service = Service::spawn(SEMEL, &arguments, &[("SEMEL_SANDBOX_TOKENS", "my-secret-token:shop")]).await;
    let http = reqwest::Client::new();
    let summary = format!("http://127.0.0.1:{}/ledger/summary", service.address().port());
    assert_eq!(http.get(&summary).bearer_auth("my-secret-token").send().await.unwrap().status(), 200);
    assert_eq!(http.get(&summary).bearer_auth("demo-a1").send().await.unwrap().status(), 401);
    let output = service.output();
    assert!(!output.contains("my-secret-token"), "{output}");
}

async fn logs_are_lines_of_json_without_keys_and_bodies(home: Home) {
    let mut sandbox = Sandbox::start_with(&home, &[("SEMEL_LOG_FORMAT", "json"), ("SEMEL_LOG", "debug")]).await;
    sandbox.open_account("alice").await;
    assert_eq!(sandbox.charge("a-key-nobody-logs").await.status(), 201);
    assert!(sandbox.service.terminate().await.success());
    let output = sandbox.output_with("\"stopped\"").await;
    let logged: Vec<serde_json::Value> =
        output.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect();
    let request = logged.iter().find(|line| line["route"] == "/charges").expect("the charge is logged");
    assert_eq!((&request["method"], &request["status"]), (&"POST".into(), &201.into()));
    let lines: String = output.lines().filter(|line| line.starts_with('{')).collect();
    assert!(!lines.contains("a-key-nobody-logs") && !lines.contains("demo-a1"), "{lines}");
}
