//! A transaction that the caller owns.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::{File, ask, completion, fresh, insert, reply, scope};
use semel::once::Error as OnceError;
use semel::{Error, Fingerprint, Key, Outcome, Reply, Semel, Tx as _};
use semel_sqlite::Sqlite;
use semel_sqlite::rusqlite::{self, Connection, Transaction, TransactionBehavior};

async fn charge(
    semel: &Semel<Sqlite>,
    transaction: &mut Transaction<'_>,
    key: &Key,
    status: u16,
) -> Result<Outcome, OnceError<rusqlite::Error>> {
    let fingerprint = Fingerprint::of_bytes(b"a request");
    semel
        .once_tx(transaction, &scope(), key, &fingerprint, async |transaction: &mut Transaction<'_>| {
            transaction.execute("INSERT INTO effects (label) VALUES ('joined')", ())?;
            Ok(Reply::new(status, "body").unwrap())
        })
        .await
}

fn immediate(connection: &mut Connection) -> Transaction<'_> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

#[tokio::test]
async fn effect_and_reply_commit_with_the_callers_transaction_or_not_at_all() {
    let file = File::create().await;
    let semel = Semel::new(file.open().await);
    let (mut connection, key) = (file.connection(), Key::random());

    let mut transaction = immediate(&mut connection);
    assert!(matches!(charge(&semel, &mut transaction, &key, 201).await.unwrap(), Outcome::Fresh(_)));
    transaction.rollback().unwrap();
    assert_eq!(file.effects("joined"), 0);

    let mut transaction = immediate(&mut connection);
    assert!(matches!(charge(&semel, &mut transaction, &key, 201).await.unwrap(), Outcome::Fresh(_)));
    transaction.commit().unwrap();

    let mut transaction = immediate(&mut connection);
    assert_eq!(charge(&semel, &mut transaction, &key, 201).await.unwrap(), Outcome::Replayed(reply()));
    transaction.commit().unwrap();
    assert_eq!(file.effects("joined"), 1);
}

#[tokio::test]
async fn a_refused_effect_is_rolled_back_and_its_reply_stored() {
    let file = File::create().await;
    let semel = Semel::new(file.open().await);
    let (mut connection, key) = (file.connection(), Key::random());
    for expected in ["Fresh", "Replayed"] {
        let mut transaction = immediate(&mut connection);
        let outcome = charge(&semel, &mut transaction, &key, 402).await.unwrap();
        transaction.commit().unwrap();
        assert!(format!("{outcome:?}").starts_with(expected));
        assert_eq!(file.effects("joined"), 0);
    }
}

#[tokio::test]
async fn of_a_joined_run_and_a_claimed_one_only_one_commits() {
    let file = File::create().await;
    let store = file.open().await;
    let semel = Semel::new(store.clone());
    let (mut connection, key) = (file.connection(), Key::random());
    // The claim sees the key free, and a joined run of it commits before the first statement.
    let mut tx = fresh(&store, &key).await;
    let mut transaction = immediate(&mut connection);
    charge(&semel, &mut transaction, &key, 201).await.unwrap();
    transaction.commit().unwrap();
    assert!(matches!(insert(&mut tx, "claimed").await, Err(Error::Raced)));
    let done = completion(tx.execution());
    assert!(matches!(tx.complete(&done).await, Err(Error::Raced)));

    // The joined run reads first, and the claimed one commits before it writes.
    let key = Key::random();
    let mut transaction = connection.transaction().unwrap();
    let claim = semel::Join::<Sqlite>::claim(&mut transaction, &ask(&key)).await.unwrap();
    assert!(matches!(claim, semel::Claim::Fresh(_)));
    let mut tx = fresh(&store, &key).await;
    insert(&mut tx, "claimed").await.unwrap();
    let done = completion(tx.execution());
    tx.complete(&done).await.unwrap();
    let late = semel::Join::<Sqlite>::complete(&mut transaction, &ask(&key), &done).await;
    assert!(matches!(late, Err(Error::Conflict(_) | Error::Raced)), "{late:?}");
    drop(transaction);
    assert_eq!((file.effects("joined"), file.effects("claimed")), (1, 1));
}
