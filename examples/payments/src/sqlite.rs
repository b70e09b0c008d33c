//! The books on SQLite.

use semel::{Consumer, Error};
use semel_sqlite::rusqlite::{self, OptionalExtension, Row};
use semel_sqlite::{Deferred, Sqlite, Tx};

use crate::ledger::{
    Account, BankTransaction, Change, Charge, Consumed, Ledger, Movement, Order, Receipt, Stock, Summary, Transfer,
    require_rows,
};

impl Ledger for Sqlite {
    async fn install(&self) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        tx.execute_batch(include_str!("../sql/sqlite/schema.sql")).await?;
        let known = include_str!("../sql/sqlite/versions_known.sql");
        if tx.query_row(known, (), |row| row.get::<_, i64>(0)).await? == 0 {
            tx.execute_batch(include_str!("../sql/sqlite/versions_add.sql")).await?;
        }
        tx.commit().await
    }

    async fn transaction(&self) -> Result<Tx, Error> {
        self.begin().await
    }

    async fn commit(tx: Tx) -> Result<(), Error> {
        tx.commit().await
    }

    async fn find_account(&self, tenant: &str, id: &str) -> Result<Option<Account>, Error> {
        let sql = include_str!("../sql/sqlite/account_find.sql");
        self.read(|connection| connection.prepare_cached(sql)?.query_row((tenant, id), account).optional()).await
    }

    async fn summary(&self, tenant: &str) -> Result<Summary, Error> {
        let sql = include_str!("../sql/sqlite/summary.sql");
        self.read(|connection| connection.prepare_cached(sql)?.query_row((tenant,), summary)).await
    }

    async fn insert_account(tx: &mut Tx, tenant: &str, id: &str, currency: &str) -> Result<bool, Error> {
        let sql = include_str!("../sql/sqlite/account_insert.sql");
        Ok(tx.execute(sql, (tenant, id, currency)).await? == 1)
    }

    async fn lock_accounts(tx: &mut Tx, tenant: &str, one: &str, other: &str) -> Result<Vec<Account>, Error> {
        tx.query_all(include_str!("../sql/sqlite/accounts_lock.sql"), (tenant, one, other), account).await
    }

    async fn insert_charge(tx: &mut Tx, tenant: &str, charge: &Charge) -> Result<bool, Error> {
        let sql = include_str!("../sql/sqlite/charge_insert.sql");
        let Charge { id, account, amount, currency, .. } = charge;
        Ok(tx.execute(sql, (tenant, id, account, amount, currency)).await? == 1)
    }

    async fn charge(tx: &mut Tx, tenant: &str, id: &str) -> Result<Option<Charge>, Error> {
        tx.query_opt(include_str!("../sql/sqlite/charge_find.sql"), (tenant, id), charge).await
    }

    async fn insert_bank_transaction(tx: &mut Tx, tenant: &str, received: &BankTransaction) -> Result<bool, Error> {
        let sql = include_str!("../sql/sqlite/bank_insert.sql");
        let BankTransaction { transaction_id, account, amount } = received;
        Ok(tx.execute(sql, (tenant, transaction_id, account, amount)).await? == 1)
    }

    async fn bank_transaction(tx: &mut Tx, tenant: &str, id: &str) -> Result<Option<BankTransaction>, Error> {
        tx.query_opt(include_str!("../sql/sqlite/bank_find.sql"), (tenant, id), bank_transaction).await
    }

    fn insert_transfer(tx: &mut Tx, tenant: &str, transfer: &Transfer) {
        let insert = Deferred::expecting(1, include_str!("../sql/sqlite/transfer_insert.sql"))
            .bind(tenant.to_owned())
            .bind(transfer.id.clone())
            .bind(transfer.from.clone())
            .bind(transfer.to.clone())
            .bind(transfer.amount)
            .bind(transfer.currency.clone());
        tx.defer(insert);
    }

    fn post(tx: &mut Tx, tenant: &str, movement: &Movement<'_>) {
        let entries = Deferred::expecting(2, include_str!("../sql/sqlite/entries_insert.sql"))
            .bind(tenant.to_owned())
            .bind(movement.kind.to_owned())
            .bind(movement.reference.to_owned())
            .bind(movement.from.name().to_owned())
            .bind(movement.from.external())
            .bind(movement.amount)
            .bind(movement.currency.to_owned())
            .bind(movement.to.name().to_owned())
            .bind(movement.to.external());
        tx.defer(entries);
        for (id, change) in movement.balance_changes() {
            let update = Deferred::expecting(1, include_str!("../sql/sqlite/balance_update.sql"))
                .bind(tenant.to_owned())
                .bind(id.to_owned())
                .bind(change);
            tx.defer(update);
        }
    }

    async fn post_now(tx: &mut Tx, tenant: &str, movement: &Movement<'_>) -> Result<(), Error> {
        let sql = include_str!("../sql/sqlite/entries_insert.sql");
        let Movement { kind, reference, from, to, amount, currency } = *movement;
        let (debited, outside, credited, abroad) = (from.name(), from.external(), to.name(), to.external());
        let entries = (tenant, kind, reference, debited, outside, amount, currency, credited, abroad);
        require_rows(2, tx.execute(sql, entries).await? as u64, "the entries")?;
        for (id, change) in movement.balance_changes() {
            let sql = include_str!("../sql/sqlite/balance_update.sql");
            require_rows(1, tx.execute(sql, (tenant, id, change)).await? as u64, "the balance")?;
        }
        Ok(())
    }

    async fn claim_transfer(tx: &mut Tx, tenant: &str, transfer: &Transfer) -> Result<bool, Error> {
        let sql = include_str!("../sql/sqlite/transfer_claim.sql");
        let Transfer { id, from, to, amount, currency } = transfer;
        Ok(tx.execute(sql, (tenant, id, from, to, amount, currency)).await? == 1)
    }

    async fn set_stock(tx: &mut Tx, tenant: &str, stock: &Stock) -> Result<(), Error> {
        let sql = include_str!("../sql/sqlite/stock_set.sql");
        tx.execute(sql, (tenant, &stock.sku, stock.quantity)).await.map(drop)
    }

    async fn find_stock(&self, tenant: &str, sku: &str) -> Result<i64, Error> {
        let sql = include_str!("../sql/sqlite/stock_find.sql");
        let read = self.read(|connection| connection.prepare_cached(sql)?.query_row((tenant, sku), first).optional());
        Ok(read.await?.unwrap_or(0))
    }

    async fn take_stock(tx: &mut Tx, tenant: &str, sku: &str, quantity: i64) -> Result<bool, Error> {
        let sql = include_str!("../sql/sqlite/stock_take.sql");
        Ok(tx.execute(sql, (tenant, sku, quantity)).await? == 1)
    }

    async fn find_order(&self, tenant: &str, id: &str) -> Result<Option<Order>, Error> {
        let sql = include_str!("../sql/sqlite/order_find.sql");
        self.read(|connection| connection.prepare_cached(sql)?.query_row((tenant, id), order).optional()).await
    }

    fn return_stock(tx: &mut Tx, tenant: &str, sku: &str, quantity: i64) {
        let give = Deferred::expecting(1, include_str!("../sql/sqlite/stock_return.sql"))
            .bind(tenant.to_owned())
            .bind(sku.to_owned())
            .bind(quantity);
        tx.defer(give);
    }

    fn insert_order(tx: &mut Tx, tenant: &str, order: &Order) {
        let insert = Deferred::expecting(1, include_str!("../sql/sqlite/order_insert.sql"))
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
        let complete = Deferred::expecting(1, include_str!("../sql/sqlite/order_complete.sql"))
            .bind(tenant.to_owned())
            .bind(id.to_owned())
            .bind(charge.to_owned());
        tx.defer(complete);
    }

    fn fail_order(tx: &mut Tx, tenant: &str, id: &str) {
        let fail = Deferred::expecting(1, include_str!("../sql/sqlite/order_fail.sql"))
            .bind(tenant.to_owned())
            .bind(id.to_owned());
        tx.defer(fail);
    }

    fn issue_receipt(tx: &mut Tx, consumer: &Consumer, receipt: &Receipt) {
        let issue = Deferred::expecting(1, include_str!("../sql/sqlite/receipt_issue.sql"))
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
        let add = Deferred::expecting(1, include_str!("../sql/sqlite/projection_change.sql"))
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
        let sql = include_str!("../sql/sqlite/consumed.sql");
        self.read(|connection| connection.prepare_cached(sql)?.query_row((tenant, consumer), consumed)).await
    }
}

