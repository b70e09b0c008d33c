//! A source in memory that never runs dry, and brings some messages twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use semel::source::{Error, Received, Redelivery};
use semel::{Message, Source};

use crate::case::Again;
use crate::load::Numbered;
use crate::meter::Tally;

/// How many messages lie between one and the same again, counted without those that come again.
const APART: u64 = 2_000;

/// How many messages come before the same come again in a burst.
const BURST: u64 = 1_000;

/// Messages, as fast as they are taken.
#[derive(Debug)]
pub(crate) struct Memory {
    again: Again,
    payload: Bytes,
    next: AtomicU64,
    counts: Arc<Counts>,
}

/// What was acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) tally: Tally,
    /// How many different messages.
    pub(crate) different: AtomicU64,
}

impl Memory {
    pub(crate) fn new(again: Again, payload_bytes: usize, counts: Arc<Counts>) -> Memory {
        Memory { again, payload: Bytes::from(vec![b'.'; payload_bytes]), next: AtomicU64::new(0), counts }
    }

    /// Which message is delivered at this place, and whether for the first time.
    fn at(&self, place: u64) -> (Numbered, bool) {
        match self.again {
            Again::None => (Numbered(place), true),
            Again::Mixed if place.is_multiple_of(2) => (Numbered(place / 2), true),
            // Until there is anything that far back, a message comes twice in a row.
            Again::Mixed => (Numbered((place / 2).checked_sub(APART).unwrap_or(place / 2)), false),
            Again::Bursts => {
                let (burst, within) = (place / BURST, place % BURST);
                (Numbered(burst / 2 * BURST + within), burst.is_multiple_of(2))
            }
        }
    }

    fn message(&self, message: Numbered) -> Message {
        Message {
            id: message.id(),
            topic: "charges".to_owned(),
            ordering_key: message.account().to_string(),
            message_type: "charge.created".to_owned(),
            producer: "bench".to_owned(),
            content_type: "text/plain".to_owned(),
            payload: self.payload.clone(),
            headers: vec![("number".to_owned(), message.0.to_string())],
            sequence: Some(message.sequence()),
            offset: Some(message.offset()),
        }
    }
}

impl Source for Memory {
    /// Whether the message was delivered for the first time.
    type Receipt = bool;

    async fn receive(&self, most: usize) -> Result<Vec<Received<bool>>, Error> {
        let first = self.next.fetch_add(most as u64, Ordering::Relaxed);
        let deliver = |place| {
            let (message, is_first) = self.at(place);
            Received::new(self.message(message), is_first)
        };
        Ok((first..first + most as u64).map(deliver).collect())
    }

    async fn acknowledge(&self, receipts: &[&bool]) -> Result<(), Error> {
        let different = receipts.iter().filter(|is_first| ***is_first).count();
        self.counts.different.fetch_add(different as u64, Ordering::Relaxed);
        self.counts.tally.committed(receipts.len() as u64);
        Ok(())
    }

    async fn give_back(&self, _receipts: &[&bool]) -> Result<(), Error> {
        Ok(())
    }

    async fn redelivery(&self) -> Result<Redelivery, Error> {
        Ok(Redelivery::Within { longest: Duration::from_secs(60), because: "it is in memory".to_owned() })
    }

    async fn close(&self) {}
}
