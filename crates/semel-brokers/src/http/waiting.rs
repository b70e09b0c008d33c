//! Requests that wait until their message is applied.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, watch};

/// What a sender is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The message is applied, and its effect is committed.
    Applied,
    /// It is not, and should be sent again.
    Later,
}

/// Who waits for which message. A message that is sent again while it is in hand is not handed out twice: all who sent
/// it wait for the same end.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    held: Mutex<HashMap<String, watch::Sender<Option<Answer>>>>,
}

/// What answers the senders of one message. Whoever drops it unanswered tells them to send it again.
#[derive(Debug)]
pub struct Receipt {
    id: String,
    answer: watch::Sender<Option<Answer>>,
    waiting: Arc<Waiting>,
    /// What its body takes of the room there is, whether or not its sender still waits (I12).
    room: Mutex<Option<OwnedSemaphorePermit>>,
}

/// A sender's place.
pub(super) struct Place {
    /// What to hand out, if the message is not in hand already.
    pub(super) first: Option<Receipt>,
    answer: watch::Receiver<Option<Answer>>,
}

impl Waiting {
    /// Begins to wait for a message.
    pub(super) fn enter(self: &Arc<Self>, id: &str) -> Place {
        let mut held = self.lock();
        if let Some(answer) = held.get(id) {
            return Place { first: None, answer: answer.subscribe() };
        }
        let (sender, answer) = watch::channel(None);
        held.insert(id.to_owned(), sender.clone());
        let (waiting, room) = (Arc::clone(self), Mutex::default());
        let receipt = Receipt { id: id.to_owned(), answer: sender, waiting, room };
        Place { first: Some(receipt), answer }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<Option<Answer>>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits until the message is answered.
    pub(super) async fn answer(mut self) -> Answer {
        match self.answer.wait_for(Option::is_some).await {
            Ok(answer) => answer.unwrap_or(Answer::Later),
            Err(_) => Answer::Later,
        }
    }
}

impl Receipt {
    /// Keeps the room of the message's body until it is settled.
    pub(super) fn keep(&self, room: OwnedSemaphorePermit) {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = Some(room);
    }

    /// Tells all who wait. Only the first answer counts.
    pub(super) fn settle(&self, answer: Answer) {
        // Before they are told, so that there is room for what they send next.
        drop(self.room.lock().unwrap_or_else(PoisonError::into_inner).take());
        // It is in hand until they are told, and not a moment longer: what they send next is a message of its own.
        let mut held = self.waiting.lock();
        let first = self.answer.send_if_modified(|settled| settled.is_none() && settled.replace(answer).is_none());
        if first {
            held.remove(&self.id);
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.settle(Answer::Later);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_who_sent_a_message_while_it_is_in_hand_get_its_answer() {
        let waiting = Arc::new(Waiting::default());
        let mut first = waiting.enter("a");
        let (again, other) = (waiting.enter("a"), waiting.enter("b"));
        assert!(again.first.is_none() && other.first.is_some());
        let receipt = first.first.take().unwrap();
        receipt.settle(Answer::Applied);
        receipt.settle(Answer::Later);
        assert_eq!((first.answer().await, again.answer().await), (Answer::Applied, Answer::Applied));
        assert!(waiting.enter("a").first.is_some(), "it is not in hand any more");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_sends_it_again_as_soon_as_it_is_answered_sends_it_anew() {
        let waiting = Arc::new(Waiting::default());
        for _ in 0..20_000 {
            let mut place = waiting.enter("a");
            let receipt = place.first.take().expect("the last one was answered");
            let settling = tokio::task::spawn_blocking(move || receipt.settle(Answer::Applied));
            assert_eq!(place.answer().await, Answer::Applied);
            assert!(waiting.enter("a").first.is_some());
            settling.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_message_that_is_dropped_is_to_be_sent_again() {
        let waiting = Arc::new(Waiting::default());
        let mut place = waiting.enter("a");
        drop(place.first.take());
        assert_eq!(place.answer().await, Answer::Later);
        assert!(waiting.lock().is_empty());
    }
}
