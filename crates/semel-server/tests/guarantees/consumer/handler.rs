//! An effect that can be counted, and that fails when it is told to.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;

use semel::inbox::{Rule, Version};
use semel::runner::Failure;
use semel::{Handler, Message};
use serde::Deserialize;

use super::stage::{Applying, Effect};

/// Writes a row per message. Nothing in the table forbids two of one message.
#[derive(Debug)]
pub(crate) struct Effects {
    generation: u32,
    rule: Option<Rule>,
    cure: Option<PathBuf>,
    /// How often each message has failed in this process.
    failed: Mutex<HashMap<String, u32>>,
}

/// What a test's message says.
#[derive(Debug, Deserialize)]
struct Payload {
    n: u64,
    /// How often it fails before it applies. An attempt runs it twice: with others, and by itself.
    #[serde(default)]
    fail: u32,
    /// Whether it fails until there is a cure.
    #[serde(default)]
    poison: bool,
}

impl Effects {
    /// Effects of one generation. Where there is a `rule`, the number of a message is the version of its key. What is
    /// poisoned fails for as long as the file `cure` is missing.
    pub(crate) fn new(generation: u32, rule: Option<Rule>, cure: Option<PathBuf>) -> Effects {
        Effects { generation, rule, cure, failed: Mutex::default() }
    }

    fn fails(&self, message: &Message, payload: &Payload) -> Result<(), Failure> {
        if payload.poison && !self.cure.as_ref().is_some_and(|cure| cure.exists()) {
            return Err("it is poison".into());
        }
        let mut failed = self.failed.lock().unwrap();
        let times = failed.entry(message.id.clone()).or_default();
        if *times < payload.fail {
            *times += 1;
            return Err(format!("it fails {times} times of {}", payload.fail).into());
        }
        Ok(())
    }
}

/// The effect that a message asks for.
pub(crate) fn effect(message: &Message, generation: u32) -> Result<Effect, serde_json::Error> {
    let payload: Payload = serde_json::from_slice(&message.payload)?;
    Ok(Effect { generation, id: message.id.clone(), key: message.ordering_key.clone(), n: payload.n })
}

impl<S: Applying> Handler<S> for Effects {
    fn version(&self, message: &Message) -> Option<Version> {
        let rule = self.rule?;
        let payload: Payload = serde_json::from_slice(&message.payload).ok()?;
        Some(Version { entity: message.ordering_key.clone(), version: payload.n, rule })
    }

    async fn apply(&self, tx: &mut S::Tx, message: &Message) -> Result<(), Failure> {
        let payload: Payload = serde_json::from_slice(&message.payload).map_err(Failure::hopeless)?;
        let effect = effect(message, self.generation).map_err(Failure::hopeless)?;
        // It is written before it fails, so that a failure that were not rolled back would show.
        S::apply(tx, &effect).await?;
        self.fails(message, &payload)
    }
}
