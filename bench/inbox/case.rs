//! Who applies messages, and how.

use std::fmt;

use semel::source::Recognition;
use semel_brokers::kafka::pipeline::Guarantee;

/// Where effects go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Postgres,
    Sqlite,
}

/// What tells a message from one that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Nothing: the same work without an inbox.
    Nothing,
    Id,
    Sequence,
    Offset,
}

/// How the statements of an effect travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Each is awaited before the next.
    Awaited,
    /// All travel with COMMIT.
    Deferred,
    /// Each is awaited, and a row in an inbox of one's own travels with BEGIN: what nobody can do with less.
    ByHand,
}

/// What stands in front of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    Off,
    Filter,
    Redis,
}

/// Which messages come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    None,
    /// Every second message is one that came 4,000 messages before.
    Mixed,
    /// A thousand messages, then the same thousand, as after a crash before the acknowledgement.
    Bursts,
}

/// One thing to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    Direct(Direct),
    Runner(Run),
    Pipeline(Piped),
}

/// Workers who call the library, each for messages of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Direct {
    pub(crate) store: Store,
    pub(crate) proof: Proof,
    /// How many messages share a commit.
    pub(crate) batch: u64,
    pub(crate) workers: u64,
    pub(crate) sending: Sending,
}

/// A runner and a source in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) store: Store,
    pub(crate) by: Recognition,
    pub(crate) batch: usize,
    pub(crate) again: Again,
    pub(crate) tier: Tier,
}

/// Records from a topic of Kafka to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piped {
    pub(crate) guarantee: Guarantee,
    pub(crate) batch: usize,
}

impl Case {
    pub(crate) const fn direct(store: Store, proof: Proof, batch: u64, workers: u64, sending: Sending) -> Case {
        Case::Direct(Direct { store, proof, batch, workers, sending })
    }

    pub(crate) const fn runner(store: Store, by: Recognition, batch: usize, again: Again, tier: Tier) -> Case {
        Case::Runner(Run { store, by, batch, again, tier })
    }

    pub(crate) const fn piped(guarantee: Guarantee, batch: usize) -> Case {
        Case::Pipeline(Piped { guarantee, batch })
    }

    /// Everything there is to measure.
    pub(crate) fn all() -> Vec<Case> {
        let mut cases = Vec::new();
        for workers in [1, 8] {
            for batch in [1, 100] {
                for proof in [Proof::Nothing, Proof::Id, Proof::Sequence, Proof::Offset] {
                    cases.push(Case::direct(Store::Postgres, proof, batch, workers, Sending::Awaited));
                }
            }
            for sending in [Sending::ByHand, Sending::Deferred] {
                cases.push(Case::direct(Store::Postgres, Proof::Nothing, 1, workers, sending));
            }
            for batch in [1, 100] {
                cases.push(Case::direct(Store::Postgres, Proof::Id, batch, workers, Sending::Deferred));
            }
        }
        for (workers, batch) in [(1, 1), (8, 1), (1, 100)] {
            for proof in [Proof::Nothing, Proof::Id, Proof::Sequence, Proof::Offset] {
                cases.push(Case::direct(Store::Sqlite, proof, batch, workers, Sending::Awaited));
            }
        }
        for by in [Recognition::Id, Recognition::Sequence, Recognition::Offset] {
            cases.push(Case::runner(Store::Postgres, by, 100, Again::None, Tier::Off));
        }
        for tier in [Tier::Filter, Tier::Redis] {
            cases.push(Case::runner(Store::Postgres, Recognition::Id, 100, Again::None, tier));
        }
        for (again, batch) in [(Again::Mixed, 1), (Again::Mixed, 100), (Again::Bursts, 1), (Again::Bursts, 100)] {
            for tier in [Tier::Off, Tier::Filter, Tier::Redis] {
                cases.push(Case::runner(Store::Postgres, Recognition::Id, batch, again, tier));
            }
        }
        for tier in [Tier::Off, Tier::Filter] {
            cases.push(Case::runner(Store::Sqlite, Recognition::Id, 100, Again::Mixed, tier));
        }
        for batch in [100, 1_000] {
            for guarantee in [Guarantee::AtLeastOnce, Guarantee::ExactlyOnce] {
                cases.push(Case::piped(guarantee, batch));
            }
        }
        cases
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Case::Direct(Direct { store, proof, batch, workers, sending }) => {
                let proof = match proof {
                    Proof::Nothing => "without inbox",
                    Proof::Id => "by id",
                    Proof::Sequence => "by sequence",
                    Proof::Offset => "by offset",
                };
                let sending = match sending {
                    Sending::Awaited => "",
                    Sending::Deferred => ", deferred",
                    Sending::ByHand => ", a row by hand",
                };
                write!(f, "{store}: {proof}, {}, {workers} at a time{sending}", Batch(*batch))
            }
            Case::Runner(Run { store, by, batch, again, tier }) => {
                let again = match again {
                    Again::None => "",
                    Again::Mixed => ", half again, mixed",
                    Again::Bursts => ", half again, in bursts",
                };
                let tier = match tier {
                    Tier::Off => "",
                    Tier::Filter => ", filter",
                    Tier::Redis => ", redis",
                };
                write!(f, "{store}: runner by {}, {}{again}{tier}", by.as_str(), Batch(*batch as u64))
            }
            Case::Pipeline(Piped { guarantee, batch }) => {
                let guarantee = if *guarantee == Guarantee::ExactlyOnce { "exactly once" } else { "at least once" };
                write!(f, "kafka: pipeline {guarantee}, {}", Batch(*batch as u64))
            }
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Store::Postgres { "postgres" } else { "sqlite" })
    }
}

struct Batch(u64);

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 1 { f.write_str("single") } else { write!(f, "batches of {}", self.0) }
    }
}
