//! Telling whether messages were seen, and recording that they are.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::str::FromStr;

use rusqlite::{Connection, OptionalExtension};
use semel::Error;
use semel::inbox::{Accepted, Consumer, Delivery, Identity, MAX_BATCH, MAX_RANGES, Rule, Sequence, Version};

use super::offset::Partitions;
use crate::error::classify;

const REGISTER_CONSUMER: &str = include_str!("../sql/inbox/register_consumer.sql");
const CONSUMER: &str = include_str!("../sql/inbox/consumer.sql");
const ACCEPT_ID: &str = include_str!("../sql/inbox/accept_id.sql");
const SEEN_ID: &str = include_str!("../sql/inbox/seen_id.sql");
const MARK: &str = include_str!("../sql/inbox/mark.sql");
const STORE_MARK: &str = include_str!("../sql/inbox/store_mark.sql");
const VERSION: &str = include_str!("../sql/inbox/version.sql");
const STORE_VERSION: &str = include_str!("../sql/inbox/store_version.sql");

/// Accepts messages in their order, inside a turn or a transaction that the caller owns. The write transaction is the
/// lock on all that is read here: nobody can accept the same message before it ends, and what is recorded goes with it,
/// whatever becomes of it (I6). After an error it has to be rolled back.
pub(crate) fn accept(
    connection: &Connection,
    consumer: &Consumer,
    deliveries: &[Delivery],
    now_ms: i64,
) -> Result<Vec<Accepted>, Error> {
    check_batch(deliveries)?;
    let proofs = Proofs::register(connection, consumer, now_ms)?;
    let (mut lanes, mut partitions) = (Lanes::default(), Partitions::default());
    let mut accepted = Vec::with_capacity(deliveries.len());
    for delivery in deliveries {
        let first = match &delivery.identity {
            Identity::Id(id) => proofs.accept_id(id, now_ms)?,
            Identity::Sequence(sequence) => lanes.accept(&proofs, sequence)?,
            Identity::Offset(offset) => partitions.accept(&proofs, offset)?,
            _ => return Err(Error::Settings("this store does not know how to tell such messages apart".to_owned())),
        };
        accepted.push(match &delivery.version {
            _ if !first => Accepted::Duplicate,
            None => Accepted::First,
            Some(version) => proofs.accept_version(version)?,
        });
    }
    lanes.store(&proofs)?;
    partitions.store(&proofs)?;
    Ok(accepted)
}

/// Refuses more messages than may be asked about at once (I12).
pub(super) fn check_batch(deliveries: &[Delivery]) -> Result<(), Error> {
    if deliveries.len() > MAX_BATCH {
        let problem = format!("a transaction may accept {MAX_BATCH} messages at once, not {}", deliveries.len());
        return Err(Error::Settings(problem));
    }
    Ok(())
}

/// What one consumer has seen in one generation.
pub(super) struct Proofs<'c> {
    pub(super) connection: &'c Connection,
    pub(super) consumer: i64,
    pub(super) generation: u32,
}

