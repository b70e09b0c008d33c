//! A member of a consumer group: what is asked of Redis, and when.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{FromRedisValue, Pipeline, RedisError, Value, cmd};
use semel::source::Received;
use tokio::time::Instant;

use super::entry::{self, Entry};
use super::source::Receipt;
use super::{Server, described};
use crate::Error;

/// Under this name are entries that were given back: nobody reads under it, and anybody takes from it.
const GIVEN_BACK: &str = "given-back";

/// For how long an entry that was given back counts as idle: longer than anybody's `claim_after`.
const GIVEN_BACK_IDLE_MS: u64 = 48 * 3600 * 1000;

/// After how long an empty member of this group that nobody heard of is removed.
const FORGOTTEN_AFTER_MS: u64 = 3600 * 1000;

/// The most entries, or members, that one order is about.
const CHUNK: usize = 1000;

/// Gives back what a member holds and removes it if that is all. In one step, because removing a member with entries
/// would lose these.
const LEAVE: &str = "\
local held = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 10000, ARGV[2])
for _, entry in ipairs(held) do
  redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, entry[1], 'IDLE', ARGV[4], 'JUSTID')
end
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
return #held";

/// Removes a member that holds nothing.
const REMOVE_EMPTY: &str = "\
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
  return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
return 0";

/// One reader of a group.
pub(super) struct Member {
    pub(super) server: Server,
    pub(super) streams: Vec<String>,
    group: String,
    /// No other reader has it, also after a restart: what this one holds is told from what others hold.
    name: String,
    claim_after: Duration,
}

/// How far a member has come in looking for what others left behind, and the connection that it reads by.
pub(super) struct Reading {
    connection: Option<MultiplexedConnection>,
    look_at: Instant,
    cursors: Vec<String>,
}

impl Reading {
    pub(super) fn new(connection: Option<MultiplexedConnection>, streams: usize) -> Reading {
        Reading { connection, look_at: Instant::now(), cursors: vec!["0-0".to_owned(); streams] }
    }
}

impl Member {
    pub(super) fn new(server: Server, streams: Vec<String>, group: String, claim_after: Duration) -> Member {
        let name = format!("semel-{}-{:016x}", std::process::id(), RandomState::new().hash_one("member"));
        Member { server, streams, group, name, claim_after }
    }

    /// How often it looks for entries that others left behind or gave back, and so the longest that a read waits.
    fn look_every(&self) -> Duration {
        (self.claim_after / 10).clamp(Duration::from_millis(50), Duration::from_secs(1))
    }

    /// Opens a connection for reading and joins the group, which begins where the stream begins if it is new.
    pub(super) async fn join(&self) -> Result<MultiplexedConnection, Error> {
        let mut connection = self.server.open_for(self.server.timeout + self.look_every()).await?;
        for stream in &self.streams {
            let mut create = cmd("XGROUP");
            create.arg("CREATE").arg(stream).arg(&self.group).arg("0").arg("MKSTREAM");
            match create.exec_async(&mut connection).await {
                Err(error) if error.code() == Some("BUSYGROUP") => {}
                Err(error) if error.code() == Some("WRONGTYPE") => {
                    let address = &self.server.address;
                    return Err(Error::Refused(format!("{stream:?} is no stream at Redis at {address}")));
                }
                created => created.map_err(|error| self.server.failed(&error))?,
            }
            if let Err(error) = self.tidy(&mut connection, stream).await {
                tracing::debug!(stream, error = described(&error), "members that ended were not looked for");
            }
        }
        Ok(connection)
    }

    /// Removes members that crashed long ago and whose entries others have taken over.
    async fn tidy(&self, connection: &mut MultiplexedConnection, stream: &str) -> Result<(), RedisError> {
        let members: Vec<HashMap<String, Value>> =
            cmd("XINFO").arg("CONSUMERS").arg(stream).arg(&self.group).query_async(connection).await?;
        let mut removals = Pipeline::new();
        for member in members {
            let (Some(name), Some(Value::Int(0)), Some(Value::Int(idle))) =
                (member.get("name"), member.get("pending"), member.get("idle"))
            else {
                continue;
            };
            let name = String::from_redis_value_ref(name)?;
            if name.starts_with("semel-") && idle.unsigned_abs() > FORGOTTEN_AFTER_MS && removals.len() < CHUNK {
                removals.cmd("EVAL").arg(REMOVE_EMPTY).arg(1).arg(stream).arg(&self.group).arg(name);
            }
        }
        if removals.is_empty() { Ok(()) } else { removals.exec_async(connection).await }
    }

