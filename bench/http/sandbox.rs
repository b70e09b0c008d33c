//! How much memory `semel sandbox` takes while it is asked over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Request, StatusCode, header, request};
use http_body_util::Full;
use semel::Key;
use semel_bench::aim::Aim;
use semel_bench::drive::{Load, drive};
use semel_bench::report::{Report, Table};
use semel_testkit::cluster::target_dir;
use semel_tower::header::IDEMPOTENCY_KEY;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::client::Crowd;

/// What it is called among the contestants.
pub(crate) const NAME: &str = "semel sandbox";

/// How many ask it at once, each for an account of its own.
pub(crate) const CLIENTS: u64 = 32;

/// The most that it should take.
const MOST_MIB: f64 = 64.0;

/// Builds the binary, so that it is the one of this tree.
pub(crate) async fn build() -> Result<()> {
    eprintln!("building semel");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--quiet", "--package", "semel-server", "--bin", "semel"]);
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).kill_on_drop(true);
    ensure!(cargo.status().await?.success(), "semel could not be built; what was said is above");
    Ok(())
}

/// Has clients make charges for so long. Every charge that was answered has to be in the books.
pub(crate) async fn measure(report: &mut Report, lasts: Duration) -> Result<()> {
    let mut sandbox = Sandbox::start().await?;
    let pid = sandbox.process.id().context("the sandbox has ended")?;
    let crowd = Arc::new(Crowd::connect(sandbox.address, CLIENTS).await?);
    for client in 0..CLIENTS {
        let opening = to(Request::put(format!("/accounts/account-{client}")));
        let opened = crowd.send(client, opening.body(r#"{"currency":"EUR"}"#.into())?).await?;
        ensure!(opened.status == StatusCode::CREATED, "an account could not be opened: {}", opened.status);
    }
    let load = Load { clients: CLIENTS, warm_up: Duration::from_millis(500), measured: lasts };
    let operate = {
        let crowd = Arc::clone(&crowd);
        move |number: u64| {
            let crowd = Arc::clone(&crowd);
            async move { crowd.send(number, charge(number % CLIENTS)?).await?.charged(false) }
        }
    };
    eprintln!("{CLIENTS} clients: {NAME}, {} s", lasts.as_secs());
    let driven = drive(load, || async move { mebibytes(pid, "VmRSS:") }, operate).await?;
    let most = mebibytes(pid, "VmHWM:")?;

    let summary = crowd.send(0, to(Request::get("/ledger/summary")).body(Full::default())?).await?;
    let summary: serde_json::Value = serde_json::from_slice(&summary.body)?;
    let balanced = summary["charges"].as_u64() == Some(driven.total) && summary["sum"].as_i64() == Some(0);
    ensure!(balanced, "{} charges were answered, and the books say {summary}", driven.total);
    sandbox.process.kill().await?;

    let columns = ["charges/s", "p50 ms", "p99 ms", "MiB at first", "MiB at last", "MiB at most"];
    let latency = driven.latency;
    let figures = vec![driven.per_second, latency.p50_ms, latency.p99_ms, driven.before, driven.after, most];
    report.tables.push(Table {
        title: format!("{CLIENTS} clients, {} s", lasts.as_secs()),
        columns: columns.map(str::to_owned).to_vec(),
        rows: vec![(NAME.to_owned(), figures)],
    });
    report.aims.push(Aim::at_most(format!("{NAME}: MiB resident, {CLIENTS} clients"), vec![most], Some(MOST_MIB)));
    Ok(())
}

/// The binary, on a file in a folder of its own.
#[derive(Debug)]
struct Sandbox {
    address: SocketAddr,
    process: Child,
    /// It may have more to say.
    _output: Lines<BufReader<ChildStdout>>,
    _folder: Folder,
}

/// A folder that is removed afterwards.
#[derive(Debug)]
struct Folder(PathBuf);

impl Sandbox {
    async fn start() -> Result<Sandbox> {
        let folder = Folder(target_dir().join("bench").join(format!("sandbox-{}", std::process::id())));
        std::fs::create_dir_all(&folder.0)?;
        let mut command = Command::new(target_dir().join("release").join("semel"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEMEL_")) {
            command.env_remove(name);
        }
        let database = format!("sqlite:{}", folder.0.join("semel.db").display());
        command.args(["sandbox", "--listen", "127.0.0.1:0", "--database-url", &database]).env("SEMEL_LOG", "warn");
        command.current_dir(&folder.0).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().context("the sandbox does not start")?;
        let mut output = BufReader::new(process.stdout.take().context("the sandbox says nothing")?).lines();
        let said = output.next_line().await?.context("the sandbox ended at once")?;
        let address = said.split_once(" listening on http://").map(|(_, address)| address.trim());
        let address = address.with_context(|| format!("the sandbox does not say where it listens: {said}"))?.parse()?;
        Ok(Sandbox { address, process, _output: output, _folder: folder })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Whatever stays is under the build's own folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A request of one who may ask.
fn to(request: request::Builder) -> request::Builder {
    request
        .header(header::HOST, "localhost")
        .header(header::AUTHORIZATION, "Bearer demo-a1")
        .header(header::CONTENT_TYPE, "application/json")
}

fn charge(account: u64) -> Result<Request<Full<Bytes>>> {
    let body = format!(r#"{{"account":"account-{account}","amount":500,"currency":"EUR"}}"#);
    let request = to(Request::post("/charges")).header(IDEMPOTENCY_KEY, format!("\"{}\"", Key::random().as_str()));
    Ok(request.body(body.into())?)
}

/// What the kernel says of a process's memory under this name.
fn mebibytes(pid: u32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("the kernel does not say")?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes / 1024.0)
}
