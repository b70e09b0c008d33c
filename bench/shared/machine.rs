//! The machine that a benchmark runs on, and whoever sits before it.

/// Completes on Ctrl-C and on SIGTERM.
pub async fn interrupted() {
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated => {}
    }
}

/// How busy the machine is, by its own account.
pub fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// What the machine and the build are, a line each.
pub fn described() -> Vec<String> {
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let memory = field("/proc/meminfo", "MemTotal").and_then(|total| total.split(' ').next()?.parse::<u64>().ok());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    vec![
        format!("{} cores of {processor}, {} GiB, Linux {}", cores(), memory.unwrap_or(0) >> 20, kernel.trim()),
        format!("commit {}, load before: {}", commit(), load_average()),
    ]
}

/// The commit that the tree stands at, marked if there are changes that are not committed.
pub fn commit() -> String {
    let git = std::process::Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=10"]).output();
    let said = git.ok().filter(|git| git.status.success()).map(|git| String::from_utf8_lossy(&git.stdout).into_owned());
    said.map_or("unknown".to_owned(), |said| said.trim().to_owned())
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// How many cores there are.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}
