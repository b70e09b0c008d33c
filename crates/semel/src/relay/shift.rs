//! The work of a relay while it has the same lanes.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::backoff::stopped;
use crate::observe;
use crate::outbox::{LaneState, Outbox};
use crate::relay::board::Board;
use crate::relay::housekeeping;
use crate::relay::keeper::Keeper;
use crate::relay::lane::{Message, Worker};
use crate::relay::reader::Reader;
use crate::relay::{Context, Lost};
use crate::sink::{Lane, Sink};

/// One worker per lane, fed by one reader, for as long as the lanes stay the same.
pub(super) struct Shift<S, K> {
    context: Arc<Context<S, K>>,
    board: Arc<Board>,
    feeds: Feeds,
    workers: JoinSet<()>,
    stopping: watch::Sender<bool>,
}

/// How to reach each lane's worker.
pub(super) type Feeds = BTreeMap<Lane, mpsc::UnboundedSender<Message>>;

/// Why a shift is over.
#[derive(Debug)]
pub(super) enum Ended {
    /// The relay was told to stop.
    Stopped,
    /// The membership is over.
    Lost(Lost),
    /// Others are short of lanes: give up what is beyond this share.
    Surplus { share: u16 },
    /// More lanes were taken.
    Took(Vec<LaneState>),
}

impl<S: Outbox, K: Sink> Shift<S, K> {
    /// Sets a worker on every lane.
    pub(super) fn begin(context: &Arc<Context<S, K>>, lanes: Vec<LaneState>) -> Shift<S, K> {
        observe::relay_lanes(lanes.len());
        let board = Arc::new(Board::new(&lanes));
        let (stopping, stopped) = watch::channel(false);
        let (mut feeds, mut workers) = (Feeds::new(), JoinSet::new());
        for state in lanes {
            let (feed, messages) = mpsc::unbounded_channel();
            feeds.insert(state.lane, feed);
            workers
                .spawn(Worker::new(Arc::clone(context), Arc::clone(&board), state, messages, stopped.clone()).work());
        }
        Shift { context: Arc::clone(context), board, feeds, workers, stopping }
    }

    /// Works until something ends the shift.
    pub(super) async fn work(&mut self, keeper: &mut Keeper<S, K>, stop: &mut watch::Receiver<bool>) -> Ended {
        let context = &self.context;
        let reader = Reader::new(context, &self.feeds, &self.board.states());
        let mut reading = pin!(reader.read());
        let mut storing = pin!(self.board.store(context));
        let mut housekeeping = pin!(housekeeping::keep(context, &self.feeds));
        let mut taking: Option<JoinHandle<Vec<LaneState>>> = None;
        loop {
            let taken = async {
                match &mut taking {
                    // Lanes that were taken by a task that is gone are this relay's, and nobody works on them.
                    Some(taking) => taking.await.unwrap_or_else(|_| {
                        context.lose(Lost::Failed);
                        Vec::new()
                    }),
                    None => std::future::pending().await,
                }
            };
            // No branch waits for the store: a future that is not polled may be in the middle of a write.
            tokio::select! {
                why = context.until_lost() => return Ended::Lost(why),
                () = stopped(stop) => return Ended::Stopped,
                () = &mut reading => return Ended::Lost(Lost::Failed),
                () = &mut storing => return Ended::Lost(context.until_lost().await),
                () = &mut housekeeping => return Ended::Lost(Lost::Failed),
                Some(_) = self.workers.join_next() => {
                    // A worker ends by itself only when the lane is lost.
                    context.lose(Lost::Failed);
                }
                taken = taken => {
                    taking = None;
                    if !taken.is_empty() {
                        return Ended::Took(taken);
                    }
                }
                share = keeper.share() => {
                    let has = u16::try_from(self.feeds.len()).unwrap_or(u16::MAX);
                    if taking.is_none() && has > share {
                        return Ended::Surplus { share };
                    }
                    if taking.is_none() && has < share {
                        taking = Some(keeper.take(share - has));
                    }
                }
            }
        }
    }

    /// Lets what is in flight end, within bounds, and returns where the lanes stand. `None` if that is not known,
    /// because a worker had to be cut off or the membership is over: then what is stored counts, and what was sent
    /// beyond it is sent again, as it was, by whoever has the lane next.
    pub(super) async fn end(mut self) -> Option<Vec<LaneState>> {
        let _ = self.stopping.send(true);
        self.feeds.clear();
        let until = Instant::now() + self.context.settings.patience;
        while let Ok(Some(_)) = tokio::time::timeout_at(until, self.workers.join_next()).await {}
        let cut_off = !self.workers.is_empty();
        self.workers.shutdown().await;
        if self.context.lost.borrow().is_none() {
            let _ = tokio::time::timeout_at(until, self.board.noted()).await;
        }
        (!cut_off && self.context.lost.borrow().is_none()).then(|| self.board.states())
    }
}
