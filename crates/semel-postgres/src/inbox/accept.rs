//! Asking which messages a consumer has not seen.

use std::future::Future;
use std::sync::Arc;

use semel::inbox::{Accepted, Consumer, Delivery, Identity, MAX_BATCH, Rule};
use semel::{Error, Execution};
use tokio_postgres::types::Type;

use super::isolated::Within;
use crate::error::classify;
use crate::parameter::{Parameter, Typed};
use crate::store::Postgres;
use crate::tx::{Holds, Tx};

/// The statements that ask about messages, by what identifies these.
pub(super) struct Asking {
    /// For one alone, of an id and of a sequence, if there is something faster than those for many.
    pub(super) one: Option<(&'static str, &'static str)>,
    pub(super) ids: &'static str,
    pub(super) sequences: &'static str,
    pub(super) offsets: &'static str,
}

const ACCEPTING: Asking = Asking {
    one: Some((
        "SELECT ARRAY[semel.accept($1, $3, $2)]",
        "SELECT ARRAY[semel.accept_sequence($1, $3, $4, $5, $6, $2)]",
    )),
    ids: "SELECT semel.accept_ids($1, $2, $3)",
    sequences: "SELECT semel.accept_sequences($1, $2, $3, $4, $5, $6)",
    offsets: "SELECT semel.accept_offsets($1, $2, $3, $4, $5, $6, $7)",
};

/// For one message alone of a known consumer that nobody has seen, as most are. They return a row, or leave the
/// question open. A function would cost more than what it does.
const SHORT_ID: &str = include_str!("../sql/accept_id.sql");
const SHORT_SEQUENCE: &str = include_str!("../sql/accept_sequence.sql");
const SHORT_OFFSET: &str = include_str!("../sql/accept_offset.sql");

const VERSIONS: &str = "SELECT semel.accept_versions($1, $2, $3, $4, $5)";

/// Begins a transaction and accepts messages in it. BEGIN travels with the first question, and messages of one kind
/// without versions need no other.
pub(super) async fn begin(
    store: &Postgres,
    consumer: &Consumer,
    deliveries: &[Delivery],
) -> Result<(Tx, Vec<Accepted>), Error> {
    match begin_once(store, consumer, deliveries).await {
        // A pooled connection may have died while it was idle, or a table changed under its statements. What is not
        // committed changes nothing, so it is asked once more on another one.
        Err(Error::Unavailable(_) | Error::Conflict(_)) => begin_once(store, consumer, deliveries).await,
        other => other,
    }
}

async fn begin_once(
    store: &Postgres,
    consumer: &Consumer,
    deliveries: &[Delivery],
) -> Result<(Tx, Vec<Accepted>), Error> {
    let mut batch = Batch::new(consumer, deliveries)?;
    let questions = batch.identities()?;
    let Some((first, others)) = questions.split_first() else {
        return Ok((store.begin().await?, Vec::new()));
    };
    let short = batch.short()?;
    let asked = short.as_ref().unwrap_or(first);
    let (session, rows) = store.begin_with(asked.sql, &asked.params()).await?;
    let mut tx = Tx::new(Arc::clone(&store.shared), session, Execution::mint(), Holds::Nothing);
    let left = match (&short, rows.as_slice()) {
        (Some(_), []) => questions.as_slice(),
        (Some(_), [_]) => {
            batch.note(first, vec![true])?;
            others
        }
        (None, [row]) => {
            batch.note(first, row.try_get(0).map_err(classify)?)?;
            others
        }
        _ => return Err(no_answer()),
    };
    let accepted = batch.ask(&mut Within::new(&mut tx), left).await?;
    Ok((tx, accepted))
}

/// Begins a transaction in which nothing has been accepted yet.
pub(super) async fn begin_with_nothing(store: &Postgres) -> Result<Tx, Error> {
    match store.begin().await {
        Err(Error::Unavailable(_)) => store.begin().await,
        other => other,
    }
}

