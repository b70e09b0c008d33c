//! `semel demo`.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use semel_sqlite::rusqlite::Connection;
use semel_testkit::counts::rounds;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::harness::SEMEL;

/// How long a demo may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// A demo whose temporary folder is in a folder of the test's own.
struct Demo {
    child: Child,
    home: TempDir,
}

struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Demo {
    fn start(arguments: &[&str]) -> Demo {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(SEMEL);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEMEL_")) {
            command.env_remove(name);
        }
        command.arg("demo").args(arguments).env("TMPDIR", home.path()).current_dir(home.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        Demo { child: command.spawn().unwrap(), home }
    }

    async fn ended(&mut self) -> Ended {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let (mut out, mut err) = (self.child.stdout.take().unwrap(), self.child.stderr.take().unwrap());
        let ended = async {
            let (status, _, _) =
                tokio::join!(self.child.wait(), out.read_to_string(&mut stdout), err.read_to_string(&mut stderr));
            status.unwrap()
        };
        let status = tokio::time::timeout(PATIENCE, ended).await.expect("the demo ends");
        Ended { status, stdout, stderr }
    }

    /// The folders that are there.
    fn folders(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.home.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    /// Waits until the file answers a question with yes, and returns a connection to it.
    async fn file_where(&self, sql: &str) -> Connection {
        let gives_up = Instant::now() + PATIENCE;
        loop {
            let file = self.folders().first().map(|folder| folder.join("demo.db")).filter(|file| file.exists());
            if let Some(connection) = file.and_then(|file| Connection::open(file).ok()) {
                connection.busy_timeout(Duration::from_secs(30)).unwrap();
                if connection.query_row(sql, (), |row| row.get::<_, bool>(0)).is_ok_and(|yes| yes) {
                    return connection;
                }
            }
            assert!(Instant::now() < gives_up, "{sql}");
            tokio::task::yield_now().await;
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap()
    }
}

/// The figures as the printed statement counts them on a kept file.
fn counted(folder: &Path, sql: &str) -> Vec<(String, i64)> {
    let connection = Connection::open(folder.join("demo.db")).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
}

/// The processes that a demo has started and that are still there.
fn children(parent: Pid) -> Vec<Pid> {
    let path = format!("/proc/{pid}/task/{pid}/children", pid = parent.as_raw_nonzero());
    let listed = std::fs::read_to_string(path).unwrap();
    listed.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
}

/// Waits until processes are gone, or dead and only waiting for somebody to notice.
async fn gone(processes: &[Pid]) {
    let lives = |pid: &Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    let gives_up = Instant::now() + PATIENCE;
    while processes.iter().any(lives) {
        assert!(Instant::now() < gives_up, "{processes:?} live on");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_table_adds_up_and_anybody_can_count_it_again() {
    let intents = rounds(300, 10_000);
    let mut demo = Demo::start(&["--intents", &intents.to_string(), "--keep", "--json"]);
    let ended = demo.ended().await;
    assert!(ended.status.success(), "{}{}", ended.stderr, ended.stdout);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let figure = |name: &str| report["figures"][name].as_i64().unwrap();
    let intents = i64::from(intents) + 3;
    assert_eq!(report["adds_up"], true);
    assert_eq!((figure("intents"), figure("effects")), (intents, intents));
    assert_eq!((figure("events"), figure("applied")), (2 * intents, 2 * intents));
    assert_eq!((figure("duplicates"), figure("lost")), (0, 0));
    assert!(figure("attempts") > intents && figure("deliveries") > 2 * intents, "{report:#}");
    assert!(figure("replays") >= 2, "{report:#}");
    for process in ["server", "relay", "consumer"] {
        assert!(report["kills"][process].as_i64().unwrap() >= 1, "{report:#}");
    }
    for scene in ["1  A client", "2  The relay", "3  The consumer", "4  "] {
        assert!(ended.stderr.contains(scene), "{}", ended.stderr);
    }
    let folder = PathBuf::from(report["folder"].as_str().unwrap());
    assert_eq!(demo.folders(), std::slice::from_ref(&folder));
    assert_eq!(std::fs::read_to_string(folder.join("count.sql")).unwrap(), report["sql"].as_str().unwrap());
    for (name, number) in counted(&folder, report["sql"].as_str().unwrap()) {
        assert_eq!(figure(&name.replace(' ', "_")), number, "{name}");
    }
}

#[tokio::test]
async fn a_consumer_that_applies_something_twice_is_found_out() {
    let mut demo = Demo::start(&["--intents", "50"]);
    let receipts = "SELECT count(*) = 1 FROM sqlite_schema WHERE name = 'payments_receipts'";
    let file = demo.file_where(receipts).await;
    let twice = "CREATE TRIGGER twice AFTER INSERT ON payments_receipts WHEN NEW.amount = 17 BEGIN
                 UPDATE payments_receipts SET issued = 2 WHERE charge = NEW.charge; END";
    file.execute_batch(twice).unwrap();
    drop(file);
    let ended = demo.ended().await;
    assert_eq!(ended.status.code(), Some(1), "{}{}", ended.stderr, ended.stdout);
    assert!(ended.stderr.contains("error: it does not add up: applied twice: 1"), "{}", ended.stderr);
    assert!(ended.stdout.contains("duplicates  1 "), "{}", ended.stdout);
    // What went wrong can be looked at.
    let folder = demo.folders().remove(0);
    assert!(ended.stdout.contains(&format!("sqlite3 {}", folder.join("demo.db").display())), "{}", ended.stdout);
    assert!(folder.join("consumer.log").exists() && folder.join("count.sql").exists());
}

#[tokio::test]
async fn a_signal_ends_all_processes_and_leaves_no_folder() {
    let mut demo = Demo::start(&[]);
    drop(demo.file_where("SELECT count(*) > 3 FROM payments_charges").await);
    let processes = children(demo.pid());
    assert!(!processes.is_empty());
    kill_process(demo.pid(), Signal::INT).unwrap();
    let ended = demo.ended().await;
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("error: stopped before the end; nothing was counted"), "{}", ended.stderr);
    gone(&processes).await;
    assert_eq!(demo.folders(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn the_processes_of_a_demo_that_is_killed_die_with_it() {
    let mut demo = Demo::start(&[]);
    drop(demo.file_where("SELECT count(*) > 3 FROM payments_charges").await);
    let processes = children(demo.pid());
    assert!(!processes.is_empty());
    demo.child.kill().await.unwrap();
    gone(&processes).await;
}
