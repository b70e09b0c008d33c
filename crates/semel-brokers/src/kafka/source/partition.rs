//! What is in hand of one partition, and how far it is done.

use std::collections::BTreeMap;

/// One partition, from its assignment to its end.
///
/// Offsets need not be dense: aborted records, control records and compaction leave gaps. So what is done is never
/// computed from offsets but from what was read: everything before the first record that is still open.
#[derive(Debug)]
pub(super) struct Partition {
    /// Tells this assignment from earlier ones of the same partition: what an earlier one was given is void.
    assignment: u64,
    /// Tells this reading from earlier ones: it begins anew when an ordered partition is read again, and when the log
    /// goes on further down than it was read.
    reading: u64,
    /// Whether records count only in their order, as for those who go by offsets.
    ordered: bool,
    /// Behind the furthest record that was read, or where reading began.
    next: Option<i64>,
    /// The lowest offset that can come next: behind the last one, or where a seek of our own leads. If one below it
    /// comes, the log was cut off or made anew.
    lowest: Option<i64>,
    /// What was handed over, or waits for it, and is not acknowledged: the offset, and in which reading.
    held: BTreeMap<i64, u64>,
    /// What has to come again, likewise.
    given_back: BTreeMap<i64, u64>,
    /// What the group was told last.
    committed: Option<i64>,
    /// Whether it has to be read again from elsewhere first. What is read before that does not count.
    misplaced: bool,
}

/// What to do with a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Hand it over: reading went on at `from`.
    Deliver { from: i64 },
    /// It is in hand, or done.
    Skip,
    /// The log is shorter than what was applied of it: `next` is where it should go on.
    Shorter { next: i64 },
}

impl Partition {
    /// A partition that the group decides about.
    pub(super) fn of_group(assignment: u64) -> Partition {
        Partition {
            assignment,
            reading: assignment,
            ordered: false,
            next: None,
            lowest: None,
            held: BTreeMap::new(),
            given_back: BTreeMap::new(),
            committed: None,
            misplaced: false,
        }
    }

    /// A partition whose consumer goes by offsets. Without a place it is misplaced.
    pub(super) fn of_store(assignment: u64, place: Option<Option<i64>>) -> Partition {
        let misplaced = place.is_none();
        Partition { ordered: true, next: place.flatten(), misplaced, ..Partition::of_group(assignment) }
    }

    pub(super) fn assignment(&self) -> u64 {
        self.assignment
    }

    pub(super) fn reading(&self) -> u64 {
        self.reading
    }

    /// Takes note of a record that the broker brought.
    ///
    /// In a partition that the group decides about, one from below where reading is begins `new_reading`: whoever
    /// recognises messages decides whether it is new.
    pub(super) fn read(&mut self, offset: i64, new_reading: u64) -> Read {
        if !self.ordered && self.lowest.is_some_and(|lowest| offset < lowest) {
            self.begin_anew(offset, new_reading);
        }
        if self.misplaced {
            return Read::Skip;
        }
        self.lowest = Some(offset + 1);
        if let Some(next) = self.next
            && offset < next
        {
            if self.ordered {
                return Read::Shorter { next };
            }
            self.forget_vanished(offset);
            if self.given_back.remove(&offset).is_none() {
                return Read::Skip;
            }
            self.held.insert(offset, self.reading);
            return Read::Deliver { from: offset };
        }
        self.forget_vanished(offset);
        let from = self.next.unwrap_or(offset);
        self.next = Some(offset + 1);
        self.held.insert(offset, self.reading);
        Read::Deliver { from }
    }

    /// The log goes on at `offset`, and what was read from there on is gone from it: receipts of that must not settle
    /// what has taken its place. What is before is as it was.
    fn begin_anew(&mut self, offset: i64, new_reading: u64) {
        self.held.split_off(&offset);
        self.given_back.split_off(&offset);
        self.reading = new_reading;
        self.next = Some(offset);
        self.lowest = Some(offset);
        // What the group knew of a topic that was deleted is deleted with it.
        self.committed = None;
    }

