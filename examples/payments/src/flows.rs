//! The flows of the service, registered by their names.

use std::time::Duration;

use semel::flow::{Completer, Definition};
use semel::provider::Keys;
use semel::{Flow, Flows, Semel};

use crate::ledger::Ledger;
use crate::order::{flow, mail};
use crate::outside::Client;
use crate::{Invalid, Options};

/// The flows, each with its steps, as journals, operators and metrics name them.
pub const FLOWS: [(&str, &[&str]); 2] = [(flow::ORDER, &[flow::RESERVE, flow::CHARGE]), (mail::MAIL, &[mail::SEND])];

/// The flows on this store; none without somebody to call.
pub(crate) fn flows<S: Ledger>(semel: &Semel<S>, options: &Options) -> Result<Option<Flows<S>>, Invalid> {
    let Some(outside) = &options.outside else { return Ok(None) };
    let client = Client::new(outside).map_err(Invalid::Outside)?;
    let window = match outside.keys {
        Keys::Kept(window) => window,
        Keys::None | Keys::Forever => Duration::ZERO,
    };
    // A key that was forgotten here while the processor still knows what was derived from it would be answered by the
    // old charge (I9).
    let retain = semel.settings().retention.keep().max(window);
    let order = {
        let client = client.clone();
        move |handle: Flow<S>, input: flow::Input| flow::order(handle, input, client.clone())
    };
    let mail = {
        let client = client.clone();
        move |handle: Flow<S>, input: mail::Input| mail::mail(handle, input, client.clone())
    };
    let flows = Flows::builder(semel.clone())
        .register(Definition::new(flow::ORDER, order).calling([client.processor().clone()]).retain(retain))
        .register(Definition::new(mail::MAIL, mail).calling([client.mailer().clone()]).retain(retain))
        .settings(options.flows.clone())
        .build()?;
    Ok(Some(flows))
}

/// What goes on with orders that were interrupted and sends the mails of those that were not, in this process; none
/// without somebody to call. Several processes may run one: a flow is given to one of them only, and one that dies is
/// replaced within two leases (I7).
pub fn completer<S: Ledger>(semel: &Semel<S>, options: &Options) -> Result<Option<Completer<S>>, Invalid> {
    Ok(flows(semel, options)?.map(|flows| flows.completer()))
}
