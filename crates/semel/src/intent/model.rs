//! One intent against a provider that is slow, loses answers and forgets keys, and workers that die.
//!
//! Whatever happens in whatever order, the provider executes it once at most, and nobody says that it did not happen
//! when it did.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::provider::{Found, Keys, Provider};

const WINDOW: Duration = Duration::from_hours(1);
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a worker may be suspended between the commit and the socket: as long as the margin of the window.
const SUSPENDED: Duration = Duration::from_mins(5);
/// How long the provider takes to show what it did.
const SHOWN_AFTER: Duration = Duration::from_mins(4);

/// Choices, in the order in which they are asked for; when they are used up, all goes well.
struct Dice(std::vec::IntoIter<u8>);

impl Dice {
    fn roll(&mut self, sides: u8) -> u8 {
        self.0.next().unwrap_or(23) % sides
    }

    fn part_of(&mut self, longest: Duration) -> Duration {
        longest * u32::from(self.roll(101)) / 100
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Done,
    Declined,
    Error,
}

/// The provider as it is. It forgets a key as early as it may.
struct World {
    now: Duration,
    keys: Keys,
    replays_failures: bool,
    declines: bool,
    kept: Option<(Duration, Answer)>,
    executed_at: Vec<Duration>,
    on_the_way: Vec<Duration>,
}

impl World {
    fn pass(&mut self, time: Duration, dice: &mut Dice) {
        let until = self.now + time;
        self.on_the_way.sort_unstable();
        let arriving = self.on_the_way.partition_point(|at| *at <= until);
        for at in self.on_the_way.drain(..arriving).collect::<Vec<_>>() {
            self.now = at;
            self.receive(dice);
        }
        self.now = until;
    }

    fn receive(&mut self, dice: &mut Dice) -> Answer {
        let known = match (self.keys, self.kept) {
            (Keys::Forever, Some((_, answer))) => Some(answer),
            (Keys::Kept(window), Some((since, answer))) if self.now < since + window => Some(answer),
            _ => None,
        };
        if let Some(answer) = known {
            return answer;
        }
        let executes = !self.declines && dice.roll(5) > 0;
        if executes {
            self.executed_at.push(self.now);
        }
        let answer = match (executes, self.declines) {
            (_, true) => Answer::Declined,
            (true, _) if dice.roll(3) > 0 => Answer::Done,
            _ => Answer::Error,
        };
        match answer {
            // Without a stored error, work that was done is answered as done and other work is tried again.
            Answer::Error if !self.replays_failures && executes => self.kept = Some((self.now, Answer::Done)),
            Answer::Error if !self.replays_failures => {}
            answer => self.kept = Some((self.now, answer)),
        }
        answer
    }

    /// Sends one request; what the worker hears of it, or `None` if the worker dies meanwhile.
    fn send(&mut self, provider: &Provider, dice: &mut Dice) -> Option<Result<(), Fault>> {
        self.pass(dice.part_of(SUSPENDED), dice);
        let heard = match dice.roll(8) {
            0 => Err(Fault::Unknown),
            1 => {
                self.on_the_way.push(self.now + dice.part_of(TIMEOUT));
                Err(Fault::Unknown)
            }
            2 => {
                self.receive(dice);
                Err(Fault::Unknown)
            }
            3 => Err(Fault::Retryable),
            4 => Err(Fault::Refused),
            _ => match self.receive(dice) {
                Answer::Done => Ok(()),
                Answer::Declined => Err(provider.fault(402).unwrap()),
                Answer::Error => Err(provider.fault(500).unwrap()),
            },
        };
        (dice.roll(4) > 0).then_some(heard)
    }

    fn look_up(&mut self, dice: &mut Dice) -> Result<Found, crate::error::Source> {
        let shown = self.executed_at.iter().any(|at| *at + SHOWN_AFTER <= self.now);
        match dice.roll(6) {
            0 => Err("away".into()),
            1 if !self.executed_at.is_empty() => Ok(Found::UnderWay),
            _ if shown => Ok(Found::Done(serde_json::Value::Null)),
            _ => Ok(Found::Absent),
        }
    }
}

/// What the database has.
struct Rows {
    began: Duration,
    sent_at: Option<Duration>,
    attempts: Vec<(Duration, Option<Fault>)>,
    unwinding: bool,
    restored: bool,
}

impl Rows {
    fn read(&self, now: Duration) -> Standing {
        let outcomes: Vec<_> = self.attempts.iter().map(|(_, outcome)| *outcome).collect();
        let age = now - self.sent_at.unwrap_or(self.began);
        let since_attempt = now - self.attempts.last().map_or(self.began, |(at, _)| *at);
        let standing = Standing::recorded(&outcomes, age, since_attempt);
        let standing = Standing { unwinding: self.unwinding, ..standing };
        if self.restored { standing.restored() } else { standing }
    }