    /// Reading passed by what is gone from the log by now: nobody can get it any more.
    fn forget_vanished(&mut self, offset: i64) {
        while self.given_back.first_key_value().is_some_and(|(first, _)| *first < offset) {
            self.given_back.pop_first();
        }
    }

    /// The effect of a record is committed. It does not matter by which of its deliveries in one reading.
    pub(super) fn acknowledge(&mut self, assignment: u64, reading: u64, offset: i64) {
        if assignment == self.assignment {
            for open in [&mut self.held, &mut self.given_back] {
                if open.get(&offset) == Some(&reading) {
                    open.remove(&offset);
                }
            }
        }
    }

    /// A record has to come again. `true` if everything that was read and not handed over has to be dropped for that.
    ///
    /// In an ordered partition all that was read is void, because its consumer reads on where its store says; receipts
    /// of an earlier reading cannot begin another.
    pub(super) fn give_back(&mut self, assignment: u64, reading: u64, offset: i64, new_reading: u64) -> bool {
        if assignment != self.assignment {
            return false;
        }
        if self.ordered {
            if reading != self.reading {
                return false;
            }
            self.reading = new_reading;
            self.held.clear();
            self.misplaced = true;
            return true;
        }
        if self.held.get(&offset) == Some(&reading) {
            self.held.remove(&offset);
            self.given_back.insert(offset, reading);
            self.misplaced = true;
        }
        false
    }

    pub(super) fn is_misplaced(&self) -> bool {
        self.misplaced
    }

    /// Where a partition that the group decides about has to be read again: at the first record that was given back,
    /// or, if all of these are settled meanwhile, at the first one that did not count while it was misplaced.
    pub(super) fn wanted(&mut self) -> Option<i64> {
        let wanted = self.given_back.first_key_value().map(|(first, _)| *first).or(self.next);
        // A seek that is not answered in time may take place all the same.
        self.lowest = self.lowest.min(wanted);
        wanted
    }

    /// Reading goes on at `place`, or where the log begins.
    pub(super) fn placed(&mut self, place: Option<i64>) {
        if self.ordered {
            self.next = place;
            self.misplaced = false;
        } else {
            self.lowest = place;
            // More may have been given back meanwhile.
            self.misplaced = self.given_back.first_key_value().is_some_and(|(first, _)| Some(*first) < place);
        }
    }

    /// Where the group should read on, if it does not know yet. It counts as told until [`Partition::not_committed`].
    pub(super) fn commit(&mut self) -> Option<i64> {
        let open = self.held.keys().next().into_iter().chain(self.given_back.keys().next()).min();
        let done = open.copied().or(self.next)?;
        if self.committed == Some(done) || (self.ordered && self.misplaced) {
            return None;
        }
        self.committed = Some(done);
        Some(done)
    }

