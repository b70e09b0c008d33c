//! A sink in memory that answers as it is told, for what a relay does about answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use semel::event::PLACEHOLDER;
use semel::sink::{Error, Guarantee, Lane, Outgoing, Position};
use semel::{EventId, Sink};
use tokio::sync::watch;

/// What a [`Script`] does about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Takes it.
    Take,
    /// Refuses it.
    Refuse,
    /// Fails, and has not taken it.
    Fail,
    /// Takes it, and never answers.
    Vanish,
    /// Does not answer until it would answer otherwise, and has not taken it.
    Wait,
}

type Answers = Box<dyn Fn(&Outgoing) -> Answer + Send + Sync>;

/// The sink. Its copies are one.
#[derive(Clone)]
pub(super) struct Script(Arc<Inner>);

struct Inner {
    guarantee: Guarantee,
    answers: watch::Sender<Answers>,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    events: Vec<Outgoing>,
    positions: BTreeMap<Lane, Position>,
    tried: Vec<Outgoing>,
}

impl Script {
    pub(super) fn new(guarantee: Guarantee, answers: impl Fn(&Outgoing) -> Answer + Send + Sync + 'static) -> Script {
        let answers = watch::Sender::new(Box::new(answers) as Answers);
        Script(Arc::new(Inner { guarantee, answers, taken: Mutex::default() }))
    }

    /// Answers like this from now on.
    pub(super) fn answer(&self, answers: impl Fn(&Outgoing) -> Answer + Send + Sync + 'static) {
        drop(self.0.answers.send_replace(Box::new(answers)));
    }

    /// What it has taken, in order: of a transactional one, what a reader of committed records sees.
    pub(super) fn arrived(&self) -> Vec<Outgoing> {
        self.lock().events.clone()
    }

    /// How often placeholders were sent, whatever became of them.
    pub(super) fn placeholders_tried(&self) -> usize {
        self.lock().tried.iter().filter(|event| event.event.event_type == PLACEHOLDER).count()
    }

    /// How often placeholders were taken.
    pub(super) fn placeholders_taken(&self) -> usize {
        self.lock().events.iter().filter(|event| event.event.event_type == PLACEHOLDER).count()
    }

    /// How often events of this key were taken, placeholders aside.
    pub(super) fn taken(&self, ordering_key: &str) -> usize {
        self.lock().events.iter().filter(|event| is_of(event, ordering_key)).count()
    }

    /// Which events were taken under each sequence; of one topic and lane.
    pub(super) fn sequences(&self) -> BTreeMap<u64, BTreeSet<EventId>> {
        let mut sequences: BTreeMap<u64, BTreeSet<EventId>> = BTreeMap::new();
        for event in &self.lock().events {
            sequences.entry(event.sequence).or_default().insert(event.id);
        }
        sequences
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap()
    }

    fn is_transactional(&self) -> bool {
        self.0.guarantee == Guarantee::Transactional
    }
}

impl Sink for Script {
    fn guarantee(&self) -> Guarantee {
        self.0.guarantee
    }

    async fn take_lane(&self, lane: Lane) -> Result<Option<Position>, Error> {
        Ok(self.lock().positions.get(&lane).cloned())
    }

    async fn publish(&self, lane: Lane, batch: &[Outgoing], position: &Position) -> Vec<Result<(), Error>> {
        self.lock().tried.extend_from_slice(batch);
        let answered = |answers: &Answers| batch.iter().map(answers).collect::<Vec<_>>();
        let mut answers = self.0.answers.subscribe();
        let answers = {
            let ready = answers.wait_for(|answers| !answered(answers).contains(&Answer::Wait)).await;
            answered(&ready.expect("the script holds the sender"))
        };
        let whole = answers.iter().all(|answer| matches!(answer, Answer::Take | Answer::Vanish));
        if whole || !self.is_transactional() {
            let mut taken = self.lock();
            let events = batch.iter().zip(&answers);
            let events = events.filter(|(_, answer)| matches!(answer, Answer::Take | Answer::Vanish));
            taken.events.extend(events.map(|(event, _)| event.clone()));
            if self.is_transactional() {
                taken.positions.insert(lane, position.clone());
            }
        }
        if answers.contains(&Answer::Vanish) {
            std::future::pending::<()>().await;
        }
        let result = |answer: Answer| match answer {
            Answer::Refuse => Err(Error::Refused("refused by the script".into())),
            Answer::Fail => Err(Error::Unavailable("failed by the script".into())),
            _ if whole || !self.is_transactional() => Ok(()),
            _ => Err(Error::Behind),
        };
        answers.into_iter().map(result).collect()
    }

    async fn close(&self) {}
}

/// Whether it is an event of this key, and no placeholder.
pub(super) fn is_of(event: &Outgoing, ordering_key: &str) -> bool {
    event.event.ordering_key == ordering_key && event.event.event_type != PLACEHOLDER
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("guarantee", &self.0.guarantee).finish_non_exhaustive()
    }
}
