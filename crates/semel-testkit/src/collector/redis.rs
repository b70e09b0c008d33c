//! Streams of Redis.

use redis::AsyncConnectionConfig;

use super::{Arrival, topics_of, unique};
use crate::broker::server_url;
use crate::redis::RedisRecipe;

/// Two streams with names of their own.
#[derive(Debug)]
pub struct RedisStreams {
    url: String,
    topics: [String; 2],
}

impl RedisStreams {
    /// Two new streams on the shared server.
    pub fn create() -> RedisStreams {
        RedisStreams { url: server_url::<RedisRecipe>(), topics: topics_of(&unique()) }
    }

    pub(super) fn sink_url(&self) -> String {
        self.url.clone()
    }

    pub(super) fn topics(&self) -> &[String; 2] {
        &self.topics
    }

    pub(super) async fn arrived(&self) -> Vec<Arrival> {
        type Entry = (String, Vec<(String, Vec<u8>)>);
        let client = redis::Client::open(self.url.as_str()).unwrap();
        // A whole stream is read at once, and that may take longer than the half second of the default.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
        let mut arrived = Vec::new();
        for topic in &self.topics {
            let mut range = redis::cmd("XRANGE");
            range.arg(topic).arg("-").arg("+");
            let entries: Vec<Entry> = range.query_async(&mut connection).await.unwrap();
            arrived.extend(entries.iter().map(|(_, fields)| arrival(topic, fields)));
        }
        arrived
    }
}

fn arrival(topic: &str, fields: &[(String, Vec<u8>)]) -> Arrival {
    let find = |name: &str| match fields.iter().find(|(field, _)| field == name) {
        Some((_, value)) => value.clone(),
        None => panic!("no field {name}"),
    };
    let text = |name: &str| String::from_utf8(find(name)).unwrap();
    Arrival {
        id: text("id"),
        topic: topic.to_owned(),
        event_type: text("type"),
        ordering_key: text("key"),
        lane: text("lane").parse().unwrap(),
        sequence: text("sequence").parse().unwrap(),
        incarnation: text("incarnation"),
        payload: find("payload"),
    }
}