    /// The group was not told after all.
    pub(super) fn not_committed(&mut self) {
        self.committed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(partition: &mut Partition, offsets: &[i64]) {
        for offset in offsets {
            assert!(matches!(partition.read(*offset, 9), Read::Deliver { .. }), "{offset}");
        }
    }

    #[test]
    fn the_group_reads_on_at_the_first_record_that_is_not_acknowledged() {
        let mut partition = Partition::of_group(1);
        assert_eq!(partition.commit(), None);
        // A gap that an aborted transaction left, and one of a control record.
        read(&mut partition, &[3, 4, 9, 11]);
        assert_eq!(partition.commit(), Some(3));
        for offset in [11, 4] {
            partition.acknowledge(1, 1, offset);
            assert_eq!(partition.commit(), None, "nothing before the first one moves");
        }
        partition.acknowledge(1, 1, 3);
        assert_eq!(partition.commit(), Some(9));
        partition.acknowledge(1, 1, 9);
        assert_eq!(partition.commit(), Some(12));
        partition.not_committed();
        assert_eq!(partition.commit(), Some(12));
    }

    #[test]
    fn a_receipt_of_an_earlier_assignment_is_void() {
        let mut partition = Partition::of_group(2);
        read(&mut partition, &[5]);
        partition.acknowledge(1, 1, 5);
        assert!(!partition.give_back(1, 1, 5, 3));
        assert!(!partition.is_misplaced());
        assert_eq!(partition.commit(), Some(5));
    }

    #[test]
    fn what_is_given_back_comes_again_and_what_is_in_hand_does_not() {
        let mut partition = Partition::of_group(1);
        read(&mut partition, &[1, 2, 3, 4]);
        partition.acknowledge(1, 1, 1);
        assert!(!partition.give_back(1, 1, 3, 2));
        assert!(!partition.give_back(1, 1, 2, 2));
        assert!(partition.is_misplaced());
        assert_eq!(partition.read(5, 9), Read::Skip, "it is read again behind the ones before it");
        let first = partition.wanted();
        assert_eq!(first, Some(2));
        partition.placed(first);
        assert_eq!(partition.read(2, 9), Read::Deliver { from: 2 });
        assert_eq!(partition.read(3, 9), Read::Deliver { from: 3 });
        assert_eq!(partition.read(4, 9), Read::Skip);
        assert_eq!(partition.read(5, 9), Read::Deliver { from: 5 });
        partition.acknowledge(1, 1, 2);
        assert_eq!(partition.commit(), Some(3));
    }

    #[test]
    fn what_vanished_from_the_log_holds_nothing_up() {
        let mut partition = Partition::of_group(1);
        read(&mut partition, &[1, 2, 3]);
        partition.give_back(1, 1, 1, 2);
        let place = partition.wanted();
        partition.placed(place);
        assert_eq!(partition.read(3, 9), Read::Skip);
        for offset in [2, 3] {
            partition.acknowledge(1, 1, offset);
        }
        assert_eq!(partition.commit(), Some(4));
    }

    #[test]
    fn more_that_is_given_back_while_seeking_is_sought_again() {
        let mut partition = Partition::of_group(1);
        read(&mut partition, &[1, 2, 3]);
        partition.give_back(1, 1, 3, 2);
        let place = partition.wanted();
        partition.give_back(1, 1, 1, 2);
        partition.placed(place);
        assert!(partition.is_misplaced());
        let place = partition.wanted();
        partition.placed(place);
        assert!(!partition.is_misplaced());
    }

    #[test]
    fn a_log_that_is_made_anew_is_handed_over_from_its_beginning() {
        let mut partition = Partition::of_group(1);
        read(&mut partition, &[0, 1, 2, 3]);
        for offset in [0, 1, 2] {
            partition.acknowledge(1, 1, offset);
        }
        assert_eq!(partition.commit(), Some(3));
        assert_eq!(partition.read(0, 2), Read::Deliver { from: 0 });
        assert_eq!(partition.read(1, 3), Read::Deliver { from: 1 });
        assert_eq!(partition.commit(), Some(0), "the group is set back");
        // What is still in hand of the log before says nothing of the records that took its place.
        assert_eq!(partition.read(2, 4), Read::Deliver { from: 2 });
        assert_eq!(partition.read(3, 5), Read::Deliver { from: 3 });
        partition.acknowledge(1, 1, 3);
        assert!(!partition.give_back(1, 1, 3, 6));
        assert!(!partition.is_misplaced());
        for offset in [0, 1, 2] {
            partition.acknowledge(1, 2, offset);
        }
        assert_eq!(partition.commit(), Some(3), "the new one is open");
        partition.acknowledge(1, 2, 3);
        assert_eq!(partition.commit(), Some(4));
    }

    #[test]
    fn a_log_that_is_cut_off_keeps_what_is_open_before_the_cut() {
        let mut partition = Partition::of_group(1);
        read(&mut partition, &[0, 1, 2, 3]);
        partition.acknowledge(1, 1, 0);
        assert_eq!(partition.read(2, 2), Read::Deliver { from: 2 });
        partition.acknowledge(1, 2, 2);
        assert_eq!(partition.commit(), Some(1));
        assert!(!partition.give_back(1, 1, 1, 3));
        let place = partition.wanted();
        assert_eq!(place, Some(1));
        partition.placed(place);
        assert_eq!(partition.read(1, 3), Read::Deliver { from: 1 });
        assert_eq!(partition.read(2, 3), Read::Skip);
        assert_eq!(partition.read(3, 3), Read::Deliver { from: 3 });
        for offset in [1, 3] {
            partition.acknowledge(1, 2, offset);
        }
        assert_eq!(partition.commit(), Some(4));
    }

    #[test]
    fn the_group_is_told_again_after_its_topic_was_made_anew() {
        let mut partition = Partition::of_group(1);
        read(&mut partition, &[0]);
        partition.acknowledge(1, 1, 0);
        assert_eq!(partition.commit(), Some(1));
        assert_eq!(partition.read(0, 2), Read::Deliver { from: 0 });
        partition.acknowledge(1, 2, 0);
        assert_eq!(partition.commit(), Some(1));
    }

    #[test]
    fn a_log_that_is_made_anew_while_a_record_is_sought_is_read_from_its_beginning() {
        let mut partition = Partition::of_group(1);
        read(&mut partition, &[4, 5, 6]);
        partition.give_back(1, 1, 5, 2);
        assert_eq!(partition.read(0, 2), Read::Skip, "it is misplaced");
        let place = partition.wanted();
        assert_eq!(place, Some(0));
        partition.placed(place);
        assert_eq!(partition.read(0, 3), Read::Deliver { from: 0 });

        // The place that is sought does not exist any more.
        let mut partition = Partition::of_group(1);
        read(&mut partition, &[4, 5, 6]);
        partition.give_back(1, 1, 5, 2);
        let place = partition.wanted();
        partition.placed(place);
        assert_eq!(partition.read(0, 2), Read::Deliver { from: 0 });
        assert_eq!(partition.commit(), Some(0));
    }

    #[test]
    fn a_seek_that_takes_place_although_it_seemed_to_fail_brings_nothing_twice() {
        let mut partition = Partition::of_group(1);
        read(&mut partition, &[1, 2, 3]);
        partition.give_back(1, 1, 2, 2);
        let failed = partition.wanted();
        assert_eq!((failed, partition.read(4, 2), partition.read(2, 2)), (Some(2), Read::Skip, Read::Skip));
        let place = partition.wanted();
        partition.placed(place);
        assert_eq!(partition.read(2, 2), Read::Deliver { from: 2 });
        assert_eq!(partition.read(3, 2), Read::Skip, "it is in hand");
    }

    #[test]
    fn an_ordered_partition_is_read_on_where_its_store_says() {
        let mut partition = Partition::of_store(1, Some(Some(5)));
        assert_eq!(partition.read(7, 9), Read::Deliver { from: 5 });
        assert_eq!(partition.read(8, 9), Read::Deliver { from: 8 });
        assert!(partition.give_back(1, 1, 7, 2));
        assert!(!partition.give_back(1, 1, 8, 3), "one reading is given back once");
        assert_eq!(partition.read(9, 9), Read::Skip);
        assert_eq!(partition.commit(), None);
        partition.placed(Some(8));
        assert_eq!(partition.read(8, 9), Read::Deliver { from: 8 });
        partition.acknowledge(1, 2, 8);
        assert_eq!(partition.commit(), Some(9));
        assert_eq!(partition.read(4, 9), Read::Shorter { next: 9 });
    }
}
