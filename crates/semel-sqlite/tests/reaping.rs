//! Expired keys go in batches that are bounded by what they hold.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Duration;

use common::{File, completion, fresh, insert};
use semel::{Key, Store, Tx as _};

#[tokio::test]
async fn a_batch_of_large_replies_is_cut_by_its_bytes() {
    let file = File::create().await;
    let store = file.open().await;
    const KEYS: u64 = 20;
    for _ in 0..KEYS {
        let mut tx = fresh(&store, &Key::random()).await;
        insert(&mut tx, "large").await.unwrap();
        let mut done = completion(tx.execution());
        done.stored.body = vec![7; 3 * 1024 * 1024].into();
        tx.complete(&done).await.unwrap();
    }
    file.clock.advance(Duration::from_secs(25 * 60 * 60));
    let before = store.commits();
    assert_eq!(store.reap(2).await.unwrap(), 2);
    assert_eq!(store.commits() - before, 1, "two fit");
    let before = store.commits();
    assert_eq!(store.reap(1000).await.unwrap(), KEYS - 2, "fewer than asked for means that nothing is left");
    assert_eq!(store.commits() - before, 6, "three at a time");
    assert_eq!(store.reap(1000).await.unwrap(), 0);
}
