//! Letters as tests write them.

use semel::inbox::Identity;
use semel::letter::{Letter, LetterFilter, LetterId, LetterRecord, LetterState};
use semel::operator::Audit;
use semel::{Error, Inbox, Message as Received, Next};

use super::harness::Harness;
use super::lab::Lab;
use super::message::Message;

/// A message as a source would have brought it, in a letter.
pub(super) fn letter(message: &Message) -> Letter {
    let (mut sequence, mut offset) = (None, None);
    match &message.delivery.identity {
        Identity::Sequence(place) => sequence = Some(place.clone()),
        Identity::Offset(place) => offset = Some(place.clone()),
        _ => {}
    }
    let received = Received {
        id: message.label.clone(),
        topic: "charges".to_owned(),
        ordering_key: "account 7".to_owned(),
        message_type: "charge.created".to_owned(),
        producer: "//shop".to_owned(),
        content_type: "application/json".to_owned(),
        payload: b"{\"amount\":\x00\xff}".as_slice().into(),
        headers: [("traceparent", "00-1-2-01"), ("x", "a \"quoted\" \u{1F4B6}"), ("x", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        sequence,
        offset,
    };
    Letter { message: received, cause: "the account is closed: no such row".to_owned(), attempts: 3 }
}

/// Who changes something by hand, and why.
pub(super) fn audit(reason: &str) -> Audit {
    Audit { actor: "ada".to_owned(), reason: reason.to_owned() }
}

/// Every letter.
pub(super) fn any() -> LetterFilter {
    LetterFilter::default()
}

impl<H: Harness> Lab<H> {
    /// Sets a message aside that has not been seen, and returns its letter.
    pub(super) async fn set_aside(&self, message: &Message) -> LetterRecord {
        let store = self.harness.store();
        assert!(store.dead_letter(&self.consumer, &message.delivery, &letter(message)).await.unwrap(), "{message:?}");
        self.letters(&any()).await.pop().unwrap()
    }

    /// Sets a message aside and has it tried again.
    pub(super) async fn redriven(&self, message: &Message) -> LetterRecord {
        let record = self.set_aside(message).await;
        self.redrive(record.id).await;
        self.letter(record.id).await
    }

    /// Has a dead letter tried again.
    pub(super) async fn redrive(&self, id: LetterId) {
        let one = LetterFilter { id: Some(id), ..any() };
        assert_eq!(self.harness.store().redrive_letters(&one, &audit("again"), false).await.unwrap(), 1);
    }

    /// The letters that a filter lets pass.
    pub(super) async fn letters(&self, filter: &LetterFilter) -> Vec<LetterRecord> {
        self.harness.store().letters(filter, 1_000).await.unwrap()
    }

    /// One letter.
    pub(super) async fn letter(&self, id: LetterId) -> LetterRecord {
        let mut found = self.letters(&LetterFilter { id: Some(id), ..any() }).await;
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    /// The state of one letter.
    pub(super) async fn state(&self, id: LetterId) -> LetterState {
        self.letter(id).await.state
    }
}

/// What an operation of the store came to. `None` if it ended in a conflict, as the harness says that it may: run it
/// again.
pub(super) fn settled<H: Harness, T>(done: Result<T, Error>) -> Option<T> {
    match done {
        Err(error) if H::CONFLICTS && error.next() == Next::RunAgain => None,
        done => Some(done.unwrap_or_else(|error| panic!("{error:?}"))),
    }
}
