//! What a runner keeps on every store, with a source in the test's own hands.
//!
//! A store's tests call [`crate::runner_tests!`] with the [`crate::inbox::Harness`] that they run the inbox's suite on.

pub mod applying;
mod desk;
pub mod failing;
pub mod guarding;
pub mod letters;
mod shelf;

/// Makes one test of each guarantee, for the [`crate::inbox::Harness`] named.
#[macro_export]
macro_rules! runner_tests {
    ($harness:ty) => {
        $crate::runner_tests! { @modules $harness,
            applying {
                messages_apply_once_and_are_acknowledged_after_their_commit,
                a_lost_acknowledgement_brings_a_duplicate,
                what_is_in_hand_is_bounded,
                a_stop_gives_back_what_waits,
                what_is_in_hand_is_told_to_the_broker,
                versions_that_come_early_wait_for_those_before_them,
                a_version_waits_for_as_long_as_its_entity_moves,
                a_version_whose_predecessor_never_comes_is_set_aside,
                a_stale_version_is_acknowledged_and_changes_nothing,
                a_placeholder_counts_and_has_no_effect,
            }
            failing {
                a_message_that_fails_holds_up_its_key_and_no_other,
                what_waits_behind_a_failure_applies_in_its_order,
                a_message_that_always_fails_is_set_aside_and_its_key_goes_on,
                a_hopeless_message_is_set_aside_at_once,
                a_message_that_cannot_be_read_is_set_aside_untried,
                a_message_that_lacks_what_it_is_recognised_by_is_set_aside_once,
                a_panic_is_a_failure_of_its_message_alone,
                an_effect_that_does_not_end_fails_its_message_alone,
                what_cannot_be_committed_fails_its_message_alone,
                a_version_that_is_none_is_set_aside_under_its_own_name,
            }
            letters {
                a_redriven_letter_applies_once,
                a_redriven_letter_that_fails_again_is_dead_again,
                a_redriven_letter_that_panics_is_dead_again,
                a_letter_of_an_old_generation_is_not_applied,
                a_new_generation_ends_the_run,
            }
            guarding {
                a_retention_shorter_than_the_sources_is_refused_at_the_start,
                a_source_that_is_changed_while_it_is_read_raises_the_alarm,
                a_tier_that_lies_changes_no_result,
                a_tier_that_changes_its_mind_in_mid_run_changes_no_result,
                a_tier_that_knows_saves_the_transaction,
            }
        }
    };
    (@modules $harness:ty, $($module:ident { $($test:ident,)* })*) => {
        $(
            mod $module {
                use super::*;

                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $test() {
                        $crate::runner::$module::$test::<$harness>().await;
                    }
                )*
            }
        )*
    };
}