impl<'c> Proofs<'c> {
    /// A consumer gets its number with the first message that it accepts.
    pub(super) fn register(connection: &'c Connection, consumer: &Consumer, now_ms: i64) -> Result<Proofs<'c>, Error> {
        let mut register = connection.prepare_cached(REGISTER_CONSUMER).map_err(classify)?;
        register.execute((consumer.name(), now_ms)).map_err(classify)?;
        let missing = || Error::Statement(format!("consumer {:?} has no number", consumer.name()).into());
        Proofs::find(connection, consumer)?.ok_or_else(missing)
    }

    /// Nothing if the consumer has accepted no message.
    pub(super) fn find(connection: &'c Connection, consumer: &Consumer) -> Result<Option<Proofs<'c>>, Error> {
        let mut number = connection.prepare_cached(CONSUMER).map_err(classify)?;
        let number = number.query_row((consumer.name(),), |row| row.get(0)).optional().map_err(classify)?;
        Ok(number.map(|number| Proofs { connection, consumer: number, generation: consumer.generation() }))
    }

    pub(super) fn has_id(&self, id: &str) -> Result<bool, Error> {
        let mut seen = self.connection.prepare_cached(SEEN_ID).map_err(classify)?;
        seen.query_row((self.consumer, self.generation, id), |row| row.get(0)).map_err(classify)
    }

    /// Whether the id had not been seen. The primary key judges.
    fn accept_id(&self, id: &str, now_ms: i64) -> Result<bool, Error> {
        let mut insert = self.connection.prepare_cached(ACCEPT_ID).map_err(classify)?;
        Ok(insert.execute((self.consumer, self.generation, id, now_ms)).map_err(classify)? > 0)
    }

    /// What the version means to its entity; if it applies, the entity is at that version.
    pub(super) fn accept_version(&self, version: &Version) -> Result<Accepted, Error> {
        let mut last = self.connection.prepare_cached(VERSION).map_err(classify)?;
        let last = last.query_row((self.consumer, self.generation, &version.entity), |row| row.get(0));
        let last: i64 = last.optional().map_err(classify)?.unwrap_or(0);
        let number = i64::try_from(version.version).unwrap_or(0);
        if number < 1 {
            return Err(out_of_bounds("version", version.version));
        }
        if number <= last {
            return Ok(Accepted::Stale);
        }
        if version.rule == Rule::Each && number - last > 1 {
            return Ok(Accepted::Early);
        }
        let mut store = self.connection.prepare_cached(STORE_VERSION).map_err(classify)?;
        store.execute((self.consumer, self.generation, &version.entity, number)).map_err(classify)?;
        Ok(Accepted::First)
    }

    /// The sequences that were seen of a lane.
    fn applied(&self, (incarnation, topic, lane): LaneName<'_>) -> Result<Ranges, Error> {
        let mut mark = self.connection.prepare_cached(MARK).map_err(classify)?;
        let params = (self.consumer, self.generation, incarnation, topic, lane);
        let applied: Option<String> = mark.query_row(params, |row| row.get(0)).optional().map_err(classify)?;
        let applied = applied.map_or_else(|| Ok(Ranges::default()), |applied| applied.parse());
        applied.map_err(|Unreadable| {
            Error::Statement(format!("what was applied of lane {lane} of topic {topic} cannot be read").into())
        })
    }
}

/// A number that no message has, which nobody could tell from what is not there (I12).
pub(super) fn out_of_bounds(what: &str, value: impl fmt::Display) -> Error {
    Error::Statement(format!("no message has {what} {value}").into())
}

/// The incarnation, the topic and the number of a lane.
type LaneName<'d> = (&'d str, &'d str, u16);

/// The lanes that a batch of messages comes from. Each is read once and stored once.
#[derive(Default)]
pub(super) struct Lanes<'d>(BTreeMap<LaneName<'d>, Lane>);

struct Lane {
    applied: Ranges,
    changed: bool,
}

impl<'d> Lanes<'d> {
    /// Whether the sequence had not been seen. It is from now on.
    fn accept(&mut self, proofs: &Proofs<'_>, sequence: &'d Sequence) -> Result<bool, Error> {
        let lane = self.lane(proofs, sequence)?;
        let first = lane.applied.insert(sequence.sequence);
        lane.changed |= first;
        Ok(first)
    }

    /// Whether the sequence was seen.
    pub(super) fn has(&mut self, proofs: &Proofs<'_>, sequence: &'d Sequence) -> Result<bool, Error> {
        Ok(self.lane(proofs, sequence)?.applied.contains(sequence.sequence))
    }

    fn lane(&mut self, proofs: &Proofs<'_>, sequence: &'d Sequence) -> Result<&mut Lane, Error> {
        if !(1..i64::MAX.unsigned_abs()).contains(&sequence.sequence) {
            return Err(out_of_bounds("sequence", sequence.sequence));
        }
        let name = (sequence.incarnation.as_str(), sequence.topic.as_str(), sequence.lane);
        Ok(match self.0.entry(name) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(Lane { applied: proofs.applied(name)?, changed: false }),
        })
    }

    /// [`Error::Ahead`] if a lane has more holes than it may (I12). What counts is what all messages make of it
    /// together.
    fn store(&self, proofs: &Proofs<'_>) -> Result<(), Error> {
        let mut store = proofs.connection.prepare_cached(STORE_MARK).map_err(classify)?;
        for ((incarnation, topic, number), lane) in self.0.iter().filter(|(_, lane)| lane.changed) {
            if lane.applied.count() > MAX_RANGES {
                return Err(Error::Ahead { topic: (*topic).to_owned(), lane: *number, limit: MAX_RANGES });
            }
            let applied = lane.applied.to_string();
            store
                .execute((proofs.consumer, proofs.generation, incarnation, topic, number, applied))
                .map_err(classify)?;
        }
        Ok(())
    }
}

/// A set of sequences, as first and last of the ranges that they form: in order, and never touching, so that one hole
/// costs one range, however many sequences follow it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ranges(Vec<(u64, u64)>);

/// A text that is not a set of sequences as this store writes it.
#[derive(Debug, PartialEq, Eq)]
struct Unreadable;

