//! What every source must keep, as one suite that all run on the real broker.
//!
//! A source implements [`Harness`] and calls [`crate::source_tests!`], which makes one test of each guarantee. A source
//! whose broker cannot do what a test needs, such as keep history, names the tests that apply as
//! `source_tests! { @modules MyHarness, arriving { … } … }`.

pub mod arriving;
mod harness;
pub mod redelivering;
pub mod restarting;
pub mod sharing;

pub use harness::{Harness, Restart, Taken, marker, numbered, receive, settle_all, take};

/// Makes one test of each guarantee, for the [`Harness`] named.
#[macro_export]
macro_rules! source_tests {
    ($harness:ty) => {
        $crate::source_tests! { @modules $harness,
            arriving {
                a_message_arrives_whole,
                messages_of_a_key_arrive_in_their_order,
                a_receive_that_is_dropped_loses_nothing,
                how_long_a_message_may_come_again_is_told_as_the_broker_is_set,
            }
            redelivering {
                what_is_not_acknowledged_comes_again_after_a_crash_and_the_rest_does_not,
                what_is_given_back_comes_again,
                what_is_prolonged_goes_to_nobody_else,
            }
            sharing {
                two_who_read_as_one_consumer_share_the_messages,
                another_consumer_gets_every_message_too,
                a_new_generation_begins_with_the_first_message,
            }
            restarting {
                a_broker_killed_in_the_middle_loses_nothing,
            }
        }
    };
    (@modules $harness:ty, $($module:ident { $($name:ident,)* })*) => {
        $(
            mod $module {
                use super::*;
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $name() {
                        $crate::sources::$module::$name::<$harness>().await;
                    }
                )*
            }
        )*
    };
}
