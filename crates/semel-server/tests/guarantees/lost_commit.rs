//! The connection to the database is cut right after COMMIT was forwarded.

use semel_testkit::counts::rounds;
use semel_testkit::database::TempDatabase;
use semel_testkit::proxy::{Fault, FaultProxy};

use crate::world::{AMOUNT, Sandbox};

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_cut_off_from_its_acknowledgement_counts_once_and_the_retry_replays() {
    let database = TempDatabase::create().await;
    let proxy = FaultProxy::start(database.server_address()).unwrap();
    let url = format!("{}?sslmode=disable", database.url_on_port(proxy.port()));
    let sandbox = Sandbox::start(&url, &[]).await;
    sandbox.open_account("alice").await;
    for round in 1..=rounds(20, 500) {
        let fault = if round % 2 == 0 { Fault::CutAfterCommitForwarded } else { Fault::DropCommitAcknowledgement };
        let (key, cuts) = (format!("round-{round}"), proxy.cuts());
        proxy.arm(fault);
        let answer = sandbox.charge_until_answered(&key).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        assert!(proxy.cuts() > cuts, "round {round} was cut off");
        let again = sandbox.charge_until_answered(&key).await;
        assert!(again.replayed && again.body == answer.body, "{again:?}");
        assert_eq!(sandbox.balance("alice").await, u64::from(round) * AMOUNT, "round {round}, {fault:?}");
    }
}
