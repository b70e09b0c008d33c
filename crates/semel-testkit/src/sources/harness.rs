//! How the suite reaches a source and its broker.

use std::future::Future;
use std::time::Duration;

use semel::Source;
use semel::sink::Outgoing;
use semel::source::{Error, Message};

use crate::poll::PATIENCE;
use crate::sinks::batch;

/// A broker under test, with a topic of the test's own.
///
/// A message that is not acknowledged should come again within a few seconds: where that is a setting of the source,
/// the harness sets it low.
pub trait Harness: Sized + Sync {
    /// The source under test.
    type Source: Source;

    /// Uses the server of `cargo xtask services up`, or of the broker's `SEMEL_TEST_…_URL`.
    fn shared() -> impl Future<Output = Self>;

    /// Opens a source for this consumer in this generation. Messages that are published after the first source of a
    /// consumer is open reach it.
    fn open(&self, consumer: &str, generation: u32) -> impl Future<Output = Self::Source>;

    /// Publishes events to [`Harness::topic`] with the real sink, as a relay would: those of one ordering key in their
    /// order. It returns when the broker has them, or at once where there is no broker and events are sent again until
    /// a source acknowledges them.
    fn publish(&self, events: &[Outgoing]) -> impl Future<Output = ()>;

    /// Returns when the broker knows that so many messages were acknowledged: acknowledgements are on their way to it,
    /// and a crash may overtake them. Asking something of the broker lets them arrive first.
    fn acknowledged(&self, source: &Self::Source, count: usize) -> impl Future<Output = ()> {
        let _ = count;
        async { drop(source.redelivery().await.unwrap()) }
    }

    /// The topic that events are published to.
    fn topic(&self) -> String;

    /// For how long the broker was set up to bring a message again; `None` if without end.
    fn longest(&self) -> Option<Duration>;
}

/// A harness whose broker can be killed.
pub trait Restart: Harness {
    /// Uses a server that only this test has.
    fn own() -> impl Future<Output = Self>;

    /// Ends the server with SIGKILL.
    fn kill(&mut self);

    /// Starts the server again, at the same address, and returns when it answers.
    fn restart(&mut self) -> impl Future<Output = ()>;
}

/// A message that was received, and its receipt.
pub type Taken<S> = (Message, <S as Source>::Receipt);

/// Receives once. Panics if nothing comes, or the source refuses; while the broker is away it is asked again.
pub async fn receive<S: Source>(source: &S, most: usize) -> Vec<Taken<S>> {
    let received = tokio::time::timeout(PATIENCE, async {
        loop {
            match source.receive(most).await {
                Ok(received) => return received,
                Err(Error::Unavailable(_)) => tokio::task::yield_now().await,
                Err(refused) => panic!("{refused:?}"),
            }
        }
    });
    let received = received.await.unwrap_or_else(|_| panic!("nothing came within {PATIENCE:?}"));
    assert!((1..=most).contains(&received.len()), "{} of {most} were received", received.len());
    let usable = received.into_iter().map(|it| {
        assert_eq!(it.unusable, None, "{:?}", it.message);
        (it.message, it.receipt)
    });
    usable.collect()
}

/// Receives until there are `count`, and acknowledges nothing.
pub async fn take<S: Source>(source: &S, count: usize) -> Vec<Taken<S>> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.extend(receive(source, count - taken.len()).await);
    }
    taken
}

/// Acknowledges these. Panics if it fails.
pub async fn settle_all<S: Source>(source: &S, taken: &[Taken<S>]) {
    source.acknowledge(&taken.iter().map(|(_, receipt)| receipt).collect::<Vec<_>>()).await.unwrap();
}

/// Events with these numbers, each with an ordering key of its own.
pub fn numbered(topic: &str, numbers: std::ops::Range<u64>) -> Vec<Outgoing> {
    batch(topic, 3, numbers, u64::MAX)
}

/// An event that is published last, so that whoever receives it has been given what came before.
pub fn marker(topic: &str) -> Outgoing {
    numbered(topic, 1_000_000..1_000_001).remove(0)
}
