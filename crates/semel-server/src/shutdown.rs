//! Stopping in good order.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Tells when to stop. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Shutdown(watch::Sender<bool>);

impl Shutdown {
    /// Listens for SIGINT and SIGTERM: the first asks everything to finish, the second ends the process at once. What
    /// the second cuts off is rolled back by the database, as after any crash (I1).
    pub(crate) fn on_signals() -> io::Result<Shutdown> {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let stop = watch::Sender::new(false);
        let shutdown = Shutdown(stop.clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if stop.send_replace(true) {
                    tracing::warn!("stopping at once: a second signal came before everything had finished");
                    std::process::exit(1);
                }
                tracing::info!("stopping: what is in flight may finish; a second signal stops at once");
            }
        });
        Ok(shutdown)
    }

    /// Asks everything to finish, as a signal does.
    pub(crate) fn request(&self) {
        self.0.send_replace(true);
    }

    /// Completes when it is time to stop.
    pub(crate) async fn requested(self) {
        if self.0.subscribe().wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
