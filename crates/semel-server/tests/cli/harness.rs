//! Runs the binary on a database of the test's own.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use reqwest::{Client, RequestBuilder, Response};
use semel_testkit::database::{TempDatabase, TempFile, sqlite_path};
use semel_testkit::process::Service;
use serde_json::{Value, json};
use tokio::process::Command;

pub(crate) const SEMEL: &str = env!("CARGO_BIN_EXE_semel");

/// How long a command may take.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// An empty database on either store.
pub(crate) enum Home {
    Sqlite(TempFile),
    Postgres(TempDatabase),
}

impl Home {
    pub(crate) fn url(&self) -> String {
        match self {
            Home::Sqlite(file) => file.url(),
            Home::Postgres(database) => database.url(),
        }
    }

    pub(crate) fn sqlite() -> Home {
        Home::Sqlite(sqlite_path())
    }

    pub(crate) async fn postgres() -> Home {
        Home::Postgres(TempDatabase::create().await)
    }
}

/// Makes a module of the function's name with a test of it on each store.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            #[tokio::test]
            async fn on_sqlite() {
                super::$name($crate::harness::Home::sqlite()).await;
            }

            #[tokio::test]
            async fn on_postgres() {
                super::$name($crate::harness::Home::postgres().await).await;
            }
        })*
    };
}
pub(crate) use on_both_stores;

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Asserts success and returns stdout.
    #[track_caller]
    pub(crate) fn succeeded(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Asserts an exit code and returns stderr.
    #[track_caller]
    pub(crate) fn failed_with(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.stderr
    }
}

/// Runs a command to its end, in an empty directory and without the settings of the surrounding shell.
pub(crate) fn semel(arguments: &[&str]) -> Ended {
    semel_with(arguments, &[], "")
}

/// Like [`semel`], with environment variables and a `semel.toml`.
pub(crate) fn semel_with(arguments: &[&str], environment: &[(&str, &str)], file: &str) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    if !file.is_empty() {
        std::fs::write(directory.path().join("semel.toml"), file).unwrap();
    }
    let mut command = Command::new(SEMEL);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command.args(arguments).envs(environment.iter().copied()).current_dir(directory.path()).stdin(Stdio::null());
    // A command that should have failed may serve for ever instead. The test may be in a runtime already, where another
    // one cannot be waited for; a thread of its own can.
    let running = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(ENDS_WITHIN, command.kill_on_drop(true).output()).await })
    };
    let ended = std::thread::scope(|scope| scope.spawn(running).join().unwrap());
    let output = ended.unwrap_or_else(|_| panic!("semel {arguments:?} did not end within {ENDS_WITHIN:?}")).unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A sandbox on a free port.
pub(crate) struct Sandbox {
    pub(crate) service: Service,
    pub(crate) http: Client,
}

impl Sandbox {
    pub(crate) async fn start(home: &Home) -> Sandbox {
        Sandbox::start_with(home, &[]).await
    }

    /// Without a sink its events wait in the outbox.
    pub(crate) async fn start_with(home: &Home, environment: &[(&str, &str)]) -> Sandbox {
        Sandbox::consuming(home, &[&[("SEMEL_SANDBOX_CONSUME", "false")], environment].concat()).await
    }

    /// As its users start it: without a sink it consumes its own events.
    pub(crate) async fn consuming(home: &Home, environment: &[(&str, &str)]) -> Sandbox {
        let url = home.url();
        let arguments = ["sandbox", "--listen", "127.0.0.1:0", "--database-url", &url];
        Sandbox { service: Service::spawn(SEMEL, &arguments, environment).await, http: Client::new() }
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(self.service.url(path)).bearer_auth("demo-a1")
    }

    /// Waits until the process has written `text`, and returns all that it has written.
    pub(crate) async fn output_with(&self, text: &str) -> String {
        let gives_up = Instant::now() + Duration::from_secs(60);
        loop {
            let output = self.service.output();
            if output.contains(text) {
                return output;
            }
            assert!(Instant::now() < gives_up, "{text:?} was not written:\n{output}");
            tokio::task::yield_now().await;
        }
    }

    /// Opens an account in EUR.
    pub(crate) async fn open_account(&self, id: &str) {
        let url = self.service.url(&format!("/accounts/{id}"));
        let opened = self.http.put(url).bearer_auth("demo-a1").json(&json!({"currency": "EUR"})).send().await.unwrap();
        assert_eq!(opened.status(), 201);
    }

    pub(crate) fn charge_request(&self, key: &str) -> RequestBuilder {
        let request = self.http.post(self.service.url("/charges")).bearer_auth("demo-a1");
        request.header("Idempotency-Key", format!("\"{key}\"")).json(&charge_body())
    }

    pub(crate) async fn charge(&self, key: &str) -> Response {
        self.charge_request(key).send().await.unwrap()
    }

    pub(crate) async fn balance(&self, id: &str) -> Value {
        let account: Value = self.get(&format!("/accounts/{id}")).send().await.unwrap().json().await.unwrap();
        account["balance"].clone()
    }
}

pub(crate) fn charge_body() -> Value {
    json!({"account": "alice", "amount": 500, "currency": "EUR"})
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
