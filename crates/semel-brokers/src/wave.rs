//! Publishing a batch so that no key's events overtake each other.

use std::collections::{HashMap, VecDeque};
use std::future::Future;

use semel::sink::{Error, Outgoing};

/// Sends the batch in waves: each holds the first unsent event of every ordering key that has not failed, up to `limit`
/// events, and the next is sent only when all of it is answered. So of one key at most one event is unacknowledged
/// (I5), and a batch of many keys costs as many round trips as its busiest key has events.
///
/// After an event failed, the later ones of its key are [`Error::Behind`]. After one failed because the broker was
/// unavailable, nothing further is sent: waiting for every key in turn would only take longer to say the same.
pub(crate) async fn publish<'a, F, R>(
    batch: &'a [Outgoing],
    limit: usize,
    mut send: impl FnMut(Vec<&'a Outgoing>) -> F,
) -> Vec<Result<(), Error>>
where
    F: Future<Output = R>,
    R: IntoIterator<Item = Result<(), Error>>,
{
    let mut results: Vec<Option<Result<(), Error>>> = batch.iter().map(|_| None).collect();
    let mut keys: VecDeque<VecDeque<usize>> = VecDeque::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (index, outgoing) in batch.iter().enumerate() {
        let place = *places.entry(&outgoing.event.ordering_key).or_insert_with(|| {
            keys.push_back(VecDeque::new());
            keys.len() - 1
        });
        keys[place].push_back(index);
    }

    let mut available = true;
    while available && !keys.is_empty() {
        let mut wave = Vec::new();
        let mut tails = Vec::new();
        for _ in 0..keys.len().min(limit.max(1)) {
            let Some(mut key) = keys.pop_front() else { break };
            if let Some(first) = key.pop_front() {
                wave.push(first);
                tails.push(key);
            }
        }
        let answers = send(wave.iter().map(|index| &batch[*index]).collect()).await;
        for ((index, mut tail), answer) in wave.into_iter().zip(tails).zip(answers) {
            if let Err(error) = &answer {
                available &= !matches!(error, Error::Unavailable(_));
                for behind in tail.drain(..) {
                    results[behind] = Some(Err(Error::Behind));
                }
            }
            results[index] = Some(answer);
            if !tail.is_empty() {
                keys.push_back(tail);
            }
        }
    }
    for mut key in keys {
        if let Some(first) = key.pop_front() {
            results[first] = Some(Err(unavailable("not sent, because the broker had just become unavailable")));
        }
        for behind in key {
            results[behind] = Some(Err(Error::Behind));
        }
    }
    results.into_iter().map(|result| result.unwrap_or_else(|| Err(unavailable("the broker gave no answer")))).collect()
}

/// The whole batch failed before anything was sent.
pub(crate) async fn fail(batch: &[Outgoing], error: crate::Error) -> Vec<Result<(), Error>> {
    let reason = error.to_string();
    publish(batch, usize::MAX, async |wave| wave.iter().map(|_| Err(unavailable(&reason))).collect::<Vec<_>>()).await
}

/// An [`Error::Unavailable`] with this explanation.
pub(crate) fn unavailable(reason: impl Into<String>) -> Error {
    Error::Unavailable(reason.into().into())
}

/// An [`Error::Refused`] with this explanation.
pub(crate) fn refused(reason: impl Into<String>) -> Error {
    Error::Refused(reason.into().into())
}
