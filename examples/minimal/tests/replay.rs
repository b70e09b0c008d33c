//! The example does what it says: a charge sent twice is one row, also after the process was killed.
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

struct Service {
    process: Child,
    url: String,
}

impl Service {
    fn start(directory: &Path) -> Service {
        let mut process = Command::new(env!("CARGO_BIN_EXE_semel-minimal"))
            .current_dir(directory)
            .env("LISTEN", "127.0.0.1:0")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        // The pipe is drained to its end, so that the process can never block on a full one.
        std::thread::spawn(move || lines.for_each(drop));
        Service { process, url }
    }

    async fn charge(&self, key: &str) -> reqwest::Response {
        let request = reqwest::Client::new().post(format!("{}/charges", self.url)).header("Idempotency-Key", key);
        request.json(&serde_json::json!({ "account": "alice", "amount": 100 })).send().await.unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[tokio::test]
async fn a_charge_sent_again_is_replayed_even_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(directory.path());
    let first = service.charge("k-1").await;
    assert_eq!(first.status(), 201);
    assert!(first.headers().get("Idempotent-Replayed").is_none());
    let first = first.bytes().await.unwrap();

    let again = service.charge("k-1").await;
    assert_eq!((again.status().as_u16(), again.headers()["Idempotent-Replayed"].to_str().unwrap()), (201, "true"));
    assert_eq!(again.bytes().await.unwrap(), first);

    drop(service);
    let service = Service::start(directory.path());
    let after = service.charge("k-1").await;
    assert_eq!(after.headers()["Idempotent-Replayed"], "true");
    assert_eq!(after.bytes().await.unwrap(), first);
    assert_eq!(service.charge("k-2").await.status(), 201);

    let database = rusqlite::Connection::open(directory.path().join("minimal.db")).unwrap();
    let rows: i64 = database.query_row("SELECT count(*) FROM charges", (), |row| row.get(0)).unwrap();
    assert_eq!(rows, 2, "one row for each key");
}
