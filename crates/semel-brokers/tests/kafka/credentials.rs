//! Who may publish, and what is said about it.

use semel_brokers::kafka::Kafka;
use semel_testkit::kafka as server;

use crate::cluster::{Topic, publish};

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_told_without_repeating_it() {
    let kafka = server::Kafka::temporary().unwrap();
    let topic = Topic::on(&kafka.url(), &[]).await;
    let url = format!("{}?timeout_ms=5000", kafka.url_with_password("wr0ng-passw0rd"));
    let error = Kafka::connect(&url, "tests").await.unwrap_err();
    assert!(matches!(error, semel_brokers::Error::Refused(_)), "{error:?}");
    assert!(error.to_string().contains("Authentication failed"), "{error}");
    assert!(!format!("{error} {error:?}").contains("wr0ng-passw0rd"), "{error:?}");

    let sink = Kafka::connect(&kafka.url_with_password(server::PASSWORD), "tests").await.unwrap();
    assert!(!format!("{sink:?}").contains(server::PASSWORD));
    assert_eq!(publish(&sink, &[topic.event("key", 1, vec![])], 0).await, ["ok"]);
    assert_eq!(topic.read().len(), 1);

    let encrypted = Kafka::connect(&kafka.url_with_tls(), "tests").await;
    if cfg!(feature = "kafka-tls") {
        let sink = encrypted.unwrap();
        assert_eq!(publish(&sink, &[topic.event("key", 2, vec![])], 0).await, ["ok"]);
        for (sequence, mechanism) in [(3, "SCRAM-SHA-256"), (4, "SCRAM-SHA-512")] {
            let url = format!("{}&sasl={mechanism}", kafka.url_with_tls());
            let sink = Kafka::connect(&url, "tests").await.unwrap();
            assert_eq!(publish(&sink, &[topic.event("key", sequence, vec![])], 0).await, ["ok"]);
        }
        assert_eq!(topic.read().len(), 4);
        // A certificate that nobody vouches for is not trusted.
        let untrusted = kafka.url_with_tls();
        let untrusted = untrusted.split("&ca=").next().unwrap();
        let error = Kafka::connect(&format!("{untrusted}&timeout_ms=5000"), "tests").await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    } else {
        let error = encrypted.unwrap_err().to_string();
        assert!(error.contains("kafka-tls"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_not_there_is_unavailable() {
    let port = semel_testkit::cluster::free_port().unwrap();
    let error = Kafka::connect(&format!("kafka://127.0.0.1:{port}/?timeout_ms=1000"), "tests").await.unwrap_err();
    assert!(matches!(error, semel_brokers::Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains(&port.to_string()), "{error}");
}
