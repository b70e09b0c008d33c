//! The books on PostgreSQL.

use semel::{Consumer, Error};
use semel_postgres::tokio_postgres::types::{ToSql, Type};
use semel_postgres::tokio_postgres::{self, Row};
use semel_postgres::{Deferred, Parameter, Postgres, Tx};

use crate::ledger::{
    Account, BankTransaction, Change, Charge, Consumed, Ledger, Movement, Order, Receipt, Stock, Summary, Transfer,
    require_rows,
};

impl Ledger for Postgres {
    async fn install(&self) -> Result<(), Error> {
        let client = self.client().await?;
        client.batch_execute(include_str!("../sql/postgres/schema.sql")).await.map_err(failed)
    }

    async fn transaction(&self) -> Result<Tx, Error> {
        self.begin().await
    }

    async fn commit(tx: Tx) -> Result<(), Error> {
        tx.commit().await
    }

    async fn find_account(&self, tenant: &str, id: &str) -> Result<Option<Account>, Error> {
        let sql = include_str!("../sql/postgres/account_find.sql");
        let rows = self.client().await?.query_typed(sql, &[(&tenant, Type::TEXT), (&id, Type::TEXT)]).await;
        rows.map_err(unread)?.first().map(account).transpose()
    }

    async fn summary(&self, tenant: &str) -> Result<Summary, Error> {
        let sql = include_str!("../sql/postgres/summary.sql");
        let rows = self.client().await?.query_typed(sql, &[(&tenant, Type::TEXT)]).await.map_err(unread)?;
        let [row] = rows.as_slice() else { return Err(Error::RowCount("the summary is one row".to_owned())) };
        let sum: String = row.try_get("sum").map_err(failed)?;
        Ok(Summary {
            charges: row.try_get("charges").map_err(failed)?,
            transfers: row.try_get("transfers").map_err(failed)?,
            entries: row.try_get("entries").map_err(failed)?,
            sum: sum.parse().map_err(|error: std::num::ParseIntError| Error::Statement(error.into()))?,
        })
    }

    async fn insert_account(tx: &mut Tx, tenant: &str, id: &str, currency: &str) -> Result<bool, Error> {
        let sql = include_str!("../sql/postgres/account_insert.sql");
        Ok(tx.execute(sql, &[&tenant, &id, &currency]).await? == 1)
    }

    async fn lock_accounts(tx: &mut Tx, tenant: &str, one: &str, other: &str) -> Result<Vec<Account>, Error> {
        let sql = include_str!("../sql/postgres/accounts_lock.sql");
        tx.query(sql, &[&tenant, &one, &other]).await?.iter().map(account).collect()
    }

    async fn insert_charge(tx: &mut Tx, tenant: &str, charge: &Charge) -> Result<bool, Error> {
        let sql = include_str!("../sql/postgres/charge_insert.sql");
        let Charge { id, account, amount, currency, .. } = charge;
        Ok(tx.execute(sql, &[&tenant, id, account, amount, currency]).await? == 1)
    }

    async fn charge(tx: &mut Tx, tenant: &str, id: &str) -> Result<Option<Charge>, Error> {
        let row = tx.query_opt(include_str!("../sql/postgres/charge_find.sql"), &[&tenant, &id]).await?;
        row.as_ref().map(charge).transpose()
    }

    async fn insert_bank_transaction(tx: &mut Tx, tenant: &str, received: &BankTransaction) -> Result<bool, Error> {
        let sql = include_str!("../sql/postgres/bank_insert.sql");
        let BankTransaction { transaction_id, account, amount } = received;
        Ok(tx.execute(sql, &[&tenant, transaction_id, account, amount]).await? == 1)
    }

    async fn bank_transaction(tx: &mut Tx, tenant: &str, id: &str) -> Result<Option<BankTransaction>, Error> {
        let row = tx.query_opt(include_str!("../sql/postgres/bank_find.sql"), &[&tenant, &id]).await?;
        row.as_ref().map(bank_transaction).transpose()
    }

    fn insert_transfer(tx: &mut Tx, tenant: &str, transfer: &Transfer) {
        let insert = Deferred::expecting(1, include_str!("../sql/postgres/transfer_insert.sql"))
            .bind(tenant.to_owned())
            .bind(transfer.id.clone())
            .bind(transfer.from.clone())
            .bind(transfer.to.clone())
            .bind(transfer.amount)
            .bind(transfer.currency.clone());
        tx.defer(insert);
    }

