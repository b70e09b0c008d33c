//! What an operator must be told.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};

use common::{App, on_both_stores};
use serde_json::json;
use tracing_subscriber::fmt::MakeWriter;

on_both_stores!(a_webhook_with_other_contents_is_logged);

/// What was logged so far, by every test of this file.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start() -> &'static Log {
        static LOG: OnceLock<Log> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = Log::default();
            tracing_subscriber::fmt().with_ansi(false).with_writer(log.clone()).init();
            log
        })
    }

    fn lines_with(&self, text: &str) -> Vec<String> {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}

async fn a_webhook_with_other_contents_is_logged(app: App) {
    let log = Log::start();
    app.account("cash", 0).await;
    let id = format!("bank-{}", app.url.rsplit(':').next().unwrap());
    let first = json!({ "transaction_id": id, "account": "cash", "amount": 30 });
    assert_eq!(app.webhook(first.clone()).await.status, 200);
    assert_eq!(app.webhook(first).await.status, 200);
    assert_eq!(log.lines_with(&id), Vec::<String>::new());
    let differs = json!({ "transaction_id": id, "account": "cash", "amount": 31 });
    app.webhook(differs).await.is_problem(409, "webhook-differs");
    let lines = log.lines_with(&id);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("WARN") && lines[0].contains("30") && lines[0].contains("31"), "{lines:?}");
}
