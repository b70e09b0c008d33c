//! Waiting for the thing itself.

use std::time::{Duration, Instant};

/// How long anything that must happen may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(5);

/// Asks again and again until it holds. Panics, saying what did not come about, after [`PATIENCE`].
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    until_some(what, async || holds().await.then_some(())).await;
}

/// Asks again and again until nothing is left, however long that takes while it gets less. Panics, saying what did not
/// come about, when nothing has gone away for [`PATIENCE`].
pub async fn until_none_left(what: &str, mut left: impl AsyncFnMut() -> usize) {
    let (mut least, mut gives_up) = (usize::MAX, Instant::now() + PATIENCE);
    loop {
        let left = left().await;
        if left == 0 {
            return;
        }
        if left < least {
            (least, gives_up) = (left, Instant::now() + PATIENCE);
        }
        assert!(Instant::now() < gives_up, "not within {PATIENCE:?}: {what}; {left} are left");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Asks again and again until there is an answer. Panics, saying what did not come about, after [`PATIENCE`].
pub async fn until_some<T>(what: &str, mut answer: impl AsyncFnMut() -> Option<T>) -> T {
    let gives_up = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = answer().await {
            return answer;
        }
        assert!(Instant::now() < gives_up, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
