//! A private Apache Kafka, from its jars on Maven Central.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use semel_testkit::account::find_program;
use semel_testkit::kafka::{self, Kafka, SERVER_VARIABLE};

use crate::install::succeeds;

/// What [`start`] found or made.
#[derive(Debug)]
pub(crate) struct Started {
    /// How to reach it.
    pub(crate) url: String,
    /// Whether it was started by this call, and so is the caller's to stop.
    pub(crate) started: bool,
}

/// The Debian packages that building Kafka's client, and fetching and running a server, take and this machine lacks.
pub(crate) fn missing_packages() -> Vec<&'static str> {
    let mut packages = Vec::new();
    if ["cc", "c++", "make"].iter().any(|program| find_program(program).is_none()) {
        packages.push("build-essential");
    }
    if find_program("pkg-config").is_none() {
        packages.extend(["pkg-config", "libssl-dev"]);
    } else if !succeeds("pkg-config", &["--exists", "openssl"]) {
        packages.push("libssl-dev");
    }
    if given().is_some() {
        return packages;
    }
    if find_program("java").is_none() || find_program("keytool").is_none() {
        packages.push("openjdk-17-jre-headless");
    }
    if kafka::find_library().is_err() && find_program("mvn").is_none() {
        packages.push("maven");
    }
    packages
}

/// Starts it if it is not running, fetching its jars first if they are missing. A server named by the environment is
/// used as it is, and nothing is started.
pub(crate) fn start() -> Result<Started> {
    if let Some(url) = given() {
        eprintln!("Kafka: {} (from {SERVER_VARIABLE})", without_password(&url));
        return Ok(Started { url, started: false });
    }
    fetch()?;
    let (server, started) = match Kafka::running(&kafka::server_dir())? {
        Some(server) => (server, false),
        None => {
            eprintln!("Kafka: starting");
            (Kafka::start(&kafka::server_dir()).context("Kafka could not be started")?, true)
        }
    };
    eprintln!("Kafka: {} (log: {})", server.url(), server.log_file().display());
    let url = server.url();
    server.keep_running();
    Ok(Started { url, started })
}

/// Stops it, and those that killed tests had left behind. Stopping twice is no error.
pub(crate) fn stop() -> Result<()> {
    match Kafka::running(&kafka::server_dir())? {
        Some(mut server) => {
            server.stop()?;
            eprintln!("Kafka: stopped");
        }
        None => eprintln!("Kafka: was not running"),
    }
    let orphans = kafka::stop_orphans()?;
    if orphans > 0 {
        eprintln!("Kafka: stopped {orphans} that killed tests had left behind");
    }
    Ok(())
}

/// Tells whether it runs and where.
pub(crate) fn status() -> Result<()> {
    if let Some(url) = given() {
        println!("Kafka: {} (from {SERVER_VARIABLE})", without_password(&url));
        return Ok(());
    }
    match Kafka::running(&kafka::server_dir())? {
        Some(server) => {
            println!("Kafka: {} (log: {})", server.url(), server.log_file().display());
            server.keep_running();
        }
        None => println!("Kafka: not running (start it with `cargo xtask services up`)"),
    }
    Ok(())
}

/// Fetches the jars with Maven, which knows this machine's mirrors. They arrive beside their final place, so that an
/// interrupted download is never taken for a whole one.
pub(crate) fn fetch() -> Result<()> {
    if kafka::find_library().is_ok() {
        return Ok(());
    }
    let Some(maven) = find_program("mvn") else {
        bail!(
            "the tests need Apache Kafka, which is fetched with Maven: run `apt-get install maven` as root, or set \
             {SERVER_VARIABLE} to a server that tests may create topics on"
        );
    };
    let library = kafka::library_dir();
    let unfinished = library.with_extension("unfinished");
    for directory in [&library, &unfinished] {
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
    }
    fs::create_dir_all(&unfinished)?;
    eprintln!("Kafka: fetching its jars with Maven, some 50 MB, which is needed once");
    let begun = Instant::now();
    let pom = Path::new(env!("CARGO_MANIFEST_DIR")).join("kafka").join("pom.xml");
    let status = Command::new(maven)
        .args(["-q", "-B", "-Dstyle.color=never", "-f"])
        .arg(pom)
        .args(["org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", unfinished.display()))
        .stdout(std::io::stderr())
        .status()
        .context("mvn could not be run")?;
    if !status.success() {
        bail!(
            "Maven could not fetch Kafka ({status}); its own message is above. Without the network, set \
             {SERVER_VARIABLE} to a server that tests may create topics on"
        );
    }
    fs::rename(unfinished, library)?;
    eprintln!("Kafka: fetched in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn given() -> Option<String> {
    std::env::var(SERVER_VARIABLE).ok().filter(|url| !url.is_empty())
}

fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}://…{}", &url[..scheme], &url[at..]),
        _ => url.to_owned(),
    }
}