    /// The first attempt opens the window; in a restored database it was open when the flow began.
    fn count(&mut self, now: Duration) {
        self.sent_at = self.sent_at.or(Some(if self.restored { self.began } else { now }));
        self.attempts.push((now, None));
    }

    /// An older copy takes their place.
    fn restore(&mut self, attempts: usize) {
        self.restored = true;
        self.attempts.truncate(attempts);
        self.sent_at = self.sent_at.filter(|_| !self.attempts.is_empty());
    }
}

#[derive(Debug, PartialEq)]
enum End {
    Done,
    Failed,
    Held,
    StillGoing,
}

/// Runs one intent to its end, with workers that die and take over, and says how it ended and how often it happened.
fn run(provider: &Provider, dice: Vec<u8>) -> (End, usize) {
    let mut dice = Dice(dice.into_iter());
    let mut world = World {
        now: Duration::from_hours(1),
        keys: provider.keys,
        replays_failures: provider.replays_failures,
        declines: dice.roll(6) == 0,
        kept: None,
        executed_at: Vec::new(),
        on_the_way: Vec::new(),
    };
    let mut rows = Rows { began: world.now, sent_at: None, attempts: Vec::new(), unwinding: false, restored: false };
    let mut standing = rows.read(world.now);
    let mut end = End::StillGoing;
    for _ in 0..150 {
        let before = world.now;
        let mut died = dice.roll(12) == 0;
        match next(provider, &standing) {
            _ if died => {}
            Next::Send => {
                rows.count(world.now);
                standing.count();
                match world.send(provider, &mut dice) {
                    None => died = true,
                    Some(Ok(())) => end = End::Done,
                    Some(Err(fault)) => {
                        rows.attempts.last_mut().unwrap().1 = Some(fault);
                        standing.end(fault);
                    }
                }
            }
            Next::Pause(pause) => {
                let more = dice.part_of(pause);
                world.pass(pause + more, &mut dice);
                standing.rested = true;
            }
            Next::LookUp => {
                let after = standing.since_attempt;
                standing.look(LookedUp::of(&world.look_up(&mut dice), after));
            }
            Next::Done => end = End::Done,
            Next::Fail(_) => end = End::Failed,
            Next::Hold(_) => end = End::Held,
        }
        standing.pass(world.now - before);
        if end != End::StillGoing {
            break;
        }
        if died {
            let away = [Duration::from_secs(1), Duration::from_mins(2), Duration::from_mins(20), WINDOW];
            let longest = away[usize::from(dice.roll(4))];
            world.pass(dice.part_of(longest), &mut dice);
            rows.unwinding |= dice.roll(8) == 0;
            if dice.roll(8) == 0 {
                rows.restore(usize::from(dice.roll(11)));
            }
            standing = rows.read(world.now);
        }
    }
    world.pass(2 * (TIMEOUT + SUSPENDED), &mut dice);
    (end, world.executed_at.len())
}

fn provider() -> impl Strategy<Value = Provider> {
    let keys = prop_oneof![Just(Keys::None), Just(Keys::Kept(WINDOW)), Just(Keys::Forever)];
    (keys, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(keys, replays, looks_up, resends)| {
        let settles_after = SUSPENDED + SHOWN_AFTER;
        let provider = Provider::http("psp", keys).timeout(TIMEOUT).settles_after(settles_after);
        let provider = if replays { provider.replays_failures() } else { provider };
        let provider = if looks_up { provider.look_up(|_| async { Ok(Found::Absent) }) } else { provider };
        if resends { provider.resend_when_absent() } else { provider }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn an_intent_happens_once_at_most_and_never_fails_if_it_happened(
        provider in provider(), dice in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let (end, executed) = run(&provider, dice);
        prop_assert!(executed <= 1, "{executed} executions, {end:?}");
        match end {
            End::Done => prop_assert_eq!(executed, 1),
            End::Failed => prop_assert_eq!(executed, 0),
            End::Held | End::StillGoing => {}
        }
    }
}

#[test]
fn a_provider_that_answers_is_asked_once() {
    for keys in [Keys::None, Keys::Kept(WINDOW), Keys::Forever] {
        assert_eq!(run(&Provider::http("psp", keys).timeout(TIMEOUT), Vec::new()), (End::Done, 1));
    }
}
