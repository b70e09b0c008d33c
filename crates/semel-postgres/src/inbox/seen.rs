//! Looking whether messages were seen, without recording anything.

use semel::Error;
use semel::inbox::{Consumer, Delivery};

use super::accept::{Asking, Batch, no_answer};
use crate::error::classify;
use crate::store::Postgres;

/// They read what is committed and take no lock.
const LOOKING: Asking = Asking {
    one: None,
    ids: include_str!("../sql/inbox_seen_ids.sql"),
    sequences: include_str!("../sql/inbox_seen_sequences.sql"),
    offsets: include_str!("../sql/inbox_seen_offsets.sql"),
};

pub(super) async fn seen(store: &Postgres, consumer: &Consumer, deliveries: &[Delivery]) -> Result<Vec<bool>, Error> {
    let mut seen = vec![false; deliveries.len()];
    for question in Batch::new(consumer, deliveries)?.questions(&LOOKING)? {
        let row = store.call(question.sql, &question.params()).await?;
        let answers: Vec<bool> = row.try_get(0).map_err(classify)?;
        if answers.len() != question.about.len() {
            return Err(no_answer());
        }
        question.about.iter().zip(answers).for_each(|(position, answer)| seen[*position] = answer);
    }
    Ok(seen)
}
