//! Work of several steps that goes on where it stopped.
//!
//! A request that reserves stock, charges a card at somebody else's API and writes a ledger cannot be one transaction:
//! the card is not in our database. A flow makes it one *effect* all the same. It is a plain async function, registered
//! under a name, that does everything in named **steps**:
//!
//! - [`Flow::commit`] runs a transaction. The record of the step is part of it, so it happens once.
//! - [`Flow::call`] calls a provider, outside any transaction. It may be sent more than once, always with the same
//!   derived key, by which the provider does it once (I8).
//! - [`Flow::sleep_until`] waits, without holding anything.
//! - [`Flow::finish`] runs the last transaction and ends the flow with its reply.
//!
//! What a step came to is recorded, with the key that the client chose. Whoever runs the function again, the client's
//! retry or a [`Completer`] after a crash, gets the recorded results for what is done and runs only the rest.
//!
//! ```
//! use semel::flow::{self, Definition, Failed, FlowStore};
//! use semel::provider::{Call, Provider};
//! use semel::{Flow, Flows, Reply, Semel};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct NewOrder {
//!     sku: String,
//!     amount: u64,
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Charge {
//!     id: String,
//! }
//!
//! async fn order<S: FlowStore>(flow: Flow<S>, input: NewOrder, psp: Provider) -> flow::Result<Reply> {
//!     let sku = input.sku.clone();
//!     flow.commit("reserve", async move |tx| reserve(tx, &sku).await).await?;
//!     let sku = input.sku.clone();
//!     flow.compensate("reserve", move |tx| {
//!         let sku = sku.clone();
//!         Box::pin(async move { Ok(release(tx, &sku).await?) })
//!     })?;
//!     let paid = flow.call("charge", &psp, |call| charge(&input, call)).compensate(refund).await?;
//!     flow.finish(async move |_tx| Ok(Reply::json(201, &paid)?)).await
//! }
//!
//! fn flows<S: FlowStore>(semel: Semel<S>, psp: Provider) -> Result<Flows<S>, flow::Invalid> {
//!     let called = psp.clone();
//!     let definition = Definition::new("order", move |flow, input| order(flow, input, psp.clone()));
//!     Flows::builder(semel).register(definition.calling([called])).build()
//! }
//! # // What the service does by itself.
//! # async fn reserve<T: semel::Tx>(_tx: &mut T, _sku: &str) -> Result<(), semel::Error> { Ok(()) }
//! # async fn release<T: semel::Tx>(_tx: &mut T, _sku: &str) -> Result<(), semel::Error> { Ok(()) }
//! # async fn charge(order: &NewOrder, call: Call) -> Result<Charge, Failed> {
//! #     Ok(Charge { id: format!("{} {}", order.amount, call.key()) })
//! # }
//! # async fn refund(_call: Call, _paid: Charge) -> Result<(), Failed> { Ok(()) }
//! ```
//!
//! What the closures of commits need is moved into them: the compiler cannot tell of one that borrows that it may be
//! spawned.
//!
//! `flows.run("order", &ask, &input)` in a handler begins the flow, or goes on with it, and waits for its reply;
//! `flows.completer().run(stop)` beside it goes on with flows that nobody works on.
//!
//! # What can go wrong in between
//!
//! | the worker stops | what the next one finds | what it does |
//! |---|---|---|
//! | before the intent of a call is committed | nothing of the step | counts the first attempt and sends it |
//! | between the intent and the call | an attempt without an end | what may have happened, see below |
//! | between the call and its result | the same: nobody can tell the two apart | the same |
//! | after the result is committed | the result | goes on behind it |
//! | in a commit | the effect and its record, or neither | goes on behind it, or runs it |
//!
//! A call that **may have happened** is sent again, under the stored key, for as long as the provider recognises that
//! key: it answers as the first time. Later it is looked up at the provider. Where neither can be done, the flow is
//! held for a person.
//!
//! A worker that does not die but is **paused past its lease** wakes while another one works. If it was in a commit,
//! its COMMIT is refused (I7). If it was about to call, it sends the key that the other one sends, and cannot record
//! what came of it. It finds out at its next write, or when its lease cannot be renewed, and stops.
//!
//! A timeout is *unknown*, not failed. An [unknown](crate::intent::Fault::Unknown) call is never sent where the
//! provider might do it a second time, and never counted as failed while it may have happened; [`crate::intent::next`]
//! decides. Where nobody can know, the flow is *held*: its key answers *unknown* until an operator has found out and
//! resolves it.
//!
//! # When it fails
//!
//! A step, or the function, that fails for good ([`Error::fail`]) has the flow undone: the reason is recorded, the
//! compensations of the steps that are done run in reverse, each as a step of its own, and the failure's reply ends the
//! flow. So do [a life](Definition::lives_for) that is over, and an operator who cancels it. What may pass
//! ([`Error::Retry`], a store that is away, a panic) parks the flow, and it is run again later, with growing pauses.
//!
//! # When the code changes
//!
//! Steps are known by their names. A deploy may change what they do, and add new ones behind those that are recorded. A
//! step that is recorded and was not asked for before a new one begins, a name that is asked for twice, another kind or
//! another provider under an old name and a result that cannot be read are [typed errors](Changed) that say what to do.
//! Nothing runs on a guess and nothing is lost: the flow waits for a version that fits. With [`Flow::has`] and
//! [`Flow::retired`] one version goes on with what another has begun.

pub mod job;
pub mod journal;
pub mod operator;
pub mod store;

mod call;
mod commit;
mod compensate;
mod completer;
mod definition;
mod drive;
mod error;
mod failed;
mod failure;
mod finish;
mod flows;
mod handle;
mod keep;
mod progress;
mod pursuit;
mod run;
mod settings;
mod since;
mod sleep;
mod terms;
mod trying;

pub use call::Calling;
pub use compensate::Undoing;
pub use completer::Completer;
pub use definition::Definition;
pub use error::{Changed, Error, Result};
pub use failed::Failed;
pub use failure::Failure;
pub use flows::{Builder, Flows};
pub use handle::Flow;
pub use job::{Job, MAX_JOBS};
pub use journal::{
    Entry, Intent, Journal, Kept, Kind, MAX_FLOW_BYTES, MAX_FLOW_CHARACTERS, MAX_KEPT_BYTES, MAX_STEP_CHARACTERS,
    MAX_STEPS, Settled, Start, State, UNDO, attempts_of, letter_of,
};
pub use operator::{
    Change, ChangeShown, Due, FlowFilter, FlowRecord, FlowShown, FlowState, Pressure, Resolution, Seen, StepShown,
};
pub use settings::Settings;
pub use store::{Attempt, FlowStore};
pub use terms::Invalid;