    fn post(tx: &mut Tx, tenant: &str, movement: &Movement<'_>) {
        let entries = Deferred::expecting(2, include_str!("../sql/postgres/entries_insert.sql"))
            .bind(tenant.to_owned())
            .bind(movement.kind)
            .bind(movement.reference.to_owned())
            .bind(movement.from.name().to_owned())
            .bind(movement.from.external())
            .bind(movement.amount)
            .bind(movement.currency.to_owned())
            .bind(movement.to.name().to_owned())
            .bind(movement.to.external());
        tx.defer(entries);
        for (id, change) in movement.balance_changes() {
            let update = Deferred::expecting(1, include_str!("../sql/postgres/balance_update.sql"))
                .bind(tenant.to_owned())
                .bind(id.to_owned())
                .bind(change);
            tx.defer(update);
        }
    }

    async fn post_now(tx: &mut Tx, tenant: &str, movement: &Movement<'_>) -> Result<(), Error> {
        let sql = include_str!("../sql/postgres/entries_insert.sql");
        let Movement { kind, reference, from, to, amount, currency } = *movement;
        let (debited, outside, credited, abroad) = (from.name(), from.external(), to.name(), to.external());
        let entries: [&dyn Parameter; 9] =
            [&tenant, &kind, &reference, &debited, &outside, &amount, &currency, &credited, &abroad];
        require_rows(2, tx.execute(sql, &entries).await?, "the entries")?;
        for (id, change) in movement.balance_changes() {
            let sql = include_str!("../sql/postgres/balance_update.sql");
            require_rows(1, tx.execute(sql, &[&tenant, &id, &change]).await?, "the balance")?;
        }
        Ok(())
    }

    async fn claim_transfer(tx: &mut Tx, tenant: &str, transfer: &Transfer) -> Result<bool, Error> {
        let sql = include_str!("../sql/postgres/transfer_claim.sql");
        let Transfer { id, from, to, amount, currency } = transfer;
        Ok(tx.execute(sql, &[&tenant, id, from, to, amount, currency]).await? == 1)
    }

    async fn set_stock(tx: &mut Tx, tenant: &str, stock: &Stock) -> Result<(), Error> {
        let sql = include_str!("../sql/postgres/stock_set.sql");
        tx.execute(sql, &[&tenant, &stock.sku, &stock.quantity]).await.map(drop)
    }

    async fn find_stock(&self, tenant: &str, sku: &str) -> Result<i64, Error> {
        let sql = include_str!("../sql/postgres/stock_find.sql");
        let rows = self.client().await?.query_typed(sql, &[(&tenant, Type::TEXT), (&sku, Type::TEXT)]).await;
        let rows = rows.map_err(unread)?;
        rows.first().map_or(Ok(0), |row| row.try_get("quantity").map_err(failed))
    }

    async fn take_stock(tx: &mut Tx, tenant: &str, sku: &str, quantity: i64) -> Result<bool, Error> {
        let sql = include_str!("../sql/postgres/stock_take.sql");
        Ok(tx.execute(sql, &[&tenant, &sku, &quantity]).await? == 1)
    }

    async fn find_order(&self, tenant: &str, id: &str) -> Result<Option<Order>, Error> {
        let sql = include_str!("../sql/postgres/order_find.sql");
        let rows = self.client().await?.query_typed(sql, &[(&tenant, Type::TEXT), (&id, Type::TEXT)]).await;
        rows.map_err(unread)?.first().map(order).transpose()
    }

    fn return_stock(tx: &mut Tx, tenant: &str, sku: &str, quantity: i64) {
        let give = Deferred::expecting(1, include_str!("../sql/postgres/stock_return.sql"))
            .bind(tenant.to_owned())
            .bind(sku.to_owned())
            .bind(quantity);
        tx.defer(give);
    }

    fn insert_order(tx: &mut Tx, tenant: &str, order: &Order) {
        let insert = Deferred::expecting(1, include_str!("../sql/postgres/order_insert.sql"))
            .bind(tenant.to_owned())
            .bind(order.id.clone())
            .bind(order.account.clone())
            .bind(order.sku.clone())
            .bind(order.quantity)
            .bind(order.amount)
            .bind(order.currency.clone())
            .bind(order.referrer.clone());
        tx.defer(insert);
    }

