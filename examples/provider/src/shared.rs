//! What all requests share.

use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use tokio::sync::watch;

use crate::ledger::Ledger;
use crate::under_way::UnderWay;
use crate::{Clock, Error, Options};

/// How long whoever receives a webhook may take to answer.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ledger: Ledger,
    pub(crate) under_way: Arc<UnderWay>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) client: reqwest::Client,
    /// Changes, or loses its sender, when the provider ends.
    pub(crate) closing: watch::Receiver<()>,
}

impl Shared {
    pub(crate) async fn open(options: Options, closing: watch::Receiver<()>) -> Result<Shared, Error> {
        // A proxy or a redirect would lead a webhook away from this machine.
        let client = reqwest::Client::builder().no_proxy().redirect(Policy::none()).timeout(WEBHOOK_TIMEOUT).build()?;
        let ledger = Ledger::open(options.ledger, options.settings).await?;
        Ok(Shared { ledger, under_way: Arc::default(), clock: options.clock, client, closing })
    }

    /// Waits for so long; `false` if the provider ends before that.
    pub(crate) async fn pause(&self, pause: Duration) -> bool {
        let mut closing = self.closing.clone();
        tokio::select! {
            () = tokio::time::sleep(pause) => true,
            _ = closing.changed() => false,
        }
    }
}
