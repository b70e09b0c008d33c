//! What every sink must keep, as one suite that all run on the real broker.
//!
//! A sink implements [`Harness`] and calls [`crate::sink_tests!`], which makes one test of each guarantee.

pub mod arrival;
mod batch;
pub mod failure;
mod harness;

pub use batch::{batch, outgoing, publish};
pub use harness::{Arrived, Harness};

/// Makes one test of each guarantee, for the [`Harness`] named.
#[macro_export]
macro_rules! sink_tests {
    ($harness:ty) => {
        $crate::sink_tests! { @modules $harness,
            arrival {
                an_event_arrives_whole,
                the_smallest_event_arrives,
                order_per_key_is_kept_over_many_keys_and_batches,
                lanes_publish_side_by_side,
                an_event_published_again_keeps_its_identity,
                what_was_acknowledged_is_there_after_close,
            }
            failure {
                a_refused_event_holds_back_its_key_and_no_other,
                a_broker_killed_in_the_middle_loses_nothing_and_keeps_order,
                wrong_credentials_are_refused_without_telling_them,
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
                        $crate::sinks::$module::$name::<$harness>().await;
                    }
                )*
            }
        )*
    };
}
