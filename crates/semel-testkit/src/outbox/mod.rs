//! What every outbox must keep, as one suite that all stores run.
//!
//! A store implements [`Harness`] and calls [`crate::outbox_tests!`], which makes one test of each guarantee.
//! [`Numbering`] numbers events the way a relay does, for whoever checks that numbers are stable.

pub mod committing;
mod dice;
pub mod emitting;
mod harness;
pub mod held;
pub mod incarnations;
pub mod joining;
mod lab;
mod load;
mod meddler;
mod numbering;
pub mod operators;
pub mod pages;
pub mod relaying;
pub mod relays;
mod running;
mod script;
pub mod tidying;

pub use harness::{Harness, Joined};
pub use lab::Lab;
pub use numbering::Numbering;

/// Makes one test of each guarantee, for the [`Harness`] named.
#[macro_export]
macro_rules! outbox_tests {
    ($harness:ty) => {
        $crate::outbox_tests! { @modules $harness,
            emitting {
                events_become_visible_with_their_effect_and_not_before,
                a_rolled_back_effect_takes_its_events_along,
                a_4xx_or_5xx_emits_nothing,
                execution_begins_with_an_event,
                ids_derive_from_the_execution_and_the_ordinal,
                every_step_of_leased_work_has_ids_of_its_own,
                an_event_is_kept_whole,
                more_events_or_keys_than_allowed_commit_nothing,
                a_payload_over_the_limit_commits_nothing,
                a_commit_wakes_whoever_waits_for_events,
            }
            joining {
                joined_events_commit_with_the_callers_transaction_or_not_at_all,
                a_joined_refusal_emits_nothing,
                events_without_a_key_have_ids_of_their_own,
                more_joined_events_or_keys_than_allowed_are_refused,
            }
            pages {
                every_committed_event_comes_once_and_in_order_under_load,
                reading_again_from_any_cursor_gives_the_same,
                lanes_that_were_not_asked_for_do_not_come,
                nothing_new_is_none_until_there_is_something,
                an_event_larger_than_a_page_still_comes,
                the_head_is_where_reading_ends,
            }
            relays {
                a_relay_takes_free_lanes_and_nobody_elses,
                relays_that_race_share_no_lane,
                a_relay_that_gives_lanes_up_hands_over_where_they_stand,
                a_relay_that_leaves_frees_everything,
                a_lease_that_ran_out_is_taken_over_where_it_stands,
                a_lease_that_ran_out_counts_until_it_is_taken_over,
                a_fenced_relay_changes_nothing,
                a_lane_that_was_given_up_is_fenced,
                what_is_checkpointed_is_what_the_next_one_gets,
                sequences_are_stable_over_takeovers_under_load,
            }
            held {
                a_held_key_keeps_its_events_with_their_sequences,
                events_that_are_held_already_stay_as_they_are,
                another_attempt_writes_the_keys_row_and_no_event,
                a_released_key_is_free_when_nothing_is_left,
                a_renumbered_key_is_tried_at_once_with_new_sequences,
                holdings_and_the_lanes_position_are_one_commit,
                a_late_position_does_not_undo_a_redrive,
            }
            relaying {
                a_redrive_that_may_have_been_stored_gives_no_sequence_out_twice,
                a_redrive_after_a_crash_takes_no_sequence_that_went_out_before_it,
                the_places_of_a_redriven_key_are_filled_before_it_goes_out_anew,
                a_parked_key_of_another_incarnation_has_no_places_to_fill,
                a_lane_that_is_stuck_keeps_room_for_its_own_events_alone,
            }
            committing {
                a_held_event_that_was_released_before_its_batch_passed_is_not_sent_with_it,
                a_held_event_that_was_committed_before_its_batch_passed_is_not_sent_with_it,
                a_held_event_that_was_committed_and_not_released_is_not_sent_again,
                taking_a_lane_does_not_take_its_position_at_the_sink_back,
                a_placeholder_that_failed_is_not_taken_for_committed,
            }
            operators {
                an_operator_sees_what_became_of_an_event,
                the_backlog_counts_what_no_position_covers,
                the_status_names_relays_and_incarnation,
                held_keys_are_listed_longest_first,
                a_redrive_takes_parked_keys_and_leaves_an_audit_row,
                a_skip_takes_one_event_out_and_leaves_an_audit_row,
                an_event_that_is_tried_again_cannot_be_skipped,
                a_dry_run_changes_nothing,
            }
            tidying {
                what_is_published_and_old_goes,
                what_is_not_published_never_goes,
                what_is_within_the_window_stays,
                positions_and_counts_survive_tidying,
                held_events_survive_tidying,
                history_and_pages_give_the_sequences_again,
            }
            incarnations {
                a_relay_refuses_the_positions_of_another_incarnation,
                a_rebase_keeps_what_is_not_published,
                a_rebase_is_refused_while_a_lease_runs,
                events_that_no_relay_saw_survive_another_incarnation,
            }
        }
    };
    (@modules $harness:ty, $($module:ident { $($name:ident,)* })*) => {
        $(
            mod $module {
                use super::*;
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                    async fn $name() {
                        $crate::outbox::$module::$name::<$harness>().await;
                    }
                )*
            }
        )*
    };
}
