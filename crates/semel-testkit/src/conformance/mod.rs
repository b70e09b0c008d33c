//! What every store must keep, as one suite that both run.
//!
//! A store implements [`Harness`] and calls [`crate::conformance_tests!`], which makes one test of each guarantee.

mod harness;
pub mod keys;
pub mod leases;
pub mod operators;
pub mod refusals;
pub mod waiting;

pub use harness::{Harness, Lab};

/// Makes one test of each guarantee, for the [`Harness`] named.
#[macro_export]
macro_rules! conformance_tests {
    ($harness:ty) => {
        $crate::conformance_tests! { @modules $harness,
            keys {
                a_fresh_key_runs_and_a_retry_replays_byte_for_byte,
                a_rolled_back_effect_leaves_the_key_new,
                a_dropped_transaction_leaves_the_key_new,
                a_cancelled_request_leaves_the_key_new,
                racing_runs_of_one_key_make_one_effect,
                racing_runs_over_two_handles_make_one_effect,
                an_in_flight_key_answers_at_once,
                a_run_held_open_does_not_hold_up_other_keys,
                another_fingerprint_is_a_mismatch_and_the_record_stays,
                two_scopes_never_meet,
                an_expired_key_runs_as_new_with_a_new_execution,
                the_same_body_under_two_keys_makes_two_effects,
                a_deferred_statement_commits_with_the_reply,
                a_deferred_statement_with_another_row_count_rolls_all_back,
                work_past_its_deadline_is_rolled_back_and_the_key_stays_new,
                the_longest_names_fit,
            }
            refusals {
                a_4xx_after_execution_began_is_stored_without_its_effect,
                a_4xx_of_an_expired_key_is_stored_in_its_place,
                a_4xx_before_execution_began_is_not_stored,
                a_kept_4xx_is_stored_with_its_effect,
                a_409_or_429_is_not_stored,
                a_5xx_is_not_stored,
                a_terminal_5xx_is_stored_as_failed_without_its_effect,
                a_reply_over_the_limit_commits_nothing,
                a_sealed_reply_is_unreadable_at_rest_and_replays,
                sealing_keys_rotate_and_cannot_retire_while_rows_need_them,
            }
            waiting {
                a_waiting_request_replays_when_the_first_completes,
                a_waiting_request_runs_when_the_first_rolls_back,
                a_wait_that_is_over_answers_in_flight,
            }
            leases {
                a_leased_key_is_in_flight_for_others_until_its_lease_ends,
                an_abandoned_lease_is_taken_over_at_its_recovery_point,
                a_worker_that_lost_its_lease_is_refused,
                a_takeover_during_a_fenced_transaction_lets_one_worker_through,
                a_zombie_of_an_evicted_run_is_refused,
                a_step_that_was_committed_is_not_committed_again,
                renewing_work_that_has_ended_is_not_a_loss,
                an_abandoned_lease_leaves_the_key_new_unless_work_was_done,
                a_lease_with_a_shorter_retention_is_refused,
                a_failed_step_moves_neither_effect_nor_recovery_point,
                abandoned_work_that_must_not_resume_is_held_as_unknown,
                a_released_lease_is_taken_over_at_once,
                a_lease_is_renewed_while_work_runs,
                leased_work_completes_and_replays,
                a_refused_last_step_is_stored_without_its_effect,
                a_leased_key_with_another_fingerprint_is_a_mismatch,
                a_leased_key_can_run_again_after_it_expired,
            }
            operators {
                reaping_deletes_expired_keys_in_bounded_batches_only,
                work_in_progress_is_never_reaped,
                an_operator_sees_keys_without_their_replies,
                an_evicted_key_runs_as_new_and_leaves_an_audit_row,
                an_eviction_refuses_a_key_in_flight,
                an_eviction_refuses_another_run_than_the_operator_saw,
                a_dry_run_changes_nothing,
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
                        $crate::conformance::$module::$name::<$harness>().await;
                    }
                )*
            }
        )*
    };
}
