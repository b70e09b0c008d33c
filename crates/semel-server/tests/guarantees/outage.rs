//! The database goes away and comes back.

use semel_testkit::cluster::Cluster;
use semel_testkit::database::TempDatabase;

use crate::world::{AMOUNT, Sandbox};

#[tokio::test(flavor = "multi_thread")]
async fn without_its_database_nothing_runs_and_with_it_all_works_again() {
    let mut cluster = Cluster::temporary().unwrap();
    let database = TempDatabase::create_on(&cluster.url()).await;
    let sandbox = Sandbox::start(&database.url(), &[]).await;
    sandbox.open_account("alice").await;
    assert_eq!(sandbox.charge("before").await.status, 201);

    for crash in [false, true] {
        if crash {
            cluster.kill().unwrap();
        } else {
            cluster.stop().unwrap();
        }
        let key = format!("during-{crash}");
        for _ in 0..3 {
            let refused = sandbox.charge(&key).await;
            assert_eq!(refused.status, 503, "{refused:?}");
            let problem: serde_json::Value = serde_json::from_slice(&refused.body).unwrap();
            assert_eq!(problem["code"], "store-unavailable");
        }
        let health = sandbox.client.get(sandbox.service.url("/healthz")).send().await.unwrap();
        assert_eq!(health.status(), 503);
        cluster.restart().unwrap();

        // The same process, without a restart of its own.
        let answer = sandbox.charge_until_answered(&key).await;
        assert_eq!((answer.status, answer.replayed), (201, false), "nothing ran while the database was away");
        assert!(sandbox.charge_until_answered("before").await.replayed);
    }
    assert_eq!(sandbox.balance("alice").await, 3 * AMOUNT);
}
