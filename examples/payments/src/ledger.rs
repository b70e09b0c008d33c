//! The bookkeeping that a store must be able to do.

use std::future::Future;

use semel::flow::FlowStore;
use semel::{Consumer, Error};
use serde::{Deserialize, Serialize};

/// The largest amount and the largest balance, in minor units: 2^53, what every JSON client holds exactly.
pub const MAX_AMOUNT: i64 = 1 << 53;

/// The books of the payments service, on the database that also holds Semel's keys.
///
/// What takes `&mut Self::Tx` becomes visible when that transaction commits and is gone when it rolls back. In a keyed
/// request it is the transaction that holds the claim, so the entries and the stored reply commit together (I1); in a
/// flow it is the transaction of a step, so that they commit with the record of that step.
pub trait Ledger: FlowStore {
    /// Creates the service's tables where they are missing. Safe to run from several processes at once.
    fn install(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Opens a transaction without a key, for requests that carry a natural one. Dropping it rolls it back.
    fn transaction(&self) -> impl Future<Output = Result<Self::Tx, Error>> + Send;

    /// Commits what [`Ledger::transaction`] opened.
    fn commit(tx: Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;

    /// Reads an account as last committed.
    fn find_account(&self, tenant: &str, id: &str) -> impl Future<Output = Result<Option<Account>, Error>> + Send;

    /// Counts a tenant's books, all at one moment.
    fn summary(&self, tenant: &str) -> impl Future<Output = Result<Summary, Error>> + Send;

    /// Opens an account with a balance of zero. `false` if the id is taken.
    fn insert_account(
        tx: &mut Self::Tx,
        tenant: &str,
        id: &str,
        currency: &str,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Locks up to two accounts to the end of the transaction, always in the order of their ids, and reads them. An
    /// unknown one is missing from the answer.
    fn lock_accounts(
        tx: &mut Self::Tx,
        tenant: &str,
        one: &str,
        other: &str,
    ) -> impl Future<Output = Result<Vec<Account>, Error>> + Send;

    /// Records a charge. `false` if the id is taken.
    fn insert_charge(
        tx: &mut Self::Tx,
        tenant: &str,
        charge: &Charge,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Reads a charge.
    fn charge(tx: &mut Self::Tx, tenant: &str, id: &str) -> impl Future<Output = Result<Option<Charge>, Error>> + Send;

    /// Records a transaction under the bank's own id. `false` if the id is taken.
    fn insert_bank_transaction(
        tx: &mut Self::Tx,
        tenant: &str,
        transaction: &BankTransaction,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Reads a bank transaction.
    fn bank_transaction(
        tx: &mut Self::Tx,
        tenant: &str,
        id: &str,
    ) -> impl Future<Output = Result<Option<BankTransaction>, Error>> + Send;

    /// Records a transfer. It is deferred: written in one flight with the commit, or not at all.
    fn insert_transfer(tx: &mut Self::Tx, tenant: &str, transfer: &Transfer);

    /// Moves money: one debit, one credit, and the balances of the accounts on either side. It is deferred: written in
    /// one flight with the commit, or not at all. The caller has locked the accounts and knows that their balances stay
    /// within bounds; if it is wrong, the database refuses and everything is rolled back.
    fn post(tx: &mut Self::Tx, tenant: &str, movement: &Movement<'_>);

    /// [`Ledger::post`] at once, so that whatever reads the accounts next in this transaction finds their new balances
    /// and versions. For transactions that apply several messages: what is deferred there is written behind all of
    /// them. [`Error::RowCount`] if an account is missing.
    fn post_now(
        tx: &mut Self::Tx,
        tenant: &str,
        movement: &Movement<'_>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Records a transfer, if its id is free. `false` if it is taken: the money has been moved already.
    fn claim_transfer(
        tx: &mut Self::Tx,
        tenant: &str,
        transfer: &Transfer,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Sets how many pieces of an article there are, whatever there were.
    fn set_stock(tx: &mut Self::Tx, tenant: &str, stock: &Stock) -> impl Future<Output = Result<(), Error>> + Send;

    /// Reads how many pieces of an article there are, as last committed: none of one that nobody has set.
    fn find_stock(&self, tenant: &str, sku: &str) -> impl Future<Output = Result<i64, Error>> + Send;

    /// Takes pieces out of the stock, whose row stays locked to the end of the transaction. `false` if there are too
    /// few; then none is taken.
    fn take_stock(
        tx: &mut Self::Tx,
        tenant: &str,
        sku: &str,
        quantity: i64,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Puts pieces back that [`Ledger::take_stock`] took. It is deferred: written with the commit, or not at all.
    fn return_stock(tx: &mut Self::Tx, tenant: &str, sku: &str, quantity: i64);

    /// Records an order as *pending*, whatever its status says. Deferred likewise.
    fn insert_order(tx: &mut Self::Tx, tenant: &str, order: &Order);

    /// Reads an order as last committed.
    fn find_order(&self, tenant: &str, id: &str) -> impl Future<Output = Result<Option<Order>, Error>> + Send;

    /// Makes a pending order *completed*, with the card processor's id of its charge. Deferred likewise; an order that
    /// is not pending rolls everything back.
    fn complete_order(tx: &mut Self::Tx, tenant: &str, id: &str, charge: &str);

    /// Makes a pending order *failed*. Deferred likewise; an order that is not pending rolls everything back.
    fn fail_order(tx: &mut Self::Tx, tenant: &str, id: &str);

    /// Issues a receipt for a charge, in the rows of one consumer. It is deferred: written with the proof that the
    /// charge's event was seen, or not at all (I6).
    fn issue_receipt(tx: &mut Self::Tx, consumer: &Consumer, receipt: &Receipt);

    /// Adds a change to what one consumer knows of an account's balance. Deferred like a receipt.
    fn change_projection(tx: &mut Self::Tx, consumer: &Consumer, change: &Change);

    /// Compares what a consumer has made of a tenant's events with the books, all at one moment.
    fn consumed(&self, tenant: &str, consumer: &str) -> impl Future<Output = Result<Consumed, Error>> + Send;
}

/// An account of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Chosen by the client.
    pub id: String,
    /// Three upper-case letters.
    pub currency: String,
    /// In minor units, never below zero.
    pub balance: i64,
    /// How often the balance has changed. Clients do not see it.
    #[serde(skip)]
    pub version: i64,
}

/// Money taken from a card and credited to an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Charge {
    /// Derived from the execution, or chosen by the client.
    pub id: String,
    /// The account that was credited.
    pub account: String,
    /// In minor units.
    pub amount: i64,
    /// The account's currency.
    pub currency: String,
    /// Always `captured`.
    pub status: &'static str,
}

/// Money moved between two accounts of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Transfer {
    /// Derived from the execution.
    pub id: String,
    /// The account that was debited.
    pub from: String,
    /// The account that was credited.
    pub to: String,
    /// In minor units.
    pub amount: i64,
    /// The currency of both accounts.
    pub currency: String,
}

/// Money that arrived at the bank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BankTransaction {
    /// The bank's own id.
    pub transaction_id: String,
    /// The account that was credited.
    pub account: String,
    /// In minor units.
    pub amount: i64,
}

/// How many pieces of an article there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stock {
    /// Which article, by a name that the client chose.
    pub sku: String,
    /// How many. What orders have taken is not counted any more.
    pub quantity: i64,
}

/// Pieces of an article, paid by card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Order {
    /// Derived from the execution of its flow.
    pub id: String,
    /// The account that gets the money.
    pub account: String,
    /// The article.
    pub sku: String,
    /// How many pieces.
    pub quantity: i64,
    /// In minor units, for all pieces.
    pub amount: i64,
    /// The account's currency.
    pub currency: String,
    /// The account that gets a referral for it.
    pub referrer: Option<String>,
    /// `pending`, `completed` or `failed`.
    pub status: String,
    /// The card processor's id of the charge, once it is completed.
    pub charge: Option<String>,
}

/// What a tenant's books hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// How many charges.
    pub charges: i64,
    /// How many transfers.
    pub transfers: i64,
    /// How many entries: two for every charge, transfer and bank transaction.
    pub entries: i64,
    /// The sum over all entries. Anything but zero means that the books are broken.
    pub sum: i128,
}

/// What a consumer issues for a charge.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Receipt {
    /// Whose charge it is.
    pub tenant: String,
    /// The charge's id.
    #[serde(rename = "id")]
    pub charge: String,
    /// The account that was credited.
    pub account: String,
    /// In minor units.
    pub amount: i64,
    /// The charge's currency.
    pub currency: String,
}

/// How an account's balance changed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Change {
    /// Whose account it is.
    pub tenant: String,
    /// Which account.
    pub account: String,
    /// In minor units, below zero for a debit.
    pub amount: i64,
    /// The account's currency.
    pub currency: String,
    /// Which change of this account it is, counted from one.
    pub version: i64,
}

