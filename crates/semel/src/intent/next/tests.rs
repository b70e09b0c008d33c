//! The table of `next`, row by row.

use super::*;
use crate::provider::Found;

const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);

fn kept() -> Provider {
    Provider::http("psp", Keys::Kept(24 * HOUR))
}

fn without_keys() -> Provider {
    Provider::http("psp", Keys::None)
}

fn looking_up(provider: Provider) -> Provider {
    provider.look_up(|_| async { Ok(Found::Absent) })
}

/// One attempt that came to this, and the pause after it is over.
fn after(fault: Fault) -> Standing {
    came_to(&[Some(fault)])
}

fn came_to(attempts: &[Option<Fault>]) -> Standing {
    Standing::recorded(attempts, MINUTE, MINUTE)
}

fn looked_up(mut standing: Standing, said: LookedUp) -> Standing {
    standing.look(said);
    standing
}

fn rested(standing: Standing) -> Standing {
    Standing { rested: true, ..standing }
}

fn unwinding(standing: Standing) -> Standing {
    Standing { unwinding: true, ..standing }
}

#[test]
fn what_was_not_sent_is_sent() {
    for provider in [kept(), without_keys(), looking_up(without_keys())] {
        assert_eq!(next(&provider, &Standing::first()), Next::Send);
    }
}

#[test]
fn a_retryable_failure_is_tried_again_after_a_pause_also_without_keys() {
    for provider in [kept(), without_keys(), looking_up(without_keys())] {
        let mut standing = Standing::first();
        standing.count();
        standing.end(Fault::Retryable);
        assert_eq!(next(&provider, &standing), Next::Pause(provider.retry.pause(1)));
        assert_eq!(next(&provider, &rested(standing)), Next::Send);
        standing.pass(72 * HOUR);
        assert_eq!(next(&provider, &rested(standing)), Next::Send, "nothing happened, however long ago");
    }
}

#[test]
fn retryable_failures_end() {
    let ten = [Some(Fault::Retryable); 10];
    assert_eq!(next(&kept(), &came_to(&ten)), Next::Fail(Reason::GaveUp(10)));
    assert_eq!(next(&kept(), &came_to(&ten[1..])), Next::Send);
}

#[test]
fn what_was_turned_away_at_once_fails() {
    assert_eq!(next(&kept(), &after(Fault::Refused)), Next::Fail(Reason::Refused));
    assert_eq!(next(&kept(), &came_to(&[Some(Fault::Retryable), Some(Fault::Refused)])), Next::Fail(Reason::Refused));
}

#[test]
fn the_answer_to_the_intent_ends_it_even_after_doubt() {
    assert_eq!(next(&kept(), &after(Fault::Terminal)), Next::Fail(Reason::Terminal));
    let doubted = came_to(&[Some(Fault::Unknown), None, Some(Fault::Terminal)]);
    assert_eq!(next(&kept(), &doubted), Next::Fail(Reason::Terminal));
}

#[test]
fn what_may_have_happened_is_sent_again_inside_the_window() {
    assert_eq!(next(&kept(), &came_to(&[None])), Next::Send, "taken over");
    assert_eq!(next(&kept(), &after(Fault::Unknown)), Next::Send);
    let just_now = Standing { rested: false, ..after(Fault::Unknown) };
    assert_eq!(next(&kept(), &just_now), Next::Pause(kept().retry.pause(1)));
    let old = Standing { age: 9999 * HOUR, ..came_to(&[None]) };
    assert_eq!(next(&Provider::http("psp", Keys::Forever), &old), Next::Send);
}

