//! Accept, act: one commit, then acknowledge.

use std::collections::HashSet;

use tokio::time::{Instant, timeout, timeout_at};

use crate::error::Next;
use crate::inbox::{Accepted, Consumer, Delivery, Identity, Inbox, JoinInbox};
use crate::once::{Error, Semel, undone};
use crate::store::Tx;
use crate::{Error as StoreError, observe};

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consumed<T> {
    /// Its effect is committed, and it counts as seen.
    Applied(T),
    /// Its effect was committed before. Nothing ran.
    Duplicate,
    /// Its entity is past it. It counts as seen, and nothing ran.
    Stale,
    /// Its entity is not there yet: nothing ran and nothing is recorded. Try it again later.
    Early,
}

/// What became of one message of a batch.
#[derive(Debug)]
pub enum Fate<E> {
    /// Its effect is committed, and it counts as seen.
    Applied,
    /// Its effect was committed before. Nothing ran.
    Duplicate,
    /// Its entity is past it. It counts as seen, and nothing ran.
    Stale,
    /// Its entity is not there yet: nothing ran and nothing is recorded. Try it again later.
    Early,
    /// Its effect failed and was rolled back alone. It does not count as seen.
    Failed(E),
    /// The store refused its effect, which was rolled back alone. It does not count as seen.
    Refused(StoreError),
    /// A message before it, of the same ordering key or Kafka partition, did not apply, so this one was not tried.
    Behind,
}

impl<T> Consumed<T> {
    fn name(&self) -> &'static str {
        match self {
            Consumed::Applied(_) => "applied",
            Consumed::Duplicate => "duplicate",
            Consumed::Stale => "stale",
            Consumed::Early => "retried",
        }
    }
}

impl<E> Fate<E> {
    fn name(&self) -> Option<&'static str> {
        match self {
            Fate::Applied => Some("applied"),
            Fate::Duplicate => Some("duplicate"),
            Fate::Stale => Some("stale"),
            Fate::Early | Fate::Behind => Some("retried"),
            Fate::Failed(_) | Fate::Refused(_) => None,
        }
    }

    /// Whether the message counts as seen once the transaction has committed.
    fn is_seen(&self) -> bool {
        matches!(self, Fate::Applied | Fate::Duplicate | Fate::Stale)
    }
}

impl<S: Inbox> Semel<S> {
    /// Applies a message once. Acknowledge it to its broker when this has returned `Ok`, save for
    /// [`Consumed::Early`].
    ///
    /// After `Applied`, effect and proof are durable together (I6). After an error nothing was committed, save for
    /// [`StoreError::Ambiguous`], where asking again tells. A crash at any point leaves both or neither, and the
    /// broker's next delivery finds which.
    ///
    /// `effect` is run again from its start after a serialization failure or deadlock.
    pub async fn consume<T, E, F>(
        &self,
        consumer: &Consumer,
        delivery: &Delivery,
        effect: F,
    ) -> Result<Consumed<T>, Error<E>>
    where
        F: AsyncFn(&mut S::Tx) -> Result<T, E>,
    {
        let result = self.consume_asked(consumer, delivery, effect).await;
        match &result {
            Ok(consumed) => observe::message(consumer.name(), consumed.name()),
            Err(_) => observe::inbox_failure(consumer.name()),
        }
        result
    }