/// What a consumer has made of a tenant's events, in its latest generation, beside what the books say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Consumed {
    /// How many charges there are.
    pub charges: i64,
    /// How many of them have a receipt.
    pub receipts: i64,
    /// How many receipts were issued more than once. Anything but zero is a message that applied twice.
    pub repeated: i64,
    /// How often the accounts' balances have changed.
    pub movements: i64,
    /// How many of these changes were applied.
    pub applied: i64,
    /// How many accounts stand otherwise than their projection. Zero once everything was applied.
    pub apart: i64,
}

/// One movement of money.
#[derive(Debug, Clone, Copy)]
pub struct Movement<'a> {
    /// `charge`, `transfer` or `bank`.
    pub kind: &'static str,
    /// The id of what moved the money.
    pub reference: &'a str,
    /// Who is debited.
    pub from: Party<'a>,
    /// Who is credited.
    pub to: Party<'a>,
    /// In minor units, above zero.
    pub amount: i64,
    /// The currency of both sides.
    pub currency: &'a str,
}

/// One side of a movement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party<'a> {
    /// An account of the tenant.
    Account(&'a str),
    /// The outside that cards are charged at.
    Card,
    /// The outside that bank transactions come from.
    Bank,
}

impl<'a> Party<'a> {
    /// What the entry is written on.
    pub fn name(self) -> &'a str {
        match self {
            Party::Account(id) => id,
            Party::Card => "card",
            Party::Bank => "bank",
        }
    }

    /// Whether it is outside, so that it has no balance here.
    pub fn external(self) -> bool {
        !matches!(self, Party::Account(_))
    }
}

impl Movement<'_> {
    /// By how much each account's balance changes.
    pub(crate) fn balance_changes(&self) -> impl Iterator<Item = (&str, i64)> {
        [(self.from, -self.amount), (self.to, self.amount)]
            .into_iter()
            .filter(|(party, _)| !party.external())
            .map(|(party, change)| (party.name(), change))
    }
}

/// Fails if a statement touched another number of rows than it must. The caller rolls back.
pub(crate) fn require_rows(expected: u64, touched: u64, what: &str) -> Result<(), Error> {
    if touched == expected {
        return Ok(());
    }
    Err(Error::RowCount(format!("expected {expected} and touched {touched}: {what}")))
}