#[test]
fn pause_timeout_and_margin_must_fit_into_the_window() {
    let provider = kept();
    let latest = 24 * HOUR - provider.keys.margin() - provider.timeout;
    let at = |age| Standing { age, ..after(Fault::Unknown) };
    assert_eq!(next(&provider, &at(latest - Duration::from_millis(1))), Next::Send);
    assert_eq!(next(&provider, &at(latest)), Next::Hold(Doubt::WindowOver));
    assert_eq!(next(&looking_up(provider.clone()), &at(latest)), Next::LookUp);
    let waits = Standing { rested: false, ..at(latest - Duration::from_millis(100)) };
    assert_eq!(next(&provider, &waits), Next::Hold(Doubt::WindowOver), "the pause would end too late");
}

#[test]
fn what_may_have_happened_is_looked_up_or_held_where_it_cannot_be_repeated() {
    let exhausted = came_to(&[Some(Fault::Unknown); 10]);
    let cases = [
        (without_keys(), after(Fault::Unknown), Doubt::NoKeys),
        (without_keys(), came_to(&[None]), Doubt::NoKeys),
        (kept(), after(Fault::UnknownForGood), Doubt::SameAnswer),
        (kept(), exhausted, Doubt::Attempts(10)),
        (kept(), Standing { age: 25 * HOUR, ..came_to(&[None]) }, Doubt::WindowOver),
    ];
    for (provider, standing, doubt) in cases {
        assert_eq!(next(&provider, &standing), Next::Hold(doubt));
        assert_eq!(next(&looking_up(provider), &standing), Next::LookUp, "{doubt}");
    }
}

#[test]
fn being_told_to_come_back_does_not_settle_an_earlier_doubt() {
    for told in [Fault::Retryable, Fault::Refused] {
        for earlier in [None, Some(Fault::Unknown)] {
            let standing = came_to(&[earlier, Some(told)]);
            assert_eq!(next(&kept(), &standing), Next::Send);
            let late = Standing { age: 25 * HOUR, ..standing };
            assert_eq!(next(&kept(), &late), Next::Hold(Doubt::WindowOver), "{told:?} after {earlier:?}");
            assert_eq!(next(&looking_up(kept()), &late), Next::LookUp);
            let mut attempts = [Some(told); 10];
            attempts[0] = earlier;
            assert_eq!(next(&kept(), &came_to(&attempts)), Next::Hold(Doubt::Attempts(10)), "and it does not fail");
        }
    }
}

#[test]
fn what_the_look_up_finds_is_the_end() {
    let provider = looking_up(without_keys());
    for standing in [after(Fault::Unknown), unwinding(after(Fault::Unknown))] {
        assert_eq!(next(&provider, &looked_up(standing, LookedUp::Done)), Next::Done);
        assert_eq!(next(&provider, &looked_up(standing, LookedUp::Failed)), Next::Fail(Reason::FoundFailed));
    }
}

#[test]
fn what_is_under_way_is_looked_up_again_with_growing_pauses() {
    let provider = looking_up(without_keys());
    let mut standing = after(Fault::Unknown);
    for times in 1..50 {
        standing.look(LookedUp::UnderWay);
        assert_eq!(next(&provider, &standing), Next::Pause(provider.retry.pause(times)));
        assert_eq!(next(&provider, &rested(standing)), Next::LookUp);
    }
}

#[test]
fn nothing_found_counts_only_once_the_last_attempt_is_settled() {
    let provider = looking_up(without_keys()).resend_when_absent();
    let settled = provider.timeout + provider.settles_after;
    let after_first = Standing { age: 48 * HOUR, since_attempt: MINUTE, ..after(Fault::Unknown) };
    let early = looked_up(after_first, LookedUp::Absent { after: MINUTE });
    assert_eq!(next(&provider, &early), Next::Pause(settled - MINUTE));
    assert_eq!(next(&provider, &rested(early)), Next::LookUp, "it is asked again: the first answer was too early");
    let mut later = early;
    later.pass(2 * settled);
    assert_eq!(next(&provider, &later), Next::LookUp);
    let almost = LookedUp::Absent { after: settled - Duration::from_millis(1) };
    assert_eq!(next(&provider, &looked_up(later, almost)), Next::LookUp);
    assert_eq!(next(&provider, &looked_up(later, LookedUp::Absent { after: settled })), Next::Send);
}

