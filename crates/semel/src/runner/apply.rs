//! One batch, one commit.

use std::sync::Arc;

use super::{Context, Failure, Handler, Shared};
use crate::consume::Fate;
use crate::inbox::{Delivery, Identity, Inbox};
use crate::once::Error;
use crate::source::Source;
use crate::{failpoint, observe};

type Tried = Result<Vec<Fate<Failure>>, Error<Failure>>;

/// Applies a batch.
pub(super) async fn consume<S: Inbox, K: Source, H: Handler<S>>(
    context: Arc<Context<S, K, H>>,
    items: Vec<Shared>,
) -> Tried {
    let known = known(&context, &items).await;
    let unknown: Vec<Shared> =
        items.iter().zip(&known).filter(|(_, known)| !**known).map(|(item, _)| item.clone()).collect();
    let handler = Arc::clone(&context.handler);
    let effect = async move |tx: &mut S::Tx, item: &Shared| {
        if !item.message.is_placeholder() {
            handler.apply(tx, &item.message).await?;
        }
        failpoint::reach(failpoint::CONSUMER_EFFECT_DONE).await;
        Ok::<(), Failure>(())
    };
    let mut fates = context.semel.consume_all(&context.consumer, &unknown, effect).await?.into_iter();
    let name = context.consumer.name();
    let fates = known.iter().map(|known| {
        if *known {
            observe::message(name, "duplicate");
            return Fate::Duplicate;
        }
        fates.next().unwrap_or(Fate::Behind)
    });
    let fates: Vec<_> = fates.collect();
    note(&context, &items, &fates).await;
    Ok(fates)
}

/// Which of these the store knows, of those that a tier takes for seen. A tier alone decides nothing (I6).
async fn known<S: Inbox, K, H>(context: &Context<S, K, H>, items: &[Shared]) -> Vec<bool> {
    let mut known = vec![false; items.len()];
    let ids: Vec<&str> = items.iter().filter_map(|item| id_of(&item.delivery)).collect();
    if ids.len() < items.len() || ids.is_empty() {
        return known;
    }
    for tier in context.tiers.clone() {
        let maybe = tier.maybe_seen(&context.consumer, &ids).await;
        maybe.into_iter().zip(&mut known).for_each(|(maybe, known)| *known |= maybe);
    }
    let asked: Vec<usize> = (0..items.len()).filter(|place| known[*place]).collect();
    known.fill(false);
    if asked.is_empty() {
        return known;
    }
    let deliveries: Vec<Delivery> = asked.iter().map(|place| items[*place].delivery.clone()).collect();
    match context.semel.store().seen(&context.consumer, &deliveries).await {
        Ok(seen) => asked.into_iter().zip(seen).for_each(|(place, seen)| known[place] = seen),
        // Accepting them tells.
        Err(error) => tracing::debug!(%error, "the store could not say what it has seen"),
    }
    known
}

/// Lets the tiers know what is committed.
async fn note<S, K, H>(context: &Context<S, K, H>, items: &[Shared], fates: &[Fate<Failure>]) {
    if context.tiers.is_empty() {
        return;
    }
    let seen =
        items.iter().zip(fates).filter(|(_, fate)| matches!(fate, Fate::Applied | Fate::Duplicate | Fate::Stale));
    let ids: Vec<&str> = seen.filter_map(|(item, _)| id_of(&item.delivery)).collect();
    for tier in context.tiers.clone() {
        tier.note(&context.consumer, &ids).await;
    }
}

fn id_of(delivery: &Delivery) -> Option<&str> {
    match &delivery.identity {
        Identity::Id(id) => Some(id),
        _ => None,
    }
}
