//! What has to be there before peers can be measured: their programs, as bench/peers pins them.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use semel_testkit::cluster::target_dir;
use tokio::process::Command;

use crate::case::{Contestant, Peer};

const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");
const MANIFEST: &str = include_str!("../peers/Cargo.toml");
const REQUIREMENTS: &str = include_str!("../peers/requirements.txt");

/// Builds and installs what these contestants need.
pub(crate) async fn prepare(contestants: &[Contestant]) -> Result<()> {
    let peers: Vec<Peer> = contestants.iter().filter_map(|one| one.peer()).collect();
    if peers.iter().any(|peer| !peer.is_python()) {
        build().await?;
    }
    if peers.iter().any(|peer| peer.is_python()) {
        install().await?;
    }
    Ok(())
}

/// How a peer is started.
pub(crate) fn program(peer: Peer) -> Command {
    let built = |name: &str| Command::new(target_dir().join("peers").join("release").join(name));
    match peer {
        Peer::Durare(_) => built("flows-durare"),
        Peer::DbosRust => built("flows-dbos"),
        Peer::DbosPython { .. } => {
            let mut python = Command::new(environment().join("bin").join("python"));
            python.arg(format!("{PEERS}/flows_dbos.py"));
            python
        }
    }
}

/// Who the peers are.
pub(crate) fn versions() -> String {
    let pinned = |text: &'static str, start: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(start));
        line.map_or("unknown", |version| version.trim_end_matches('"'))
    };
    format!(
        "durare {}, DBOS for Rust {}, DBOS for Python {}",
        pinned(MANIFEST, "durare = \"="),
        pinned(MANIFEST, "dbos = \"="),
        pinned(REQUIREMENTS, "dbos=="),
    )
}

/// In a target directory of their own, so that neither build undoes what the other has done.
async fn build() -> Result<()> {
    eprintln!("building durare and DBOS for Rust");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--quiet", "--locked", "--manifest-path"]).arg(format!("{PEERS}/Cargo.toml"));
    cargo.arg("--target-dir").arg(target_dir().join("peers")).kill_on_drop(true);
    ensure!(cargo.status().await?.success(), "the peers could not be built; what was said is above");
    Ok(())
}

/// In an environment of its own, which is made the first time.
async fn install() -> Result<()> {
    eprintln!("installing DBOS for Python");
    let python = environment().join("bin").join("python");
    if !python.exists() {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv"]).arg(environment()).kill_on_drop(true);
        let made = venv.status().await.context("DBOS for Python needs python3; --only measures without it")?;
        ensure!(made.success(), "the Python environment could not be made; what was said is above");
    }
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    pip.arg(format!("{PEERS}/requirements.txt")).kill_on_drop(true);
    ensure!(pip.status().await?.success(), "DBOS for Python could not be installed; what was said is above");
    Ok(())
}

fn environment() -> PathBuf {
    target_dir().join("bench").join("python")
}

#[cfg(test)]
mod tests {
    use super::versions;

    #[test]
    fn every_peer_is_pinned() {
        let versions = versions();
        assert!(!versions.contains("unknown") && versions.matches('.').count() == 6, "{versions}");
    }
}