#[test]
fn nothing_found_is_held_unless_the_profile_allows_a_resend() {
    let settled = LookedUp::Absent { after: HOUR };
    let found_nothing = |standing| looked_up(Standing { since_attempt: HOUR, ..standing }, settled);
    let (holding, resending) = (looking_up(without_keys()), looking_up(without_keys()).resend_when_absent());
    let held = Next::Hold(Doubt::NothingFound);
    assert_eq!(next(&holding, &found_nothing(after(Fault::Unknown))), held);
    assert_eq!(next(&resending, &found_nothing(after(Fault::Unknown))), Next::Send);
    assert_eq!(next(&resending, &found_nothing(came_to(&[Some(Fault::Unknown); 10]))), held, "not for ever");
    assert_eq!(next(&resending, &found_nothing(after(Fault::UnknownForGood))), held, "the key brings the error again");
}

#[test]
fn a_resend_after_nothing_was_found_does_not_open_the_window_again() {
    let provider = looking_up(kept()).resend_when_absent();
    let mut standing = Standing { age: 30 * HOUR, since_attempt: HOUR, ..after(Fault::Unknown) };
    standing.look(LookedUp::Absent { after: HOUR });
    assert_eq!(next(&provider, &standing), Next::Send);
    standing.count();
    standing.end(Fault::Unknown);
    assert_eq!(next(&provider, &rested(standing)), Next::LookUp);
}

#[test]
fn look_ups_that_fail_end_with_a_person() {
    let provider = looking_up(without_keys());
    let mut standing = after(Fault::Unknown);
    for times in 1..10 {
        standing.look(LookedUp::Broken);
        assert_eq!(next(&provider, &standing), Next::Pause(provider.retry.pause(times)));
        assert_eq!(next(&provider, &rested(standing)), Next::LookUp);
    }
    standing.look(LookedUp::Broken);
    assert_eq!(next(&provider, &rested(standing)), Next::Hold(Doubt::LookUpFails(10)));
    standing.look(LookedUp::UnderWay);
    assert_eq!(next(&provider, &rested(standing)), Next::LookUp);
    standing.look(LookedUp::Broken);
    assert_eq!(next(&provider, &rested(standing)), Next::LookUp, "they are counted in a row");
}

#[test]
fn unwinding_sends_nothing_that_did_not_happen() {
    for provider in [kept(), without_keys(), looking_up(kept())] {
        assert_eq!(next(&provider, &unwinding(Standing::first())), Next::Fail(Reason::NotNeeded));
        assert_eq!(next(&provider, &unwinding(after(Fault::Retryable))), Next::Fail(Reason::NotNeeded));
    }
}

#[test]
fn unwinding_looks_up_before_it_sends_again() {
    let pending = unwinding(came_to(&[None]));
    let provider = looking_up(kept());
    assert_eq!(next(&provider, &pending), Next::LookUp);
    let nothing = looked_up(Standing { since_attempt: HOUR, ..pending }, LookedUp::Absent { after: HOUR });
    assert_eq!(next(&provider, &nothing), Next::Hold(Doubt::NothingFound), "a late worker may still send");
    let proof = looking_up(kept()).resend_when_absent();
    assert_eq!(next(&proof, &nothing), Next::Fail(Reason::NothingToUndo));
    let mut under_way = pending;
    (0..10).for_each(|_| under_way.look(LookedUp::UnderWay));
    let over = Standing { age: 25 * HOUR, ..rested(under_way) };
    assert_eq!(next(&provider, &over), Next::Hold(Doubt::LookUpFails(10)));
    let mut broken = pending;
    (0..10).for_each(|_| broken.look(LookedUp::Broken));
    assert_eq!(next(&provider, &rested(broken)), Next::Send, "the key is still recognised, and the answer tells");
    let broken = Standing { age: 25 * HOUR, ..broken };
    assert_eq!(next(&provider, &broken), Next::Hold(Doubt::LookUpFails(10)));
    assert_eq!(next(&kept(), &pending), Next::Send);
    assert_eq!(next(&without_keys(), &pending), Next::Hold(Doubt::NoKeys));
}

