//! Holds what arrived against what was committed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use semel::sink::Lane;

use super::Arrival;

/// Per ordering key, how many events were committed: they carry the numbers from one to this.
pub type Committed = BTreeMap<String, u64>;

/// How much arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Different events.
    pub events: usize,
    /// Further arrivals of the same events.
    pub duplicates: usize,
    /// Sequences that only a placeholder stands for.
    pub placeholders: usize,
}

/// Says what is wrong, if anything is: an event that was lost, or that nobody committed (I4); two ids for one event,
/// two sequences for one id, or two ids for one sequence; a key whose first occurrences are out of order (I5).
pub fn check(committed: &Committed, arrived: &[Arrival]) -> Result<Tally, String> {
    let mut first: HashMap<&str, &Arrival> = HashMap::new();
    let mut holders: HashMap<(&str, u16, &str, u64), &str> = HashMap::new();
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    let mut tally = Tally { events: 0, duplicates: 0, placeholders: 0 };
    for arrival in arrived {
        let Arrival { id, topic, ordering_key, lane, sequence, incarnation, .. } = arrival;
        if Lane::of(ordering_key).0 != *lane {
            return Err(format!("{ordering_key} is not of lane {lane}"));
        }
        match first.get(id.as_str()) {
            Some(known) if *known == arrival => {
                tally.duplicates += usize::from(!arrival.is_placeholder());
                continue;
            }
            Some(known) => return Err(format!("one id, two events: {known:?} and {arrival:?}")),
            None => drop(first.insert(id, arrival)),
        }
        if let Some(other) = holders.insert((topic, *lane, incarnation, *sequence), id) {
            return Err(format!("{id} and {other} are both number {sequence} of {topic} in lane {lane}"));
        }
        if arrival.is_placeholder() {
            tally.placeholders += 1;
            continue;
        }
        tally.events += 1;
        let number = arrival.number();
        let before = reached.insert(ordering_key, number).unwrap_or(0);
        if number <= before {
            return Err(format!("number {number} of {ordering_key} came first after number {before}: {arrival:?}"));
        }
        if number > before + 1 {
            return Err(format!("number {} of {ordering_key} was lost or overtaken by {number}", before + 1));
        }
    }
    for (key, count) in committed {
        let arrived = reached.get(key.as_str()).copied().unwrap_or(0);
        if arrived != *count {
            return Err(format!("{count} events of {key} were committed and {arrived} arrived"));
        }
    }
    if let Some(key) = reached.keys().find(|key| !committed.contains_key(**key)) {
        return Err(format!("nobody committed an event of {key}"));
    }
    Ok(tally)
}

/// Says where a sequence is missing: per topic, lane and incarnation they count from one without a gap, unless held
/// events got others.
pub fn check_dense(arrived: &[Arrival]) -> Result<(), String> {
    let mut given: BTreeMap<(&str, &str, u16), BTreeSet<u64>> = BTreeMap::new();
    for arrival in arrived {
        given.entry((&arrival.incarnation, &arrival.topic, arrival.lane)).or_default().insert(arrival.sequence);
    }
    for ((_, topic, lane), sequences) in given {
        let missing = (1..).zip(&sequences).find(|(expected, sequence)| expected != *sequence);
        if let Some((expected, found)) = missing {
            return Err(format!("in lane {lane} of {topic} number {found} stands where {expected} should"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(key: &str, number: u64, sequence: u64) -> Arrival {
        Arrival {
            id: format!("{key} {number}"),
            topic: "topic".to_owned(),
            event_type: "test.counted".to_owned(),
            ordering_key: key.to_owned(),
            lane: Lane::of(key).0,
            sequence,
            incarnation: "1".to_owned(),
            payload: format!("{{\"n\":{number}}}").into_bytes(),
        }
    }

    fn committed(count: u64) -> Committed {
        Committed::from([("k".to_owned(), count)])
    }

    #[test]
    fn late_duplicates_of_what_was_committed_are_counted() {
        let [one, two] = [arrival("k", 1, 1), arrival("k", 2, 2)];
        let (event_type, id) = (semel::event::PLACEHOLDER.to_owned(), "another".to_owned());
        let three = Arrival { event_type, id, payload: Vec::new(), ..arrival("k", 3, 3) };
        let arrived = [one.clone(), three.clone(), two.clone(), one, three, two];
        assert_eq!(check(&committed(2), &arrived), Ok(Tally { events: 2, duplicates: 2, placeholders: 1 }));
        assert_eq!(check_dense(&arrived), Ok(()));
    }

    #[test]
    fn every_kind_of_wrong_is_told() {
        let renamed = Arrival { id: "another".to_owned(), ..arrival("k", 1, 1) };
        let elsewhere = Arrival { lane: 64, ..arrival("k", 1, 1) };
        let wrongs = [
            (vec![arrival("k", 1, 1)], "arrived"),
            (vec![arrival("k", 2, 2)], "was lost"),
            (vec![arrival("k", 1, 1), arrival("k", 2, 2), arrival("k", 3, 3)], "arrived"),
            (vec![arrival("k", 1, 1), arrival("k", 2, 2), arrival("stranger", 1, 1)], "nobody committed"),
            (vec![arrival("k", 1, 1), arrival("k", 1, 2), arrival("k", 2, 3)], "one id, two events"),
            (vec![arrival("k", 1, 1), renamed, arrival("k", 2, 3)], "both number 1"),
            (vec![arrival("k", 1, 2), arrival("k", 2, 2)], "both number 2"),
            (vec![elsewhere], "not of lane"),
        ];
        for (arrived, told) in wrongs {
            let wrong = check(&committed(2), &arrived).unwrap_err();
            assert!(wrong.contains(told), "{told}: {wrong}");
        }
        assert!(check_dense(&[arrival("k", 1, 1), arrival("k", 2, 3)]).is_err());
        assert!(check_dense(&[arrival("k", 1, 2)]).is_err());
    }
}