    /// Waits for entries for as long as a read lasts; none may come. What others left behind comes before what is new.
    pub(super) async fn fetch(&self, reading: &mut Reading, most: usize) -> Result<Vec<Received<Receipt>>, Error> {
        let mut connection = match &reading.connection {
            Some(connection) => connection.clone(),
            None => reading.connection.insert(self.join().await?).clone(),
        };
        let failed = |error: RedisError| self.server.failed(&error);
        let most = most.clamp(1, CHUNK);
        if Instant::now() >= reading.look_at {
            let found = self.claim(&mut connection, &mut reading.cursors, most).await.map_err(failed)?;
            if reading.cursors.iter().all(|cursor| cursor == "0-0") {
                reading.look_at = Instant::now() + self.look_every();
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
        self.read(&mut connection, most).await.map_err(failed)
    }

    /// Takes over entries that nobody has worked on for `claim_after`, or that were given back.
    async fn claim(
        &self,
        connection: &mut MultiplexedConnection,
        cursors: &mut [String],
        most: usize,
    ) -> Result<Vec<Received<Receipt>>, RedisError> {
        let mut found = Vec::new();
        for (place, (stream, cursor)) in self.streams.iter().zip(cursors).enumerate() {
            loop {
                let mut claim = cmd("XAUTOCLAIM");
                claim.arg(stream).arg(&self.group).arg(&self.name).arg(milliseconds(self.claim_after));
                claim.arg(cursor.as_str()).arg("COUNT").arg(most);
                let reply: Vec<Value> = claim.query_async(connection).await?;
                let mut reply = reply.into_iter();
                *cursor = String::from_redis_value(reply.next().unwrap_or(Value::Nil))?;
                let entries: Vec<Value> = Vec::from_redis_value(reply.next().unwrap_or(Value::Nil))?;
                let before = found.len();
                // One that was trimmed meanwhile is told as nothing by older servers.
                for entry in entries.into_iter().filter(|entry| !matches!(entry, Value::Nil)) {
                    found.push(self.received(place, Entry::from_redis_value(entry)?));
                }
                if cursor == "0-0" || found.len() > before {
                    break;
                }
            }
        }
        Ok(found)
    }

    async fn read(
        &self,
        connection: &mut MultiplexedConnection,
        most: usize,
    ) -> Result<Vec<Received<Receipt>>, RedisError> {
        type Reply = Vec<(String, Vec<Entry>)>;
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.group).arg(&self.name);
        // The count is for each stream.
        read.arg("COUNT").arg((most / self.streams.len()).max(1));
        read.arg("BLOCK").arg(milliseconds(self.look_every())).arg("STREAMS").arg(&self.streams);
        for _ in &self.streams {
            read.arg(">");
        }
        let reply: Option<Reply> = read.query_async(connection).await?;
        let mut received = Vec::new();
        for (stream, entries) in reply.unwrap_or_default() {
            let Some(place) = self.streams.iter().position(|known| *known == stream) else { continue };
            received.extend(entries.into_iter().map(|entry| self.received(place, entry)));
        }
        Ok(received)
    }

    fn received(&self, stream: usize, (entry, fields): Entry) -> Received<Receipt> {
        entry::received(&self.streams[stream], Receipt { stream, entry }, fields)
    }

    /// Acknowledges: the group is done with these entries, whoever holds them.
    pub(super) fn acknowledge(&self, receipts: &[&Receipt]) -> Pipeline {
        self.for_each_chunk(receipts, |pipeline, stream, entries| {
            pipeline.cmd("XACK").arg(stream).arg(&self.group).arg(entries);
        })
    }

    /// Lets anybody take these entries at once.
    pub(super) fn give_back(&self, receipts: &[&Receipt]) -> Pipeline {
        self.for_each_chunk(receipts, |pipeline, stream, entries| {
            let claim = pipeline.cmd("XCLAIM").arg(stream).arg(&self.group).arg(GIVEN_BACK).arg(0).arg(entries);
            claim.arg("IDLE").arg(GIVEN_BACK_IDLE_MS).arg("JUSTID");
        })
    }

    /// Counts the time that these entries are idle from now on. One that was acknowledged meanwhile stays so.
    pub(super) fn prolong(&self, receipts: &[&Receipt]) -> Pipeline {
        self.for_each_chunk(receipts, |pipeline, stream, entries| {
            let claim = pipeline.cmd("XCLAIM").arg(stream).arg(&self.group).arg(&self.name).arg(0).arg(entries);
            claim.arg("JUSTID");
        })
    }

    /// Leaves the group, and lets anybody take at once what this member still holds.
    pub(super) fn leave(&self) -> Pipeline {
        let mut pipeline = Pipeline::new();
        for stream in &self.streams {
            let leave = pipeline.cmd("EVAL").arg(LEAVE).arg(1).arg(stream);
            leave.arg(&self.group).arg(&self.name).arg(GIVEN_BACK).arg(GIVEN_BACK_IDLE_MS);
        }
        pipeline
    }

    fn for_each_chunk(&self, receipts: &[&Receipt], mut order: impl FnMut(&mut Pipeline, &str, &[&str])) -> Pipeline {
        let mut pipeline = Pipeline::new();
        for (place, stream) in self.streams.iter().enumerate() {
            let entries = receipts.iter().filter(|receipt| receipt.stream == place);
            let entries: Vec<&str> = entries.map(|receipt| receipt.entry.as_str()).collect();
            entries.chunks(CHUNK).for_each(|chunk| order(&mut pipeline, stream, chunk));
        }
        pipeline
    }
}

/// At least one: zero would mean for ever.
fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1)
}