    fn complete_order(tx: &mut Tx, tenant: &str, id: &str, charge: &str) {
        let complete = Deferred::expecting(1, include_str!("../sql/postgres/order_complete.sql"))
            .bind(tenant.to_owned())
            .bind(id.to_owned())
            .bind(charge.to_owned());
        tx.defer(complete);
    }

    fn fail_order(tx: &mut Tx, tenant: &str, id: &str) {
        let fail = Deferred::expecting(1, include_str!("../sql/postgres/order_fail.sql"))
            .bind(tenant.to_owned())
            .bind(id.to_owned());
        tx.defer(fail);
    }

    fn issue_receipt(tx: &mut Tx, consumer: &Consumer, receipt: &Receipt) {
        let issue = Deferred::expecting(1, include_str!("../sql/postgres/receipt_issue.sql"))
            .bind(consumer.name().to_owned())
            .bind(i64::from(consumer.generation()))
            .bind(receipt.tenant.clone())
            .bind(receipt.charge.clone())
            .bind(receipt.account.clone())
            .bind(receipt.amount)
            .bind(receipt.currency.clone());
        tx.defer(issue);
    }

    fn change_projection(tx: &mut Tx, consumer: &Consumer, change: &Change) {
        let add = Deferred::expecting(1, include_str!("../sql/postgres/projection_change.sql"))
            .bind(consumer.name().to_owned())
            .bind(i64::from(consumer.generation()))
            .bind(change.tenant.clone())
            .bind(change.account.clone())
            .bind(change.currency.clone())
            .bind(change.amount)
            .bind(change.version);
        tx.defer(add);
    }

    async fn consumed(&self, tenant: &str, consumer: &str) -> Result<Consumed, Error> {
        let sql = include_str!("../sql/postgres/consumed.sql");
        let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&tenant, Type::TEXT), (&consumer, Type::TEXT)];
        let rows = self.client().await?.query_typed(sql, &parameters).await.map_err(unread)?;
        let [row] = rows.as_slice() else { return Err(Error::RowCount("what was consumed is one row".to_owned())) };
        let count = |name| row.try_get::<_, i64>(name).map_err(failed);
        Ok(Consumed {
            charges: count("charges")?,
            receipts: count("receipts")?,
            repeated: count("repeated")?,
            movements: count("movements")?,
            applied: count("applied")?,
            apart: count("apart")?,
        })
    }
}

fn account(row: &Row) -> Result<Account, Error> {
    Ok(Account {
        id: row.try_get("id").map_err(failed)?,
        currency: row.try_get("currency").map_err(failed)?,
        balance: row.try_get("balance").map_err(failed)?,
        version: row.try_get("version").map_err(failed)?,
    })
}

fn charge(row: &Row) -> Result<Charge, Error> {
    Ok(Charge {
        id: row.try_get("id").map_err(failed)?,
        account: row.try_get("account").map_err(failed)?,
        amount: row.try_get("amount").map_err(failed)?,
        currency: row.try_get("currency").map_err(failed)?,
        status: "captured",
    })
}

fn bank_transaction(row: &Row) -> Result<BankTransaction, Error> {
    Ok(BankTransaction {
        transaction_id: row.try_get("transaction_id").map_err(failed)?,
        account: row.try_get("account").map_err(failed)?,
        amount: row.try_get("amount").map_err(failed)?,
    })
}

fn order(row: &Row) -> Result<Order, Error> {
    Ok(Order {
        id: row.try_get("id").map_err(failed)?,
        account: row.try_get("account").map_err(failed)?,
        sku: row.try_get("sku").map_err(failed)?,
        quantity: row.try_get("quantity").map_err(failed)?,
        amount: row.try_get("amount").map_err(failed)?,
        currency: row.try_get("currency").map_err(failed)?,
        referrer: row.try_get("referrer").map_err(failed)?,
        status: row.try_get("status").map_err(failed)?,
        charge: row.try_get("charge").map_err(failed)?,
    })
}

fn failed(error: tokio_postgres::Error) -> Error {
    Error::Statement(error.into())
}

/// A read of ours has no input that could make it fail, so it is the database that cannot be asked now.
fn unread(error: tokio_postgres::Error) -> Error {
    Error::Unavailable(error.into())
}
