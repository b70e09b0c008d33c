//! A stream of NATS JetStream.

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, Context, stream};

use super::{Arrival, topics_of, unique};
use crate::broker::server_url;
use crate::nats::NatsRecipe;

/// A stream with a name of its own.
#[derive(Debug)]
pub struct NatsStream {
    url: String,
    name: String,
    topics: [String; 2],
}

impl NatsStream {
    /// A new stream on the shared server.
    pub async fn create() -> NatsStream {
        NatsStream::create_on(server_url::<NatsRecipe>()).await
    }

    /// A new stream on the server of this URL, which may be one of the test's own.
    pub async fn create_on(url: String) -> NatsStream {
        let name = unique();
        let stream = NatsStream { url, topics: topics_of(&name), name };
        let subjects = vec![format!("{}.>", stream.name)];
        let config = stream::Config { name: stream.name.clone(), subjects, ..stream::Config::default() };
        stream.context().await.create_stream(config).await.unwrap();
        stream
    }

    async fn context(&self) -> Context {
        let rest = self.url.trim_start_matches("nats://").trim_end_matches('/');
        let (login, address) = rest.split_once('@').unwrap_or(("", rest));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let options = match user {
            "" => ConnectOptions::new(),
            user => ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned()),
        };
        jetstream::new(options.connect(address).await.unwrap())
    }

    pub(super) fn sink_url(&self) -> String {
        format!("{}?stream={}&prefix={}.", self.url, self.name, self.name)
    }

    pub(super) fn topics(&self) -> &[String; 2] {
        &self.topics
    }

    pub(super) async fn arrived(&self) -> Vec<Arrival> {
        let stream = self.context().await.get_stream(&self.name).await.unwrap();
        let mut arrived = Vec::new();
        for sequence in 1..=stream.cached_info().state.last_sequence {
            let message = stream.get_raw_message(sequence).await.unwrap();
            let text = |name: &str| match message.headers.get(name) {
                Some(value) => value.as_str().to_owned(),
                None => panic!("no header {name}"),
            };
            let topic = message.subject.strip_prefix(&format!("{}.", self.name)).map(str::to_owned);
            arrived.push(Arrival {
                id: text("ce-id"),
                topic: topic.unwrap_or_default(),
                event_type: text("ce-type"),
                ordering_key: text("ce-partitionkey"),
                lane: text("semel-lane").parse().unwrap(),
                sequence: text("semel-sequence").parse().unwrap(),
                incarnation: text("semel-incarnation"),
                payload: message.payload.to_vec(),
            });
        }
        arrived
    }
}