fn account(row: &Row<'_>) -> rusqlite::Result<Account> {
    Ok(Account {
        id: row.get("id")?,
        currency: row.get("currency")?,
        balance: row.get("balance")?,
        version: row.get("version")?,
    })
}

fn charge(row: &Row<'_>) -> rusqlite::Result<Charge> {
    Ok(Charge {
        id: row.get("id")?,
        account: row.get("account")?,
        amount: row.get("amount")?,
        currency: row.get("currency")?,
        status: "captured",
    })
}

fn bank_transaction(row: &Row<'_>) -> rusqlite::Result<BankTransaction> {
    Ok(BankTransaction {
        transaction_id: row.get("transaction_id")?,
        account: row.get("account")?,
        amount: row.get("amount")?,
    })
}

fn first(row: &Row<'_>) -> rusqlite::Result<i64> {
    row.get(0)
}

fn order(row: &Row<'_>) -> rusqlite::Result<Order> {
    Ok(Order {
        id: row.get("id")?,
        account: row.get("account")?,
        sku: row.get("sku")?,
        quantity: row.get("quantity")?,
        amount: row.get("amount")?,
        currency: row.get("currency")?,
        referrer: row.get("referrer")?,
        status: row.get("status")?,
        charge: row.get("charge")?,
    })
}

fn consumed(row: &Row<'_>) -> rusqlite::Result<Consumed> {
    Ok(Consumed {
        charges: row.get("charges")?,
        receipts: row.get("receipts")?,
        repeated: row.get("repeated")?,
        movements: row.get("movements")?,
        applied: row.get("applied")?,
        apart: row.get("apart")?,
    })
}

fn summary(row: &Row<'_>) -> rusqlite::Result<Summary> {
    let (upper, lower): (i64, i64) = (row.get("upper_sum")?, row.get("lower_sum")?);
    Ok(Summary {
        charges: row.get("charges")?,
        transfers: row.get("transfers")?,
        entries: row.get("entries")?,
        sum: (i128::from(upper) << 32) + i128::from(lower),
    })
}
