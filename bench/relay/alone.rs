//! Semel's sinks without a store: what the relay could reach if reading cost nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use semel::event::EventId;
use semel::sink::{Lane, Outgoing, Position};
use semel::{Event, Execution, Sink};
use semel_brokers::AnySink;
use tokio::task::JoinSet;

use crate::case::SinkKind;
use crate::ledger::Ledger;
use crate::load::{Load, TOPIC};
use crate::servers::{Servers, Stream};

/// How many events of a lane go at once: about what a relay finds of one lane when it reads without pause.
const BATCH: usize = 32;

/// Connects Semel's sink of this kind; `None` for one that only acknowledges. The stream is to be removed afterwards.
pub(crate) async fn connect(servers: &Servers, sink: SinkKind) -> Result<(Option<AnySink>, Option<Stream>)> {
    let mut stream = None;
    let url = match sink {
        SinkKind::Null => return Ok((None, None)),
        SinkKind::Nats => stream.insert(servers.fresh_stream(false).await?).url.clone(),
        SinkKind::NatsSynced => stream.insert(servers.fresh_stream(true).await?).url.clone(),
        SinkKind::Kafka => servers.kafka_url(false)?,
        SinkKind::KafkaTransactional(_) => servers.kafka_url(true)?,
    };
    Ok((Some(semel_brokers::connect(&url, &servers.fresh_name()).await?), stream))
}

/// Events by lane, as a relay would hand them to a sink.
pub(crate) type Lanes = BTreeMap<Lane, Vec<Outgoing>>;

/// The first `count` events.
pub(crate) fn prepare(load: Load, count: u64) -> Result<Lanes> {
    let mut lanes = Lanes::new();
    let execution = Execution::mint();
    for number in 0..count {
        let numbered = load.event(number);
        let lane = Lane::of(&numbered.key);
        let events = lanes.entry(lane).or_default();
        let content_type = "application/octet-stream";
        let event = Event::bytes(TOPIC, numbered.key, "bench.happened", content_type, numbered.payload)?;
        events.push(Outgoing {
            id: EventId::derive(execution, u32::try_from(number)?),
            source: "semel".to_owned(),
            time_ms: 1_700_000_000_000,
            lane,
            sequence: events.len() as u64 + 1,
            incarnation: "1".to_owned(),
            event,
        });
    }
    Ok(lanes)
}

/// Publishes all of them, every lane for itself, until they are acknowledged or the time is over.
pub(crate) async fn drain(sink: AnySink, lanes: Lanes, ledger: &Arc<Ledger>, limit: Duration) -> Result<()> {
    let until = Instant::now() + limit;
    let sink = Arc::new(sink);
    let mut workers = JoinSet::new();
    for (lane, events) in lanes {
        let (sink, ledger) = (Arc::clone(&sink), Arc::clone(ledger));
        workers.spawn(async move {
            sink.take_lane(lane).await?;
            for batch in events.chunks(BATCH) {
                if Instant::now() >= until {
                    break;
                }
                ledger.send();
                for result in sink.publish(lane, batch, &Position(vec![0])).await {
                    result?;
                }
                ledger.acknowledge_all(batch.iter().map(|outgoing| outgoing.event.payload.as_ref()));
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = workers.join_next().await {
        if let Err(error) = ended? {
            bail!("the sink failed: {error:?}");
        }
    }
    ledger.close();
    sink.close().await;
    Ok(())
}
