//! A contestant at work on a file.

use anyhow::Result;
use semel_sqlite::Options;

use crate::by_hand::ByHand;
use crate::case::Contestant;
use crate::charge::Charge;
use crate::file::File;
use crate::ours::Ours;

/// Somebody who runs charges.
#[derive(Debug)]
pub(crate) enum Runner {
    ByHand(ByHand),
    Awaited(Ours),
    Deferred(Ours),
}

impl Runner {
    pub(crate) async fn open(contestant: Contestant, file: &File) -> Result<Runner> {
        let is_protected = contestant.is_protected();
        Ok(match contestant {
            Contestant::Bare | Contestant::ByHand => Runner::ByHand(ByHand::locked(file.connect()?, is_protected)),
            Contestant::ByHandOnThread => Runner::ByHand(ByHand::on_thread(file.connect()?, is_protected)?),
            Contestant::OnceAlone => {
                let options = Options { group_limit: 1, ..Options::default() };
                Runner::Awaited(Ours::open(file, options).await?)
            }
            Contestant::Once => Runner::Awaited(Ours::open(file, Options::default()).await?),
            Contestant::OnceDeferred => Runner::Deferred(Ours::open(file, Options::default()).await?),
        })
    }

    /// Runs the charge with this number, and returns when it is durable.
    pub(crate) async fn charge(&self, number: u64) -> Result<()> {
        let charge = Charge::numbered(number);
        match self {
            Runner::ByHand(by_hand) => by_hand.charge(charge).await,
            Runner::Awaited(ours) => ours.awaited(charge).await,
            Runner::Deferred(ours) => ours.deferred(charge).await,
        }
    }

    /// How many commits it has made so far.
    pub(crate) fn commits(&self) -> u64 {
        match self {
            Runner::ByHand(by_hand) => by_hand.commits(),
            Runner::Awaited(ours) | Runner::Deferred(ours) => ours.commits(),
        }
    }
}