    async fn consume_asked<T, E, F>(
        &self,
        consumer: &Consumer,
        delivery: &Delivery,
        effect: F,
    ) -> Result<Consumed<T>, Error<E>>
    where
        F: AsyncFn(&mut S::Tx) -> Result<T, E>,
    {
        let mut attempt = 1;
        loop {
            let (mut tx, accepted) = match self.accept(consumer, std::slice::from_ref(delivery)).await {
                Ok(accepted) => accepted,
                Err(error) => {
                    self.again(&mut attempt, consumer.name(), Error::Store(error)).await?;
                    continue;
                }
            };
            let error = match accepted.first().copied().unwrap_or(Accepted::Duplicate) {
                Accepted::Duplicate | Accepted::Early if tx.conflicted() => conflicted(tx).await,
                Accepted::Duplicate => {
                    tx.rollback().await;
                    return Ok(Consumed::Duplicate);
                }
                Accepted::Early => {
                    tx.rollback().await;
                    return Ok(Consumed::Early);
                }
                Accepted::Stale => match self.commit(consumer, std::slice::from_ref(delivery), tx).await {
                    Ok(()) => return Ok(Consumed::Stale),
                    Err(error) => Error::Store(error),
                },
                Accepted::First => match self.run(&mut tx, &effect).await {
                    Ok(value) => match self.commit(consumer, std::slice::from_ref(delivery), tx).await {
                        Ok(()) => return Ok(Consumed::Applied(value)),
                        Err(error) => Error::Store(error),
                    },
                    Err(error) => undone(tx, error).await?,
                },
            };
            self.again(&mut attempt, consumer.name(), error).await?;
        }
    }

    /// [`Semel::consume`] inside a transaction that the caller owns and commits. Nothing is retried. `Applied` means
    /// *applied when the caller commits*: acknowledge the message only after that. After an error, or
    /// [`Consumed::Early`], the caller must roll back.
    pub async fn consume_tx<J, T, E, F>(
        &self,
        tx: &mut J,
        consumer: &Consumer,
        delivery: &Delivery,
        effect: F,
    ) -> Result<Consumed<T>, Error<E>>
    where
        J: JoinInbox<S>,
        F: AsyncFnOnce(&mut J) -> Result<T, E>,
    {
        let accepted = tx.accept(consumer, std::slice::from_ref(delivery)).await?;
        let consumed = match accepted.first().copied().unwrap_or(Accepted::Duplicate) {
            Accepted::Duplicate => Consumed::Duplicate,
            Accepted::Stale => Consumed::Stale,
            Accepted::Early => Consumed::Early,
            Accepted::First => Consumed::Applied(effect(tx).await.map_err(Error::Effect)?),
        };
        observe::message(consumer.name(), consumed.name());
        Ok(consumed)
    }

    /// Applies many messages in one commit, in their order. A message that fails is rolled back alone and told by its
    /// [`Fate`]; the others are committed. The fates are in the order of the messages. After an error nothing was
    /// committed, as with [`Semel::consume`].
    ///
    /// All of it shares one deadline. `effect` may be run more than once for a message: first for all together, and if
    /// one of them fails, for each by itself.
    pub async fn consume_all<M, E, F>(
        &self,
        consumer: &Consumer,
        messages: &[M],
        effect: F,
    ) -> Result<Vec<Fate<E>>, Error<E>>
    where
        M: AsRef<Delivery>,
        F: AsyncFn(&mut S::Tx, &M) -> Result<(), E>,
    {
        let result = self.consume_batch(consumer, messages, effect).await;
        match &result {
            Ok(fates) => {
                fates.iter().filter_map(Fate::name).for_each(|name| observe::message(consumer.name(), name));
                let failed = fates.iter().filter(|fate| fate.name().is_none());
                failed.for_each(|_| observe::inbox_failure(consumer.name()));
            }
            Err(_) => observe::inbox_failure(consumer.name()),
        }
        result
    }

