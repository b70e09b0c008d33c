//! What every inbox must keep, as one suite that all stores run.
//!
//! A store implements [`Harness`] and calls [`crate::inbox_tests!`], which makes one test of each guarantee.

pub mod apart;
pub mod applying;
pub mod batches;
pub mod bounds;
pub mod counting;
pub mod declaring;
mod harness;
pub mod isolating;
pub mod joining;
mod lab;
mod letter;
pub mod letters;
mod message;
pub mod offsets;
pub mod racing;
pub mod reaping;
pub mod redriving;
pub mod seen;
pub mod sequences;
mod shuffle;
pub mod versions;

pub use harness::{Harness, Joined};

/// Makes one test of each guarantee, for the [`Harness`] named.
#[macro_export]
macro_rules! inbox_tests {
    ($harness:ty) => {
        $crate::inbox_tests! { @modules $harness,
            applying {
                a_message_applies_once_however_often_it_comes,
                what_the_effect_returns_is_handed_on_by_the_delivery_that_applied,
                effect_proof_and_events_become_visible_together,
                an_effect_that_fails_leaves_no_proof_and_its_retry_applies,
                an_effect_that_hides_a_refused_statement_is_applied_whole_or_not_at_all,
                a_deferred_statement_commits_with_the_proof,
                a_deferred_statement_with_another_row_count_leaves_no_proof,
                a_panic_leaves_no_proof,
                a_delivery_that_is_dropped_leaves_no_proof,
                a_deadline_leaves_no_proof,
                a_connection_lost_before_the_commit_leaves_no_proof,
            }
            apart {
                ids_are_compared_byte_for_byte,
                consumers_do_not_touch_each_other,
                a_new_generation_applies_again_and_the_same_never,
                lanes_topics_and_incarnations_do_not_touch_each_other,
                partitions_topics_and_sources_do_not_touch_each_other,
                identities_of_different_kinds_do_not_touch_each_other,
            }
            sequences {
                a_message_that_is_retried_while_its_successors_apply_is_neither_lost_nor_applied_twice,
                sequences_in_any_order_apply_each_once_and_end_as_one_range,
                batches_of_sequences_in_any_order_apply_each_once_and_end_as_one_range,
                too_many_holes_are_refused_until_one_closes,
                a_message_of_a_batch_that_would_open_too_many_holes_is_refused_alone,
                sequences_begin_anywhere_and_reach_to_the_end,
            }
            offsets {
                a_partition_begins_at_any_offset,
                what_lies_below_the_stored_offset_is_a_duplicate,
                offsets_that_are_missing_do_not_matter,
                a_worker_that_did_not_read_on_from_the_stored_offset_is_fenced,
                what_a_fenced_worker_held_applies_once_by_the_one_who_read_on,
                a_failed_record_leaves_the_offset_where_it_was,
            }
            versions {
                latest_skips_what_is_not_newer_and_does_not_see_gaps,
                a_stale_message_stays_seen,
                each_applies_in_order_and_leaves_no_trace_of_what_is_early,
                each_skips_what_is_past,
                a_failed_effect_leaves_the_version_where_it_was,
                versions_of_one_entity_in_one_batch_count_one_after_the_other,
                an_early_message_of_a_batch_leaves_no_trace_and_the_others_commit,
                changes_in_any_order_apply_each_once_and_in_order,
                entities_consumers_and_generations_do_not_touch_each_other,
                early_by_any_identity_is_tried_again,
            }
            batches {
                a_batch_applies_in_order_and_becomes_visible_at_once,
                messages_of_all_kinds_share_a_batch,
                of_equal_messages_in_a_batch_the_first_applies,
                what_was_seen_before_is_skipped_within_a_batch,
                an_empty_batch_is_nothing,
                a_deadline_rolls_a_whole_batch_back,
                a_panic_rolls_a_whole_batch_back,
                a_dropped_batch_leaves_no_proof,
                deferred_statements_of_a_batch_commit_with_it,
            }
            isolating {
                a_bad_message_is_rolled_back_alone_with_its_effect_events_and_proof,
                a_refused_statement_is_isolated_with_its_message,
                a_bad_deferred_statement_is_isolated_with_its_message,
                a_hidden_refusal_within_a_batch_is_applied_whole_or_not_at_all,
                a_batch_of_bad_messages_leaves_nothing,
                bad_messages_at_both_ends_are_isolated,
                a_message_that_failed_and_comes_again_in_the_same_batch_applies,
                sequences_around_a_bad_one_are_kept_and_it_applies_later,
                offsets_behind_a_failed_one_are_not_tried,
                deferred_statements_around_a_bad_message_commit,
                a_connection_lost_within_a_batch_leaves_no_proof,
            }
            racing {
                deliveries_of_one_message_that_race_apply_once,
                a_delivery_that_waited_is_a_duplicate_if_the_first_commits,
                a_delivery_that_waited_applies_if_the_first_fails,
                many_messages_over_many_tasks_apply_once_each,
                workers_on_one_lane_do_not_overwrite_each_other,
                workers_on_one_partition_apply_each_record_once,
                batches_that_race_in_any_order_apply_each_message_once,
                batches_that_race_with_bad_messages_apply_the_others_once,
                changes_to_one_entity_that_race_apply_once_and_in_order,
                messages_of_one_version_that_race_apply_once,
            }
            joining {
                a_joined_message_counts_as_seen_if_the_caller_commits_and_not_otherwise,
                a_joined_batch_is_answered_in_order_and_counts_if_the_caller_commits,
                a_joined_message_that_is_early_or_stale_is_told,
                a_joined_worker_that_did_not_read_on_is_fenced,
                a_joined_lane_with_too_many_holes_is_refused,
            }
            reaping {
                ids_past_their_retention_go_in_bounded_batches,
                ids_within_retention_stay_known,
                other_consumers_are_left_alone,
                lanes_offsets_and_versions_are_kept_for_ever,
                a_new_proof_does_not_go_with_the_old_one,
            }
            seen {
                what_is_committed_was_seen_and_what_is_not_was_not,
                a_look_waits_for_nobody_and_records_nothing,
                a_look_at_many_answers_in_their_order,
                consumers_and_generations_see_for_themselves,
            }
            declaring {
                a_consumer_is_found_again_in_its_generation,
                another_recognition_is_refused_until_a_new_generation,
                what_was_recorded_without_a_declaration_counts_as_one,
                declarations_that_race_agree,
                a_new_generation_applies_history_again_and_the_old_one_does_not,
                a_replay_leaves_an_audit_row,
                consumers_are_told_with_what_is_kept_of_them,
            }
            letters {
                a_message_that_is_set_aside_is_kept_whole_and_counts_as_seen,
                a_message_that_was_seen_is_not_set_aside,
                a_message_is_set_aside_once_whoever_races,
                a_message_is_applied_or_set_aside_and_never_both,
                a_message_with_a_version_leaves_its_entity_where_it_is,
                a_fenced_worker_sets_nothing_aside,
                a_lane_with_too_many_holes_sets_nothing_aside,
                whatever_a_message_is_like_it_is_set_aside,
                letters_are_listed_the_oldest_first_and_by_what_is_asked,
            }
            redriving {
                a_redrive_takes_what_is_dead_and_leaves_an_audit_row,
                a_redriven_letter_applies_with_its_effect_or_stays_redriven,
                a_taker_waits_for_another_and_takes_what_that_one_left,
                takers_that_race_apply_a_letter_once,
                a_letter_that_fails_again_is_dead_with_its_last_cause,
                a_letter_whose_entity_is_past_it_changes_nothing,
                changes_that_are_redriven_apply_in_their_order,
                an_applied_letter_is_forgotten_in_time_and_a_dead_one_never,
                the_id_of_a_letter_that_is_applied_late_is_kept_from_then_on,
            }
            bounds {
                names_and_numbers_out_of_bounds_are_refused_by_rust,
                names_and_numbers_out_of_bounds_are_refused_by_the_database,
                the_longest_names_fit,
                as_many_messages_as_are_allowed_fit_and_not_one_more,
            }
            counting {
                messages_are_counted_by_what_became_of_them,
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
                        $crate::inbox::$module::$name::<$harness>().await;
                    }
                )*
            }
        )*
    };
}