/// A transaction in which questions are asked, on whatever driver.
pub(crate) trait Inside {
    /// Asks about identities: whether each message is the first of its kind.
    fn firsts(&mut self, question: &Question<'_>) -> impl Future<Output = Result<Vec<bool>, Error>> + Send;

    /// Asks about versions: `first`, `stale` or `early`.
    fn standings(&mut self, question: &Question<'_>) -> impl Future<Output = Result<Vec<String>, Error>> + Send;
}

/// A statement, and which messages of a batch its answers are about.
pub(crate) struct Question<'a> {
    pub(crate) sql: &'static str,
    pub(crate) values: Vec<Value<'a>>,
    pub(super) about: Vec<usize>,
}

impl<'a> Question<'a> {
    fn new(sql: &'static str, consumer: &'a Consumer, about: Vec<usize>, values: Vec<Value<'a>>) -> Question<'a> {
        let generation = i32::try_from(consumer.generation()).unwrap_or(i32::MAX);
        let mut all = vec![Value::Text(consumer.name()), Value::Integer(generation)];
        all.extend(values);
        Question { sql, values: all, about }
    }

    pub(crate) fn params(&self) -> Vec<&dyn Parameter> {
        self.values.iter().map(Value::as_parameter).collect()
    }
}

/// A value of a question, in the types that both drivers take.
pub(crate) enum Value<'a> {
    Text(&'a str),
    Smallint(i16),
    Integer(i32),
    Bigint(i64),
    Texts(Typed<Vec<&'a str>>),
    Smallints(Typed<Vec<i16>>),
    Integers(Typed<Vec<i32>>),
    Bigints(Vec<i64>),
    Booleans(Typed<Vec<bool>>),
}

impl Value<'_> {
    fn as_parameter(&self) -> &dyn Parameter {
        match self {
            Value::Text(value) => value,
            Value::Smallint(value) => value,
            Value::Integer(value) => value,
            Value::Bigint(value) => value,
            Value::Texts(values) => values,
            Value::Smallints(values) => values,
            Value::Integers(values) => values,
            Value::Bigints(values) => values,
            Value::Booleans(values) => values,
        }
    }
}

/// Messages that are accepted together, and what has been answered about them so far.
pub(crate) struct Batch<'a> {
    consumer: &'a Consumer,
    deliveries: &'a [Delivery],
    accepted: Vec<Accepted>,
}

impl<'a> Batch<'a> {
    /// Fails if there are more messages than one transaction may accept (I12).
    pub(crate) fn new(consumer: &'a Consumer, deliveries: &'a [Delivery]) -> Result<Batch<'a>, Error> {
        if deliveries.len() > MAX_BATCH {
            let problem = format!(
                "a batch of {} messages, and the limit is {MAX_BATCH}: split it; nothing was accepted",
                deliveries.len()
            );
            return Err(Error::Settings(problem));
        }
        Ok(Batch { consumer, deliveries, accepted: vec![Accepted::Duplicate; deliveries.len()] })
    }