impl Ranges {
    /// Adds a sequence. False if it was there.
    fn insert(&mut self, sequence: u64) -> bool {
        let Ranges(ranges) = self;
        let after = ranges.partition_point(|(_, last)| *last < sequence);
        let (before, behind) = ranges.split_at_mut(after);
        let before = before.last_mut().filter(|(_, last)| *last + 1 == sequence);
        let behind = behind.first_mut();
        match (before, behind) {
            (_, Some((first, _))) if *first <= sequence => return false,
            (Some((_, last)), Some((first, end))) if *first == sequence + 1 => {
                *last = *end;
                ranges.remove(after);
            }
            (Some((_, last)), _) => *last = sequence,
            (None, Some((first, _))) if *first == sequence + 1 => *first = sequence,
            (None, _) => ranges.insert(after, (sequence, sequence)),
        }
        true
    }

    fn contains(&self, sequence: u64) -> bool {
        let Ranges(ranges) = self;
        let at = ranges.partition_point(|(_, last)| *last < sequence);
        ranges.get(at).is_some_and(|(first, _)| *first <= sequence)
    }

    /// How many ranges there are.
    fn count(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.0.iter().enumerate() {
            write!(f, "{}{first}-{last}", if position == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Ranges {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Ranges, Unreadable> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for range in text.split(',') {
            let (first, last) = range.split_once('-').ok_or(Unreadable)?;
            let (first, last): (u64, u64) =
                (first.parse().map_err(|_| Unreadable)?, last.parse().map_err(|_| Unreadable)?);
            let follows = ranges.last().is_none_or(|(_, last)| first > *last + 1);
            if !follows || first == 0 || last < first || last >= i64::MAX.unsigned_abs() {
                return Err(Unreadable);
            }
            ranges.push((first, last));
        }
        Ok(Ranges(ranges))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Ranges, Unreadable};

    fn of(sequences: impl IntoIterator<Item = u64>) -> Ranges {
        let mut ranges = Ranges::default();
        sequences.into_iter().for_each(|sequence| assert!(ranges.insert(sequence)));
        ranges
    }

    #[test]
    fn a_hole_costs_one_range_however_many_sequences_follow_it() {
        assert_eq!(of(1..=10_000).to_string(), "1-10000");
        assert_eq!(of((1..=10_000).filter(|sequence| *sequence != 7)).to_string(), "1-6,8-10000");
        assert_eq!(of((1..=10_000).rev()).count(), 1);
        assert_eq!(of((1..=9).step_by(2)).to_string(), "1-1,3-3,5-5,7-7,9-9");
    }

    #[test]
    fn a_sequence_is_there_once_wherever_it_falls() {
        for (sequence, grown) in
            [(1, "1-1,3-5,8-8"), (2, "2-5,8-8"), (6, "3-6,8-8"), (7, "3-5,7-8"), (9, "3-5,8-9"), (10, "3-5,8-8,10-10")]
        {
            let mut ranges: Ranges = "3-5,8-8".parse().unwrap();
            assert!(ranges.insert(sequence));
            assert_eq!(ranges.to_string(), grown);
            assert!(!ranges.insert(sequence));
        }
        let mut ranges: Ranges = "3-5,7-8".parse().unwrap();
        assert!([3, 4, 5, 7, 8].into_iter().all(|sequence| !ranges.insert(sequence)));
        assert!(ranges.insert(6));
        assert_eq!(ranges.to_string(), "3-8");
        let most = u64::try_from(i64::MAX).unwrap() - 1;
        assert_eq!(of([most, most - 1]).to_string().parse(), Ok(of([most - 1, most])));
    }

    #[test]
    fn ranges_hold_the_same_as_a_plain_set_and_come_back_from_their_text() {
        for seed in 1..=20_u64 {
            let mut random = seed;
            let (mut ranges, mut plain) = (Ranges::default(), BTreeSet::new());
            for _ in 0..2_000 {
                // Xorshift: the same numbers in every run.
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let sequence = 1 + random % (seed * 100);
                assert_eq!(ranges.contains(sequence), plain.contains(&sequence), "seed {seed}: {sequence}");
                assert_eq!(ranges.insert(sequence), plain.insert(sequence), "seed {seed}: {sequence}");
            }
            let starts = plain.iter().filter(|sequence| !plain.contains(&(*sequence - 1)));
            assert_eq!(ranges.count(), starts.count(), "seed {seed}");
            let listed: Vec<u64> = ranges.0.iter().flat_map(|(first, last)| *first..=*last).collect();
            assert_eq!(listed, plain.into_iter().collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(ranges.to_string().parse(), Ok(ranges), "seed {seed}");
        }
    }

    #[test]
    fn what_this_store_would_not_have_written_is_not_read() {
        for text in [
            "",
            "1",
            "1-",
            "-1",
            "0-1",
            "2-1",
            "1-2,",
            "1-2,3-4",
            "1-2,2-4",
            "5-6,1-2",
            "1-2, 4-5",
            "1-2-3",
            "a-b",
            "1-9223372036854775807",
            "1-99999999999999999999",
        ] {
            assert_eq!(text.parse::<Ranges>(), Err(Unreadable), "{text:?}");
        }
    }
}
