//! What every store keeps that flows run on, and what flows keep on it, as one suite that all stores run.
//!
//! A store implements [`Harness`] and calls [`crate::flow_conformance_tests!`], which makes one test of each guarantee:
//! first those of the store by itself, then those of flows, with processes that die at every place and a provider whose
//! books are counted, and last the control, a flow without any of that, which charges twice.

pub mod attempts;
pub mod beginning;
pub mod building;
pub mod calling;
pub mod deploying;
pub mod enduring;
pub mod forgetting;
mod harness;
pub mod jobs;
mod lab;
pub mod living;
pub mod naive;
pub mod operating;
pub mod pausing;
pub mod recording;
mod remote;
pub mod resuming;
mod shop;
pub mod staging;
pub mod taking;
mod trap;
pub mod undoing;
mod world;

pub use harness::{Harness, Rows};

/// Makes one test of each guarantee, for the [`Harness`] named. With `store` behind it, of the store's alone.
#[macro_export]
macro_rules! flow_conformance_tests {
    ($harness:ty) => {
        $crate::flow_conformance_tests!($harness, store);
        $crate::flow_conformance_tests! { @modules $harness,
            resuming {
                a_flow_runs_each_step_once_and_replays_its_reply,
                a_flow_that_dies_anywhere_is_finished_by_its_clients_retry,
                a_flow_that_dies_anywhere_is_finished_by_a_completer,
                a_flow_whose_every_worker_dies_gets_on_all_the_same,
                a_client_that_goes_away_stops_nothing,
                a_worker_that_wakes_up_after_a_takeover_commits_nothing,
                a_flow_without_a_last_step_ends_with_what_it_returns,
                a_failure_that_may_pass_is_tried_again_after_growing_pauses,
                a_flow_in_flight_is_told_and_a_reused_key_refused,
                what_a_flow_keeps_is_sealed_at_rest,
            }
            calling {
                every_attempt_of_a_call_carries_one_key,
                calls_of_different_intents_never_share_a_key,
                a_call_that_takes_too_long_is_sent_again_under_its_key,
                a_call_that_did_not_happen_fails_the_flow,
                a_call_in_doubt_past_the_window_is_looked_up_and_not_sent_again,
                a_call_of_which_nothing_is_found_is_held_unless_that_is_a_proof,
                a_call_in_doubt_past_the_window_is_held_where_nothing_can_be_asked,
                a_provider_without_keys_is_sent_nothing_twice,
                a_provider_without_keys_is_asked_again_where_it_did_nothing,
                a_call_that_never_brings_a_certain_answer_is_held,
                a_result_that_is_found_and_cannot_be_read_is_held,
                a_long_pause_leaves_the_flow_to_whoever_comes_after_it,
                a_restored_database_does_not_send_blindly,
                a_call_that_did_not_happen_is_not_sent_blindly_after_a_restore,
                a_provider_that_is_not_declared_is_not_called,
            }
            enduring {
                a_step_that_the_function_lets_go_of_is_found_again,
                a_compensation_that_panics_is_tried_again,
                a_failure_whose_reply_is_too_large_ends_the_flow_all_the_same,
                a_failure_does_not_answer_with_a_status_that_is_never_stored,
                a_flow_with_too_many_steps_is_undone_when_its_life_is_over,
            }
            undoing {
                a_failure_in_step_four_undoes_three_two_one,
                undoing_goes_on_wherever_the_process_dies,
                what_was_not_done_is_not_undone,
                a_function_that_fails_answers_what_it_says_once_all_is_undone,
                a_failure_that_is_handled_undoes_nothing,
                a_call_that_cannot_be_undone_is_held,
                a_commit_that_cannot_be_undone_is_held_and_one_that_may_is_tried_again,
                a_call_in_doubt_is_settled_before_the_flow_is_undone,
            }
            deploying {
                a_version_that_does_not_fit_is_told_so_and_nothing_is_lost,
                a_call_in_doubt_is_not_sent_to_another_provider,
                a_name_that_is_used_twice_runs_once,
                what_cannot_be_read_waits_for_code_that_can,
                a_version_that_knows_the_old_steps_goes_on_with_both,
                a_retired_step_is_undone_where_the_new_version_says_how,
                a_flow_that_is_not_registered_is_left_to_those_who_know_it,
            }
            living {
                a_short_pause_is_waited_for,
                a_long_pause_ends_when_it_was_to_end,
                a_cancelled_flow_is_undone_and_answers_so,
                a_flow_that_is_cancelled_while_it_runs_begins_no_further_call,
                a_flow_whose_life_is_over_is_undone,
                a_flow_that_was_held_for_longer_than_it_may_live_goes_on,
                a_pause_ends_with_the_life_of_its_flow,
                a_flow_that_is_not_to_be_resumed_waits_for_an_operator,
            }
            jobs {
                a_job_runs_after_its_commit_under_a_key_of_its_own,
                a_job_whose_worker_dies_is_sent_once,
                a_job_of_a_step_runs_once_however_often_the_step_does,
                many_jobs_over_two_completers_run_once_each,
                jobs_that_nobody_knows_stay_visible,
                a_completer_that_stops_lets_its_runs_end,
                a_completer_without_patience_gives_its_runs_back,
            }
            building {
                a_flow_that_would_be_forgotten_too_early_is_refused,
                a_flow_that_cannot_work_is_refused,
            }
            naive {
                a_naive_flow_that_crashes_charges_twice,
                a_naive_worker_that_wakes_up_late_charges_twice,
            }
        }
    };
    ($harness:ty, store) => {
        $crate::flow_conformance_tests! { @modules $harness,
            beginning {
                a_flow_is_committed_with_its_key_before_anything_runs,
                a_running_flow_is_in_flight_until_its_lease_ends,
                a_pausing_flow_is_in_flight_until_its_pause_is_over,
                a_client_that_waits_is_answered_when_the_flow_ends,
                a_resumed_flow_goes_on_with_the_function_and_the_input_that_it_began_with,
                a_finished_flow_is_replayed_byte_for_byte,
                another_fingerprint_is_a_mismatch_and_the_flow_stays,
                a_held_flow_is_unknown_to_its_client,
                a_key_that_is_leased_without_a_flow_is_refused,
                flows_of_two_scopes_never_meet,
                clients_that_race_begin_one_flow,
                the_longest_names_and_the_largest_results_fit,
            }
            taking {
                flows_that_many_want_are_given_to_one_each,
                the_longest_waiting_are_taken_first_and_no_more_than_asked_for,
                flows_of_another_name_are_left_alone,
                only_what_is_due_is_taken,
                whoever_takes_over_has_all_that_was_recorded,
                a_takeover_beside_an_open_step_lets_one_worker_through,
                an_abandoned_flow_whose_policy_is_to_hold_is_held,
                no_worker_is_called_as_jobs_are,
                a_policy_of_holding_lets_what_nobody_left_go_on,
                a_lost_worker_counts_as_a_failure,
                whatever_a_worker_records_ends_the_failures_before_it,
                a_flow_of_a_restored_database_is_told_as_such,
            }
            recording {
                a_step_becomes_visible_with_its_record,
                a_step_that_does_not_commit_leaves_nothing,
                a_step_that_was_recorded_is_not_committed_again,
                every_write_of_a_worker_that_lost_its_flow_is_refused,
                a_zombie_of_an_evicted_flow_is_refused,
                steps_are_read_in_the_order_in_which_they_were_first_recorded,
                a_settled_step_stays_as_it_was_settled,
                events_of_a_step_are_numbered_by_its_name,
                a_flow_ends_with_its_reply_and_its_last_effect,
                a_flow_that_failed_ends_with_its_reply,
            }
            attempts {
                the_first_attempt_records_the_intent,
                an_attempt_that_is_counted_twice_counts_once,
                an_attempt_out_of_its_turn_is_refused,
                what_each_attempt_came_to_is_kept_in_order,
                the_window_opens_with_the_first_attempt,
                an_attempt_that_is_counted_again_leaves_then,
                a_window_may_be_taken_to_have_opened_earlier,
                the_key_of_an_intent_never_changes,
                a_settled_call_keeps_its_attempts,
            }
            pausing {
                a_parked_flow_is_taken_when_its_pause_is_over_and_not_before,
                a_flow_that_is_parked_without_a_pause_is_taken_at_once,
                failures_in_a_row_are_counted,
                a_held_flow_waits_for_a_person,
                a_flow_that_is_being_undone_stays_so,
                what_waits_is_counted_by_name,
            }
            operating {
                flows_are_listed_the_newest_first_and_by_what_is_asked,
                a_flow_is_shown_with_its_steps_and_without_their_bytes,
                a_retried_flow_goes_on_at_once,
                a_flow_that_is_held_by_its_policy_can_be_retried,
                the_late_worker_of_a_flow_that_is_let_go_on_is_fenced,
                a_retried_flow_does_not_queue_anew,
                a_retry_is_refused_where_it_would_be_blind,
                a_call_that_is_resolved_as_happened_is_done,
                a_call_that_is_resolved_as_not_happened_is_sent_anew_under_its_key,
                a_call_that_is_resolved_as_failed_has_failed,
                a_flow_goes_on_when_its_last_doubt_is_resolved,
                a_resolution_of_what_is_not_in_doubt_is_refused,
                a_change_is_for_the_flow_as_it_was_seen,
                a_cancelled_flow_is_told_to_be_undone,
                nothing_new_of_a_cancelled_flow_begins,
                a_step_and_a_cancellation_come_one_after_the_other,
                a_cancellation_is_refused_where_it_could_not_be_kept,
                a_change_that_cannot_be_written_down_is_refused,
                a_dry_run_changes_nothing,
                a_change_to_a_flow_that_is_not_there_is_not_found,
            }
            staging {
                a_job_of_keyed_work_is_there_if_and_only_if_its_effect_is,
                keyed_work_that_is_replayed_stages_nothing_again,
                the_keys_of_jobs_derive_from_their_run_and_their_place,
                a_job_of_a_step_is_there_if_and_only_if_the_step_is_recorded,
                a_job_of_the_last_step_is_there_if_and_only_if_its_effect_is,
                a_worker_that_lost_its_flow_stages_nothing,
                a_job_of_an_ordinary_transaction_is_there_if_and_only_if_that_commits,
                a_bad_message_of_a_batch_takes_its_jobs_along,
                a_staged_job_waits_for_its_first_worker,
                the_life_of_a_job_begins_with_its_first_worker,
                more_jobs_than_allowed_commit_nothing,
                execution_begins_with_a_job,
                a_commit_wakes_whoever_waits_for_jobs,
            }
            forgetting {
                reaping_a_key_takes_its_flow_and_steps_along,
                a_flow_that_is_not_done_is_never_reaped,
                a_held_flow_is_never_forgotten,
                evicting_a_key_takes_its_flow_and_steps_along,
                a_flow_that_has_done_something_is_not_evicted_before_it_has_ended,
                a_key_that_runs_again_after_it_expired_has_nothing_of_its_former_flow,
                what_is_sealed_comes_back_as_it_was_given,
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
                        $crate::flows::$module::$name::<$harness>().await;
                    }
                )*
            }
        )*
    };
}
