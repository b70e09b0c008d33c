//! Events for the suite, made without chance.

use std::collections::HashMap;

use semel::sink::{Error, Lane, Outgoing, Position};
use semel::{Event, Sink};

/// An event on its way out, with an id of its own.
pub fn outgoing(lane: u16, sequence: u64, event: Event) -> Outgoing {
    Outgoing {
        id: uuid::Uuid::new_v4().into(),
        source: "/semel/test".to_owned(),
        time_ms: 1_700_000_000_123,
        lane: Lane(lane),
        sequence,
        incarnation: "7-1".to_owned(),
        event,
    }
}

/// Events of one lane with the sequence numbers given, over `keys` ordering keys in turn. The payload is the sequence
/// number, so that it grows within each key.
pub fn batch(topic: &str, lane: u16, sequences: std::ops::Range<u64>, keys: u64) -> Vec<Outgoing> {
    let event = |sequence: u64| {
        let key = format!("lane {lane} key {}", sequence % keys);
        let payload = sequence.to_string();
        Event::bytes(topic, key, "test.counted", "text/plain", payload.into_bytes()).unwrap()
    };
    sequences.map(|sequence| outgoing(lane, sequence, event(sequence))).collect()
}

/// Publishes, and checks that there is one answer per event and that after a failure the rest of the key is behind.
pub async fn publish<S: Sink>(sink: &S, batch: &[Outgoing]) -> Vec<Result<(), Error>> {
    let lane = batch.first().map_or(Lane(0), |first| first.lane);
    let position = Position(batch.last().map_or(0, |last| last.sequence).to_be_bytes().to_vec());
    let results = sink.publish(lane, batch, &position).await;
    assert_eq!(results.len(), batch.len(), "one answer per event");
    let mut failed: HashMap<&str, bool> = HashMap::new();
    for (outgoing, result) in batch.iter().zip(&results) {
        let failed = failed.entry(&outgoing.event.ordering_key).or_default();
        let behind = matches!(result, Err(Error::Behind));
        assert_eq!(behind, *failed, "{:?} of {}: {result:?}", outgoing.sequence, outgoing.event.ordering_key);
        *failed |= result.is_err();
    }
    results
}
