//! Where messages come from.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use crate::event::PLACEHOLDER;
use crate::inbox::{Delivery, Identity, Invalid, Offset, Sequence};

/// A message as a consumer sees it, whichever broker brought it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What its producer calls it; the broker's own name for its place where the producer gave none.
    pub id: String,
    /// Where it was published: a topic, subject, exchange or stream.
    pub topic: String,
    /// Messages that share it apply in the order in which they were received.
    pub ordering_key: String,
    /// What happened, such as `charge.created`: the CloudEvents attribute `type`. Empty if it does not say.
    pub message_type: String,
    /// Who published it: the CloudEvents attribute `source`. Empty if it does not say.
    pub producer: String,
    /// The media type of the payload. Empty if it does not say.
    pub content_type: String,
    /// The payload's bytes.
    pub payload: Bytes,
    /// Further headers, in order, the trace context among them.
    pub headers: Vec<(String, String)>,
    /// Its place among Semel's own events, if it is one.
    pub sequence: Option<Sequence>,
    /// Its place in a partition of Kafka, if it came from there. `from` is the source's to keep.
    pub offset: Option<Offset>,
}

impl Message {
    /// Whether it only stands in the place of an event that is parked: consumers who count sequences count it, and it
    /// has no effect.
    pub fn is_placeholder(&self) -> bool {
        self.sequence.is_some() && self.message_type == PLACEHOLDER
    }

    /// The value of a header, by its name in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// About how many bytes it takes in memory.
    pub(crate) fn size(&self) -> usize {
        let texts = [&self.id, &self.topic, &self.ordering_key, &self.message_type, &self.producer, &self.content_type];
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        self.payload.len() + texts.iter().map(|text| text.len()).sum::<usize>() + headers.sum::<usize>()
    }

    /// The message as an inbox knows it. `Ok(None)` if it lacks what it is to be recognised by.
    pub fn delivery(&self, by: Recognition) -> Result<Option<Delivery>, Invalid> {
        match by {
            Recognition::Id => Delivery::by_id(self.id.as_str()).map(Some),
            Recognition::Sequence => self.sequence.clone().map(Delivery::by_sequence).transpose(),
            Recognition::Offset => self.offset.clone().map(Delivery::by_offset).transpose(),
        }
    }
}

/// What a consumer tells messages apart by. It stays the same for a whole generation: proofs of one kind say nothing
/// about another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recognition {
    /// The producer's id. It suits every source, and costs a row per message for as long as they are retained.
    Id,
    /// The place among Semel's own events. It costs a row per lane, for ever.
    Sequence,
    /// The place in a partition of Kafka. It costs a row per partition, for ever, and a message that fails holds up
    /// its whole partition.
    Offset,
}

impl Recognition {
    /// Its name in settings and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Recognition::Id => "id",
            Recognition::Sequence => "sequence",
            Recognition::Offset => "offset",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Recognition> {
        [Recognition::Id, Recognition::Sequence, Recognition::Offset].into_iter().find(|it| it.as_str() == name)
    }

    /// What an identity is recognised by.
    pub fn of(identity: &Identity) -> Recognition {
        match identity {
            Identity::Id(_) => Recognition::Id,
            Identity::Sequence(_) => Recognition::Sequence,
            Identity::Offset(_) => Recognition::Offset,
        }
    }
}

/// A message and what its source needs to acknowledge it.
#[derive(Debug)]
pub struct Received<R> {
    /// The message.
    pub message: Message,
    /// Why it can never be applied, if it cannot: it goes to the dead letters at once. Its message is what could be
    /// read of it.
    pub unusable: Option<String>,
    /// What acknowledges it.
    pub receipt: R,
}

/// For how long a source may deliver a message again after its first delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redelivery {
    /// No longer than this.
    Within {
        /// How long.
        longest: Duration,
        /// What that is made of, as an operator would check it: `retention.ms 7d + segment.ms 7d + check 5m`.
        because: String,
    },
    /// Without end.
    Unlimited {
        /// Why, as an operator would check it.
        because: String,
    },
}

/// Why a source failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The broker cannot be reached or is overloaded. Try again later.
    #[error("the source cannot be read now")]
    Unavailable(#[source] crate::sink::Source),
    /// It can never work as it is set up: somebody has to do something first.
    #[error("the source refuses to be read")]
    Refused(#[source] crate::sink::Source),
}

/// A broker, or anything else that brings messages, again and again until they are acknowledged.
///
/// A source never acknowledges by itself. Everything it has brought and that was not acknowledged when its process
/// dies, it brings again.
pub trait Source: Send + Sync + 'static {
    /// What acknowledges a message: it names one delivery of it.
    type Receipt: Send + Sync + 'static;

    /// Waits for messages and returns at least one and at most `most`, those of one ordering key in their order.
    ///
    /// Dropping the future loses nothing: what it had received is returned by the next call, or delivered again. Nobody
    /// calls it twice at a time, but a source must stay alive while nobody calls it: the runner does so only when it
    /// has room.
    fn receive(&self, most: usize) -> impl Future<Output = Result<Vec<Received<Self::Receipt>>, Error>> + Send;

    /// Acknowledges messages whose effects are committed. If that fails, or the process dies before, they come again
    /// and are duplicates.
    fn acknowledge(&self, receipts: &[&Self::Receipt]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Gives messages back, to be delivered again, here or to somebody else.
    fn give_back(&self, receipts: &[&Self::Receipt]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Tells the broker that these are still being worked on, so that it does not deliver them to somebody else. Called
    /// for everything in hand, every [`Source::prolong_every`].
    fn prolong(&self, receipts: &[&Self::Receipt]) -> impl Future<Output = Result<(), Error>> + Send {
        let _ = receipts;
        async { Ok(()) }
    }

    /// How often [`Source::prolong`] has to be called; `None` if never.
    fn prolong_every(&self) -> Option<Duration> {
        None
    }

    /// For how long it may deliver a message again, as the broker is set up now.
    fn redelivery(&self) -> impl Future<Output = Result<Redelivery, Error>> + Send;

    /// Ends in good order. What was not acknowledged will be delivered again.
    fn close(&self) -> impl Future<Output = ()> + Send;
}
