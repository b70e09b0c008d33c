//! Places where crash tests stop the process.
//!
//! Compiled only under the feature `failpoints`. The environment variable `FAILPOINTS` (see the `fail` crate) arms a
//! point with the action `return`, as in `FAILPOINTS='claimed=1*return'`. A process that reaches an armed point
//! connects to `SEMEL_FAILPOINT_CONTROL`, sends the point's name and a newline, and waits there until it is sent a
//! byte, or killed.

/// The request was parsed and its key is known; the store has not been asked.
pub const PARSED: &str = "parsed";
/// The claim was fresh and the transaction is open.
pub const CLAIMED: &str = "claimed";
/// The first statement of the effect was executed.
pub const FIRST_STATEMENT_DONE: &str = "first-statement-done";
/// The work has answered; nothing of the completion was sent.
pub const BEFORE_COMPLETION: &str = "before-completion";
/// COMMIT is on its way and its acknowledgement has not been read.
pub const COMMIT_SENT: &str = "commit-sent";
/// The commit is durable and the answer has not been written.
pub const COMMIT_ACKNOWLEDGED: &str = "commit-acknowledged";
/// Half of the answer's body was written.
pub const ANSWER_HALF_WRITTEN: &str = "answer-half-written";

/// A relay has read a batch of a lane; nothing of it was sent.
pub const RELAY_BEFORE_PUBLISH: &str = "relay-before-publish";
/// A relay's sink has acknowledged a batch; no position covers it yet.
pub const RELAY_PUBLISHED: &str = "relay-published";
/// A relay is about to send the positions that cover what was acknowledged.
pub const RELAY_NOTING: &str = "relay-noting";
/// A relay has stored nothing yet of the lanes it is about to give up.
pub const RELAY_HANDING_OVER: &str = "relay-handing-over";
/// A relay has taken lanes and not read anything of them.
pub const RELAY_TAKEN_OVER: &str = "relay-taken-over";
/// The outbox has switched to another part of its storage, and the one it left is not closed yet.
pub const RELAY_ROTATING: &str = "relay-rotating";

/// A consumer has received messages; nothing of them was tried.
pub const CONSUMER_RECEIVED: &str = "consumer-received";
/// The effect of a message has run; nothing of it is committed.
pub const CONSUMER_EFFECT_DONE: &str = "consumer-effect-done";
/// Effects and proofs are committed; nothing was acknowledged.
pub const CONSUMER_COMMITTED: &str = "consumer-committed";
/// Messages were acknowledged.
pub const CONSUMER_ACKNOWLEDGED: &str = "consumer-acknowledged";
/// A message is set aside as a dead letter, and was not acknowledged.
pub const CONSUMER_DEAD_LETTERED: &str = "consumer-dead-lettered";

/// Key and flow are committed; nothing of the flow has run.
pub const FLOW_BEGUN: &str = "flow-begun";
/// The effect of a commit step has run; neither it nor the step's record is committed.
pub const FLOW_STEP_EFFECT: &str = "flow-step-effect";
/// A commit step is committed with its record.
pub const FLOW_STEP_COMMITTED: &str = "flow-step-committed";
/// An attempt at a call is counted, with the call's key; nothing was sent.
pub const FLOW_INTENDED: &str = "flow-intended";
/// The provider has answered, or did not in time; nothing of that is recorded.
pub const FLOW_CALLED: &str = "flow-called";
/// The result of a call is recorded.
pub const FLOW_SETTLED: &str = "flow-settled";
/// That the flow is undone is recorded; nothing more was undone.
pub const FLOW_UNWINDING: &str = "flow-unwinding";
/// The flow is about to end; its reply is not stored.
pub const FLOW_FINISHING: &str = "flow-finishing";
/// The flow has ended with its reply; nobody was answered.
pub const FLOW_FINISHED: &str = "flow-finished";

/// Every point of a flow. Crash tests iterate this table; [`FLOW_UNWINDING`] is passed only by flows that fail.
pub const FLOW: &[&str] = &[
    FLOW_BEGUN,
    FLOW_STEP_EFFECT,
    FLOW_STEP_COMMITTED,
    FLOW_INTENDED,
    FLOW_CALLED,
    FLOW_SETTLED,
    FLOW_UNWINDING,
    FLOW_FINISHING,
    FLOW_FINISHED,
];

/// Every point that a consumer passes with each message. Crash tests iterate this table.
pub const CONSUMER: &[&str] = &[CONSUMER_RECEIVED, CONSUMER_EFFECT_DONE, CONSUMER_COMMITTED, CONSUMER_ACKNOWLEDGED];

/// Every point of a relay. Crash tests iterate this table.
pub const RELAY: &[&str] =
    &[RELAY_BEFORE_PUBLISH, RELAY_PUBLISHED, RELAY_NOTING, RELAY_HANDING_OVER, RELAY_TAKEN_OVER, RELAY_ROTATING];

/// Every point, in the order in which a request passes them. Crash tests iterate this table.
pub const ALL: &[&str] =
    &[PARSED, CLAIMED, FIRST_STATEMENT_DONE, BEFORE_COMPLETION, COMMIT_SENT, COMMIT_ACKNOWLEDGED, ANSWER_HALF_WRITTEN];

#[cfg(not(feature = "failpoints"))]
mod armed {
    /// Does nothing in this build.
    #[inline(always)]
    pub async fn reach(_point: &'static str) {}

    /// Does nothing in this build.
    #[inline(always)]
    pub fn reach_blocking(_point: &'static str) {}
}

#[cfg(feature = "failpoints")]
mod armed {
    use std::io::{Read, Write};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Stops here if the point is armed, without holding up the thread.
    pub async fn reach(point: &'static str) {
        if !is_armed(point) {
            return;
        }
        let mut control = tokio::net::TcpStream::connect(control()).await.expect("SEMEL_FAILPOINT_CONTROL answers");
        control.write_all(format!("{point}\n").as_bytes()).await.expect("the control listens");
        if control.read_u8().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Stops the thread here if the point is armed.
    pub fn reach_blocking(point: &'static str) {
        if !is_armed(point) {
            return;
        }
        let mut control = std::net::TcpStream::connect(control()).expect("SEMEL_FAILPOINT_CONTROL answers");
        control.write_all(format!("{point}\n").as_bytes()).expect("the control listens");
        if control.read_exact(&mut [0]).is_err() {
            loop {
                std::thread::park();
            }
        }
    }

    /// Reads `FAILPOINTS`. Call it once, first thing in `main`.
    pub fn setup() {
        std::mem::forget(fail::FailScenario::setup());
    }

    fn is_armed(point: &str) -> bool {
        fail::fail_point!(point, |_| true);
        false
    }

    fn control() -> String {
        std::env::var("SEMEL_FAILPOINT_CONTROL").expect("an armed failpoint needs SEMEL_FAILPOINT_CONTROL")
    }
}

pub use armed::*;
