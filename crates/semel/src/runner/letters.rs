//! Dead letters that are to be tried again, and generations that somebody begins.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{Context, Handler, failed};
use crate::error::told;
use crate::inbox::Inbox;
use crate::letter::LetterRecord;
use crate::once::Error as OnceError;
use crate::source::Source;
use crate::store::Tx;
use crate::{Error as StoreError, Next, observe};

/// How many are read at once.
const PAGE: u32 = 100;

/// Applies redriven letters for as long as it is polled, and returns when there is a new generation.
pub(super) async fn look_after<S: Inbox, K: Source, H: Handler<S>>(context: Arc<Context<S, K, H>>) -> u32 {
    let (store, consumer) = (context.semel.store(), &context.consumer);
    loop {
        match store.generation(consumer.name()).await {
            Ok(Some(now)) if now != consumer.generation() => return now,
            Ok(_) => {}
            Err(error) => failed("look for its generation", &error),
        }
        match store.redriven(consumer.name(), PAGE).await {
            Ok(letters) => {
                for letter in letters {
                    redrive(Arc::clone(&context), letter).await;
                }
            }
            Err(error) => failed("look for redriven letters", &error),
        }
        tokio::time::sleep(context.settings.letters_interval.max(Duration::from_millis(10))).await;
    }
}

/// Applies a letter, or buries it again with the cause. It counts as applied if and only if its effect commits (I6).
async fn redrive<S: Inbox, K: Source, H: Handler<S>>(context: Arc<Context<S, K, H>>, record: LetterRecord) {
    let (consumer, id) = (context.consumer.name(), record.letter.message.id.as_str());
    let outcome = if record.generation == context.consumer.generation() {
        // A task of its own: an effect that panics is a letter that failed, and not the end of the consumer.
        // It ends with this one: no effect runs on once the runner has returned.
        let mut tried = JoinSet::new();
        tried.spawn(try_letter(Arc::clone(&context), record.clone()));
        let tried = tried.join_next().await;
        tried.and_then(Result::ok).unwrap_or_else(|| Outcome::Failed("the effect panicked".to_owned()))
    } else {
        let generation = record.generation;
        Outcome::Failed(format!("it is of generation {generation}, and history was replayed since"))
    };
    let cause = match outcome {
        Outcome::Applied => {
            observe::message(consumer, "applied");
            return tracing::info!(consumer, id, "a dead letter was applied");
        }
        Outcome::NotNow => return,
        Outcome::Failed(cause) => cause,
    };
    observe::inbox_failure(consumer);
    tracing::warn!(consumer, id, cause, "a dead letter failed again");
    if let Err(error) = context.semel.store().bury(record.id, &cause).await {
        failed("set a dead letter aside again", &error);
    }
}

/// What became of a letter.
enum Outcome {
    Applied,
    Failed(String),
    /// Somebody else has it, or the store is away: the next look tells.
    NotNow,
}

async fn try_letter<S: Inbox, K: Source, H: Handler<S>>(
    context: Arc<Context<S, K, H>>,
    record: LetterRecord,
) -> Outcome {
    let store = context.semel.store();
    let mut tx = match store.take_letter(record.id).await {
        Ok(Some(tx)) => tx,
        Ok(None) => return Outcome::NotNow,
        Err(error) => return stopped_by(error),
    };
    let (handler, message) = (Arc::clone(&context.handler), record.letter.message);
    let effect = async move |tx: &mut S::Tx| handler.apply(tx, &message).await;
    match context.semel.run(&mut tx, &effect).await {
        Ok(()) => match store.commit_consumed(tx).await {
            Ok(()) => Outcome::Applied,
            Err(error) => stopped_by(error),
        },
        Err(error) => {
            let conflicted = tx.conflicted();
            tx.rollback().await;
            match error {
                _ if conflicted => Outcome::NotNow,
                OnceError::Effect(failure) => Outcome::Failed(told(&failure.cause)),
                OnceError::Store(error) => stopped_by(error),
                error => Outcome::Failed(error.to_string()),
            }
        }
    }
}

/// Whether it is committed or not, a letter says so itself: unless it can never be, the next look tells.
fn stopped_by(error: StoreError) -> Outcome {
    match error.next() {
        Next::Stop => Outcome::Failed(told(&(Box::new(error) as crate::sink::Source))),
        _ => {
            failed("apply a dead letter", &error);
            Outcome::NotNow
        }
    }
}