    async fn consume_batch<M, E, F>(
        &self,
        consumer: &Consumer,
        messages: &[M],
        effect: F,
    ) -> Result<Vec<Fate<E>>, Error<E>>
    where
        M: AsRef<Delivery>,
        F: AsyncFn(&mut S::Tx, &M) -> Result<(), E>,
    {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let deliveries: Vec<Delivery> = messages.iter().map(|message| message.as_ref().clone()).collect();
        let mut attempt = 1;
        let mut isolated = false;
        loop {
            let ends = Instant::now() + self.settings().deadline;
            let tried = if isolated {
                self.consume_each(consumer, messages, &effect, ends).await
            } else {
                self.consume_together(consumer, &deliveries, messages, &effect, ends).await
            };
            let error = match tried {
                Ok(Tried::Ready { tx, fates }) => {
                    let seen: Vec<Delivery> = deliveries
                        .iter()
                        .zip(&fates)
                        .filter(|(_, fate)| fate.is_seen())
                        .map(|(it, _)| it.clone())
                        .collect();
                    match self.commit(consumer, &seen, tx).await {
                        Ok(()) => return Ok(fates),
                        // Some message's deferred statement was refused; by itself it will be told apart.
                        Err(error) if !isolated && matches!(error.next(), Next::Stop) => {
                            isolated = true;
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Ok(Tried::Alone(fate)) => return Ok(vec![fate]),
                Ok(Tried::Isolate) => {
                    isolated = true;
                    continue;
                }
                Err(error) => error,
            };
            self.again(&mut attempt, consumer.name(), Error::Store(error)).await?;
        }
    }

    /// All messages in one transaction, for as long as none fails.
    async fn consume_together<M, E, F>(
        &self,
        consumer: &Consumer,
        deliveries: &[Delivery],
        messages: &[M],
        effect: &F,
        ends: Instant,
    ) -> Result<Tried<S::Tx, E>, StoreError>
    where
        F: AsyncFn(&mut S::Tx, &M) -> Result<(), E>,
    {
        let (mut tx, accepted) = match self.accept(consumer, deliveries).await {
            // One lane with too many gaps must not hold up the others.
            Err(StoreError::Ahead { .. }) => return Ok(Tried::Isolate),
            accepted => accepted?,
        };
        let mut fates = Vec::with_capacity(messages.len());
        for (message, accepted) in messages.iter().zip(accepted) {
            fates.push(match accepted {
                Accepted::Duplicate => Fate::Duplicate,
                Accepted::Stale => Fate::Stale,
                Accepted::Early if tx.conflicted() => return Err(conflict(tx).await),
                Accepted::Early => {
                    tx.rollback().await;
                    return Ok(if messages.len() == 1 { Tried::Alone(Fate::Early) } else { Tried::Isolate });
                }
                Accepted::First => match timeout_at(ends, effect(&mut tx, message)).await {
                    Ok(Ok(())) => Fate::Applied,
                    Ok(Err(_)) if tx.conflicted() => return Err(conflict(tx).await),
                    Ok(Err(error)) => {
                        tx.rollback().await;
                        return Ok(if messages.len() == 1 {
                            Tried::Alone(Fate::Failed(error))
                        } else {
                            Tried::Isolate
                        });
                    }
                    Err(_) => {
                        tx.rollback().await;
                        return Err(StoreError::Deadline);
                    }
                },
            });
        }
        Ok(Tried::Ready { tx, fates })
    }

    /// Each message behind a savepoint of its own.
    async fn consume_each<M, E, F>(
        &self,
        consumer: &Consumer,
        messages: &[M],
        effect: &F,
        ends: Instant,
    ) -> Result<Tried<S::Tx, E>, StoreError>
    where
        M: AsRef<Delivery>,
        F: AsyncFn(&mut S::Tx, &M) -> Result<(), E>,
    {
        let store = self.store();
        let mut tx = store.begin_consuming().await?;
        let mut fates = Vec::with_capacity(messages.len());
        let mut stuck = HashSet::new();
        for message in messages {
            let order = Order::of(message.as_ref());
            if order.as_ref().is_some_and(|order| stuck.contains(order)) {
                fates.push(Fate::Behind);
                continue;
            }
            let fate = match store.accept_isolated(&mut tx, consumer, message.as_ref()).await {
                Err(error @ StoreError::Ahead { .. }) => Fate::Refused(error),
                Err(error) => return Err(error),
                Ok(Accepted::Duplicate) => Fate::Duplicate,
                Ok(Accepted::Stale) => Fate::Stale,
                Ok(Accepted::Early) => Fate::Early,
                Ok(Accepted::First) => match timeout_at(ends, effect(&mut tx, message)).await {
                    Ok(Ok(())) => match store.keep(&mut tx).await {
                        Ok(()) => Fate::Applied,
                        Err(_) if tx.conflicted() => return Err(conflict(tx).await),
                        Err(error) => Fate::Refused(error),
                    },
                    Ok(Err(_)) if tx.conflicted() => return Err(conflict(tx).await),
                    Ok(Err(error)) => Fate::Failed(error),
                    Err(_) => {
                        tx.rollback().await;
                        return Err(StoreError::Deadline);
                    }
                },
            };
            if !fate.is_seen() {
                store.take_back(&mut tx).await?;
                // What an early message waits for may be behind it, unless they are read from one partition.
                let waits = matches!((&fate, &order), (Fate::Early, Some(Order::Key(_))));
                stuck.extend(order.filter(|_| !waits));
            }
            fates.push(fate);
        }
        Ok(Tried::Ready { tx, fates })
    }

    async fn accept(&self, consumer: &Consumer, deliveries: &[Delivery]) -> Result<(S::Tx, Vec<Accepted>), StoreError> {
        timeout(self.settings().deadline, self.store().accept(consumer, deliveries))
            .await
            .unwrap_or(Err(StoreError::Deadline))
    }

    /// Commits. If the acknowledgement is lost, the messages are asked about: whoever accepts them again waits until
    /// the old transaction has ended, and then they are duplicates or not.
    async fn commit(&self, consumer: &Consumer, deliveries: &[Delivery], tx: S::Tx) -> Result<(), StoreError> {
        let cause = match self.store().commit_consumed(tx).await {
            Err(StoreError::Ambiguous(cause)) => cause,
            other => return other,
        };
        let ends = Instant::now() + self.settings().settle_for;
        let mut pause = std::time::Duration::from_millis(10);
        loop {
            match timeout_at(ends, self.store().accept(consumer, deliveries)).await {
                Ok(Ok((tx, accepted))) => {
                    tx.rollback().await;
                    let committed = accepted.iter().all(|accepted| *accepted == Accepted::Duplicate);
                    return if committed { Ok(()) } else { Err(StoreError::RolledBack) };
                }
                // Had it committed, its own offsets would be duplicates.
                Ok(Err(StoreError::Fenced)) => return Err(StoreError::Fenced),
                Err(_) => return Err(StoreError::Ambiguous(cause)),
                Ok(Err(_)) if Instant::now() >= ends => return Err(StoreError::Ambiguous(cause)),
                Ok(Err(_)) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(std::time::Duration::from_millis(500));
                }
            }
        }
    }
}

/// How far a batch came.
enum Tried<T, E> {
    /// It is ready to be committed.
    Ready { tx: T, fates: Vec<Fate<E>> },
    /// The only message did not apply, and everything was rolled back.
    Alone(Fate<E>),
    /// A message failed; each has to run by itself.
    Isolate,
}

/// What must not be passed over: after a message that did not apply, those that share it are not tried.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Order<'a> {
    /// A partition of Kafka.
    Partition(&'a str, &'a str, i32),
    /// An ordering key.
    Key(&'a str),
}

impl Order<'_> {
    fn of(delivery: &Delivery) -> Option<Order<'_>> {
        match (&delivery.identity, &delivery.order) {
            (Identity::Offset(offset), _) => Some(Order::Partition(&offset.source, &offset.topic, offset.partition)),
            (_, Some(key)) => Some(Order::Key(key)),
            (_, None) => None,
        }
    }
}

async fn conflict<T: Tx>(tx: T) -> StoreError {
    tx.rollback().await;
    StoreError::Conflict("a statement of the work conflicted".into())
}

async fn conflicted<T: Tx, E>(tx: T) -> Error<E> {
    Error::Store(conflict(tx).await)
}
