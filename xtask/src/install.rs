//! Installing the servers that tests need, where that is allowed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use semel_testkit::account::find_program;
use semel_testkit::cluster::find_binaries;

const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Installs PostgreSQL and pgbouncer if they are missing, by apt, as root. Elsewhere the error says what to install.
pub(crate) fn missing() -> Result<()> {
    let mut packages = Vec::new();
    if find_binaries().is_err() {
        packages.push("postgresql");
    }
    if find_program("pgbouncer").is_none() {
        packages.push("pgbouncer");
    }
    if packages.is_empty() {
        return Ok(());
    }
    let names = packages.join(" ");
    if find_program("apt-get").is_none() || !is_root() {
        bail!(
            "the tests need {names}: run `apt-get install {names}` as root, or install them another way and put \
             initdb, pg_ctl, postgres and pgbouncer on PATH"
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
