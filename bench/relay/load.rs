//! The events that everybody publishes: numbered, so that each can be told wherever it turns up.

use bytes::{BufMut, Bytes, BytesMut};

/// Where all of them go.
pub(crate) const TOPIC: &str = "bench";

/// What the events look like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) payload_bytes: usize,
    pub(crate) keys: u32,
}

/// One event.
#[derive(Debug, Clone)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) key: String,
    pub(crate) payload: Bytes,
}

impl Load {
    /// The event with this number. The number stands at the payload's start.
    pub(crate) fn event(&self, number: u64) -> Numbered {
        let mut payload = BytesMut::with_capacity(self.payload_bytes + 8);
        payload.put_u64(number);
        let mut state = mix(number);
        while payload.len() < self.payload_bytes {
            state = mix(state);
            payload.put_u64(state);
        }
        payload.truncate(self.payload_bytes.max(8));
        Numbered { number, key: format!("account-{:06}", self.key(number)), payload: payload.freeze() }
    }

    /// The place of the event's ordering key among all keys.
    pub(crate) fn key(&self, number: u64) -> u32 {
        u32::try_from(mix(number) % u64::from(self.keys.max(1))).unwrap_or(0)
    }

    /// The numbers below `count` whose keys belong to one of several writers, in order. A key has one writer, so the
    /// order of its numbers is the order in which they are committed.
    pub(crate) fn share(self, count: u64, writer: u32, writers: u32) -> impl Iterator<Item = u64> {
        (0..count).filter(move |number| self.key(*number) % writers == writer)
    }
}

/// The number of the event that this is the payload of.
pub(crate) fn number(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// The finaliser of SplitMix64: spreads numbers without a pattern, the same in every run.
fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
