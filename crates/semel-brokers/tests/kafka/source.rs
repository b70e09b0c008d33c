//! The suite that every source passes, on Kafka.

use std::time::Duration;

use semel::Sink;
use semel::sink::{Lane, Outgoing, Position};
use semel_brokers::Subscription;
use semel_brokers::kafka::{Kafka, KafkaSource};
use semel_testkit::poll::until;
use semel_testkit::sources::Harness;

use crate::cluster::Topic;

struct FromKafka {
    topic: Topic,
    sink: Kafka,
}

impl FromKafka {
    async fn on(url: &str) -> FromKafka {
        let kept = [("retention.ms", "3600000"), ("segment.ms", "600000"), ("file.delete.delay.ms", "30000")];
        let topic = Topic::on(url, &kept).await;
        let sink = topic.sink("timeout_ms=4000").await;
        FromKafka { topic, sink }
    }
}

impl Harness for FromKafka {
    type Source = KafkaSource;

    async fn shared() -> FromKafka {
        FromKafka::on(&crate::cluster::shared_url()).await
    }

    async fn open(&self, consumer: &str, generation: u32) -> KafkaSource {
        open(&self.topic, consumer, generation).await
    }

    async fn publish(&self, events: &[Outgoing]) {
        until("all are acknowledged", async || {
            let results = self.sink.publish(Lane(3), events, &Position(vec![])).await;
            results.iter().all(Result::is_ok)
        })
        .await;
    }

    fn topic(&self) -> String {
        self.topic.name.clone()
    }

    fn longest(&self) -> Option<Duration> {
        // What the topic is set to, and how often Kafka looks unless it is told otherwise.
        Some(Duration::from_secs(3600 + 600 + 30 + 300))
    }
}

/// A source of this topic, for a consumer that nobody else has.
pub(crate) async fn open(topic: &Topic, consumer: &str, generation: u32) -> KafkaSource {
    let subscription = Subscription::new(format!("{}-{consumer}", topic.name)).in_generation(generation);
    KafkaSource::open(&format!("{}?topic={}&timeout_ms=5000", topic.url, topic.name), &subscription).await.unwrap()
}

// There is nothing to prolong, because a partition has one reader. And what is in hand comes again only when its reader
// gives it back or leaves the group, not by itself: `consuming` has the tests of a receive that is dropped and of a
// broker that is killed.
semel_testkit::source_tests! { @modules FromKafka,
    arriving {
        a_message_arrives_whole,
        messages_of_a_key_arrive_in_their_order,
        how_long_a_message_may_come_again_is_told_as_the_broker_is_set,
    }
    redelivering {
        what_is_not_acknowledged_comes_again_after_a_crash_and_the_rest_does_not,
        what_is_given_back_comes_again,
    }
    sharing {
        two_who_read_as_one_consumer_share_the_messages,
        another_consumer_gets_every_message_too,
        a_new_generation_begins_with_the_first_message,
    }
}
