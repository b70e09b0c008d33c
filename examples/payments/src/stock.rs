//! The stock: how many pieces of each article there are.

use axum::Json as Answer;
use axum::extract::State;
use semel_tower::Problem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::code;
use crate::ledger::{Ledger, Stock};
use crate::natural::transact;
use crate::request::{self, Json, PathId};
use crate::tokens::Tenant;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewStock {
    quantity: Box<RawValue>,
}

/// `PUT /stock/{sku}`: sets how many pieces there are. It names the article and says all of its state, so it may be
/// repeated without a key. Like every such write it also overwrites what happened in between: one that is repeated
/// after an order gives the order's pieces back.
pub(crate) async fn put<S: Ledger>(
    State(ledger): State<S>,
    tenant: Tenant,
    PathId(sku): PathId,
    Json(body): Json<NewStock>,
) -> Result<Answer<Stock>, Problem> {
    let stock = Stock { sku: request::id(&code::SKU_INVALID, sku)?, quantity: request::quantity(&body.quantity, 0)? };
    let stock = transact(&ledger, async move |tx: &mut S::Tx| {
        S::set_stock(tx, &tenant, &stock).await?;
        Ok::<Stock, Problem>(stock.clone())
    })
    .await?;
    Ok(Answer(stock))
}

/// `GET /stock/{sku}`: how many pieces there are as last committed, and none of what nobody has set.
pub(crate) async fn show<S: Ledger>(
    State(ledger): State<S>,
    tenant: Tenant,
    PathId(sku): PathId,
) -> Result<Answer<Stock>, Problem> {
    let sku = request::id(&code::SKU_INVALID, sku)?;
    let quantity = ledger.find_stock(&tenant, &sku).await?;
    Ok(Answer(Stock { sku, quantity }))
}
