//! The confirmation of an order, sent after its commit.

use semel::flow::{self, Job};
use semel::provider::Call;
use semel::{Flow, Reply};
use serde::{Deserialize, Serialize};

use crate::ledger::{Ledger, Order};
use crate::outside::{Client, NewMail};

/// The flow's name.
pub(crate) const MAIL: &str = "confirmation_mail";

/// The step that hands the mail over.
pub(crate) const SEND: &str = "send";

/// What a mail is made of. Staged inputs are not sealed, so it has no more than the mail itself will have.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Input {
    to: String,
    order: String,
    sku: String,
    quantity: i64,
}

/// The job that sends the confirmation if the transaction that stages it commits, and only then.
pub(crate) fn job(tenant: &str, order: &Order, email: &str) -> flow::Result<Job> {
    let input =
        Input { to: email.to_owned(), order: order.id.clone(), sku: order.sku.clone(), quantity: order.quantity };
    Ok(Job::new(tenant, MAIL, &input)?)
}

/// Sends the mail. It may be handed over more than once, each time under the same key: a mailer that keeps keys sends
/// it once.
pub(crate) async fn mail<S: Ledger>(flow: Flow<S>, input: Input, client: Client) -> flow::Result<Reply> {
    let mail = NewMail {
        to: input.to,
        subject: format!("Your order {}", input.order),
        text: format!("Thank you. {} of {} are on their way to you.", input.quantity, input.sku),
        reference: input.order,
    };
    let mailer = client.clone();
    let sending = move |call: Call| {
        let (mailer, mail) = (mailer.clone(), mail.clone());
        async move { mailer.send(&mail, &call).await }
    };
    let sent = flow.call(SEND, client.mailer(), sending).await?;
    flow.finish(async move |_: &mut S::Tx| Ok::<Reply, flow::Error>(Reply::json(200, &sent)?)).await
}
