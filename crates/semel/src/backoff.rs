//! Pauses that grow.

use std::time::Duration;

use tokio::sync::watch;

/// Exponential pauses with full jitter above half: relays that fail together do not come back together.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    least: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(least: Duration, most: Duration) -> Backoff {
        Backoff { least, most, failures: 0 }
    }

    /// The pause after failure number `failures`, counted from one.
    pub(crate) fn after(failures: u32, least: Duration, most: Duration) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        let full = least.saturating_mul(1 << doublings).min(most);
        full / 2 + full.mul_f64(f64::from(random()) / f64::from(u32::MAX) / 2.0)
    }

    pub(crate) fn next(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        Backoff::after(self.failures, self.least, self.most)
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Pauses, unless it is told to stop. `false` if it was.
    pub(crate) async fn pause(&mut self, stopping: &mut watch::Receiver<bool>) -> bool {
        let pause = self.next();
        tokio::select! {
            () = tokio::time::sleep(pause) => true,
            () = stopped(stopping) => false,
        }
    }
}

/// Completes when it is time to stop.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // Whoever dropped the sender has stopped, too.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    // Without randomness the pause is the shortest one.
    let _ = getrandom::fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit_and_vary_by_half() {
        let (least, most) = (Duration::from_millis(100), Duration::from_secs(1));
        for (failures, full_ms) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (60, 1000)] {
            let full = Duration::from_millis(full_ms);
            for _ in 0..100 {
                let pause = Backoff::after(failures, least, most);
                assert!(pause >= full / 2 && pause <= full, "{pause:?} after {failures} failures");
            }
        }
    }
}