    /// One question for each kind of identity that occurs. Ids come before lanes and lanes before partitions: whoever
    /// accepts several kinds locks them in this order.
    pub(crate) fn identities(&self) -> Result<Vec<Question<'a>>, Error> {
        self.questions(&ACCEPTING)
    }

    /// One question for each kind of identity that occurs, by these statements.
    pub(super) fn questions(&self, asking: &Asking) -> Result<Vec<Question<'a>>, Error> {
        let (mut ids, mut sequences, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
        for (position, delivery) in self.deliveries.iter().enumerate() {
            match &delivery.identity {
                Identity::Id(id) => ids.push((position, id.as_str())),
                Identity::Sequence(sequence) => sequences.push((position, sequence)),
                Identity::Offset(offset) => offsets.push((position, offset)),
                other => return Err(Error::Settings(format!("this version of the store does not know {other:?}"))),
            }
        }
        let mut questions = Vec::new();
        if let ([(position, id)], Some((one, _))) = (ids.as_slice(), asking.one) {
            questions.push(Question::new(one, self.consumer, vec![*position], vec![Value::Text(id)]));
        } else if !ids.is_empty() {
            let values = vec![texts(&ids, |id| id)];
            questions.push(Question::new(asking.ids, self.consumer, positions(&ids), values));
        }
        let lanes = numbers(&sequences, |place| i16::try_from(place.lane))?;
        let within = numbers(&sequences, |place| i64::try_from(place.sequence))?;
        if let ([(position, place)], [lane], [sequence], Some((_, one))) =
            (sequences.as_slice(), lanes.as_slice(), within.as_slice(), asking.one)
        {
            let (incarnation, topic) = (Value::Text(&place.incarnation), Value::Text(&place.topic));
            let values = vec![incarnation, topic, Value::Smallint(*lane), Value::Bigint(*sequence)];
            questions.push(Question::new(one, self.consumer, vec![*position], values));
        } else if !sequences.is_empty() {
            let values = vec![
                texts(&sequences, |place| &place.incarnation),
                texts(&sequences, |place| &place.topic),
                Value::Smallints(Typed(lanes, Type::INT2_ARRAY)),
                Value::Bigints(within),
            ];
            questions.push(Question::new(asking.sequences, self.consumer, positions(&sequences), values));
        }
        if !offsets.is_empty() {
            let values = vec![
                texts(&offsets, |place| &place.source),
                texts(&offsets, |place| &place.topic),
                Value::Integers(Typed(offsets.iter().map(|(_, place)| place.partition).collect(), Type::INT4_ARRAY)),
                Value::Bigints(offsets.iter().map(|(_, place)| place.from).collect()),
                Value::Bigints(offsets.iter().map(|(_, place)| place.offset).collect()),
            ];
            questions.push(Question::new(asking.offsets, self.consumer, positions(&offsets), values));
        }
        Ok(questions)
    }

    /// The short question about a message that comes alone.
    fn short(&self) -> Result<Option<Question<'a>>, Error> {
        let [delivery] = self.deliveries else { return Ok(None) };
        let (sql, values) = match &delivery.identity {
            Identity::Id(id) => (SHORT_ID, vec![Value::Text(id)]),
            Identity::Sequence(place) => {
                let (lane, sequence) = (number(i16::try_from(place.lane))?, number(i64::try_from(place.sequence))?);
                let (incarnation, topic) = (Value::Text(&place.incarnation), Value::Text(&place.topic));
                (SHORT_SEQUENCE, vec![incarnation, topic, Value::Smallint(lane), Value::Bigint(sequence)])
            }
            Identity::Offset(place) => {
                let (source, topic) = (Value::Text(&place.source), Value::Text(&place.topic));
                let (from, offset) = (Value::Bigint(place.from), Value::Bigint(place.offset));
                (SHORT_OFFSET, vec![source, topic, Value::Integer(place.partition), from, offset])
            }
            _ => return Ok(None),
        };
        Ok(Some(Question::new(sql, self.consumer, vec![0], values)))
    }

    /// The question about versions, which only messages raise that have not been seen.
    fn versions(&self) -> Result<Option<Question<'a>>, Error> {
        let versions: Vec<_> = (0..)
            .zip(self.deliveries)
            .zip(&self.accepted)
            .filter(|(_, accepted)| **accepted == Accepted::First)
            .filter_map(|((position, delivery), _)| Some((position, delivery.version.as_ref()?)))
            .collect();
        if versions.is_empty() {
            return Ok(None);
        }
        let each = versions.iter().map(|(_, version)| version.rule == Rule::Each).collect();
        let values = vec![
            texts(&versions, |version| &version.entity),
            Value::Bigints(numbers(&versions, |version| i64::try_from(version.version))?),
            Value::Booleans(Typed(each, Type::BOOL_ARRAY)),
        ];
        Ok(Some(Question::new(VERSIONS, self.consumer, positions(&versions), values)))
    }

    /// Takes note of which messages are the first of their kind.
    fn note(&mut self, question: &Question<'_>, firsts: Vec<bool>) -> Result<(), Error> {
        if firsts.len() != question.about.len() {
            return Err(no_answer());
        }
        for (position, first) in question.about.iter().zip(firsts) {
            self.accepted[*position] = if first { Accepted::First } else { Accepted::Duplicate };
        }
        Ok(())
    }

    /// Asks these questions, and then about versions.
    pub(crate) async fn ask(
        mut self,
        inside: &mut impl Inside,
        questions: &[Question<'a>],
    ) -> Result<Vec<Accepted>, Error> {
        for question in questions {
            let firsts = inside.firsts(question).await?;
            self.note(question, firsts)?;
        }
        if let Some(question) = self.versions()? {
            let standings = inside.standings(&question).await?;
            if standings.len() != question.about.len() {
                return Err(no_answer());
            }
            for (position, standing) in question.about.iter().zip(standings) {
                self.accepted[*position] = match standing.as_str() {
                    "first" => Accepted::First,
                    "stale" => Accepted::Stale,
                    "early" => Accepted::Early,
                    _ => return Err(no_answer()),
                };
            }
        }
        Ok(self.accepted)
    }
}

/// Accepts messages inside a transaction that the caller owns.
pub(crate) async fn join(
    inside: &mut impl Inside,
    consumer: &Consumer,
    deliveries: &[Delivery],
) -> Result<Vec<Accepted>, Error> {
    let batch = Batch::new(consumer, deliveries)?;
    let questions = batch.identities()?;
    batch.ask(inside, &questions).await
}

fn positions<T>(placed: &[(usize, T)]) -> Vec<usize> {
    placed.iter().map(|(position, _)| *position).collect()
}

fn texts<'a, T: Copy>(placed: &[(usize, T)], text: impl Fn(T) -> &'a str) -> Value<'a> {
    Value::Texts(Typed(placed.iter().map(|(_, place)| text(*place)).collect(), Type::TEXT_ARRAY))
}

/// Numbers as the database has them. Deliveries that were made by their constructors fit.
fn numbers<T: Copy, N>(
    placed: &[(usize, T)],
    number: impl Fn(T) -> Result<N, std::num::TryFromIntError>,
) -> Result<Vec<N>, Error> {
    placed.iter().map(|(_, place)| self::number(number(*place))).collect()
}

fn number<N>(number: Result<N, std::num::TryFromIntError>) -> Result<N, Error> {
    number.map_err(|error| Error::Statement(error.into()))
}

pub(super) fn no_answer() -> Error {
    Error::Schema("a function of the schema semel did not answer for each message: run `semel migrate`".to_owned())
}
