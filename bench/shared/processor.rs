//! Who used the processor: the figure that holds on a busy machine, too.

use std::fs;

/// Clock ticks of a process are hundredths of a second on Linux.
const TICK_MICROSECONDS: u64 = 10_000;

/// Processor time used so far, in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    own: u64,
    postgres: u64,
    brokers: u64,
}

/// Processor time per event, in microseconds.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct PerEvent {
    /// This process.
    pub own_us: f64,
    /// The server and its sessions.
    pub postgres_us: f64,
    /// The brokers, running idle included.
    pub brokers_us: f64,
}

impl Used {
    /// What this process, the server with this process id and the brokers that this process started have used.
    pub fn now(postmaster: i32) -> Used {
        let own = std::process::id().cast_signed();
        let mut used = Used::default();
        for process in processes() {
            if process.pid == own {
                used.own += process.used;
            } else if process.pid == postmaster {
                // With what its ended sessions used.
                used.postgres += process.used + process.used_by_ended;
            } else if process.parent == postmaster {
                used.postgres += process.used;
            } else if process.parent == own {
                used.brokers += process.used;
            }
        }
        used
    }

    /// What was used since `before`, for each of these events.
    pub fn since(self, before: Used, events: u64) -> PerEvent {
        let each = |now: u64, then: u64| now.saturating_sub(then) as f64 / events.max(1) as f64;
        PerEvent {
            own_us: each(self.own, before.own),
            postgres_us: each(self.postgres, before.postgres),
            brokers_us: each(self.brokers, before.brokers),
        }
    }
}

/// The parent of a process.
pub fn parent(pid: i32) -> Option<i32> {
    Some(Process::read(pid)?.parent)
}

struct Process {
    pid: i32,
    parent: i32,
    used: u64,
    used_by_ended: u64,
}

impl Process {
    fn read(pid: i32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before the last parenthesis may hold anything.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        Some(Process {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            used: (ticks(11) + ticks(12)) * TICK_MICROSECONDS,
            used_by_ended: (ticks(13) + ticks(14)) * TICK_MICROSECONDS,
        })
    }
}

fn processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Process::read(entry.file_name().to_str()?.parse().ok()?))
}