#[test]
fn in_a_restored_database_whatever_has_no_result_may_have_happened() {
    let began = |age| Standing { age, ..Standing::first() }.restored();
    assert_eq!(next(&kept(), &began(HOUR)), Next::Send);
    assert_eq!(next(&kept(), &began(25 * HOUR)), Next::Hold(Doubt::WindowOver));
    assert_eq!(next(&without_keys(), &began(HOUR)), Next::Hold(Doubt::NoKeys));
    let turned_away = came_to(&[Some(Fault::Retryable)]).restored();
    assert_eq!(next(&without_keys(), &turned_away), Next::Hold(Doubt::NoKeys));
    assert_eq!(turned_away.since_attempt, Duration::ZERO, "an attempt may have been made just before");
}

#[test]
fn nothing_in_doubt_is_sent_without_a_key_that_is_recognised_or_a_settled_look_up() {
    let faults = [Fault::Retryable, Fault::Refused, Fault::Unknown, Fault::UnknownForGood];
    let lasts = [None].into_iter().chain(faults.map(Some));
    let after = Duration::from_mins(10);
    let said = [LookedUp::UnderWay, LookedUp::Broken, LookedUp::Absent { after }, LookedUp::Absent { after: MINUTE }];
    let saids: Vec<_> = [None].into_iter().chain(said.map(Some)).collect();
    let keys = [Keys::None, Keys::Kept(MINUTE), Keys::Kept(24 * HOUR), Keys::Forever];
    let mut sent = 0;
    for last in lasts {
        for looked_up in &saids {
            for bits in 0..64u8 {
                for keys in keys {
                    for (attempts, age) in [(0, HOUR), (1, HOUR), (9, 23 * HOUR), (10, HOUR), (10, 24 * HOUR)] {
                        let bit = |n: u8| (bits >> n) & 1 == 1;
                        let plain = Provider::http("psp", keys);
                        let provider = if bit(0) { looking_up(plain) } else { plain };
                        let provider = if bit(1) { provider.resend_when_absent() } else { provider };
                        let standing = Standing {
                            attempts,
                            last: last.filter(|_| attempts > 0),
                            doubt: bit(2),
                            age,
                            since_attempt: MINUTE,
                            rested: bit(3),
                            looked_up: looked_up.filter(|_| provider.looks_up()),
                            look_ups: if bit(4) { 10 } else { 1 },
                            unwinding: bit(5),
                        };
                        let decided = next(&provider, &standing);
                        let proven = standing.looked_up == Some(LookedUp::Absent { after }) && bit(1);
                        let stuck = standing.last == Some(Fault::UnknownForGood);
                        let recognised = keys.recognise(age, provider.timeout) && !stuck;
                        match decided {
                            Next::Send => {
                                sent += 1;
                                assert!(attempts < provider.retry.attempts, "{standing:?}");
                                let harmless = !standing.in_doubt() || recognised || proven;
                                assert!(harmless, "{provider:?} {standing:?}");
                            }
                            Next::Fail(Reason::NothingToUndo) => assert!(bit(5) && standing.looked_up.is_some()),
                            Next::Fail(_) => assert!(!standing.in_doubt(), "{standing:?} may have happened"),
                            Next::Hold(_) => assert!(standing.in_doubt(), "{standing:?} needs no person"),
                            Next::LookUp => assert!(provider.looks_up() && standing.in_doubt()),
                            Next::Pause(pause) => assert!(!standing.rested && !pause.is_zero()),
                            Next::Done => panic!("nobody said that it happened"),
                        }
                    }
                }
            }
        }
    }
    assert!(sent > 100, "the grid reaches only {sent} sends");
}
