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

/// How many cores there are.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}
