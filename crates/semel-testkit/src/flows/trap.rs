//! Where a process dies, or stands still.

use std::sync::{Arc, Condvar, Mutex};

use tokio::sync::Notify;

use crate::poll::PATIENCE;

/// What becomes of whoever reaches the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It never goes on.
    Stays,
    /// Its task waits until it is thawed.
    Waits,
    /// Its thread stands still, with all that runs on it, until it is thawed.
    Freezes,
}

/// A place in the code of a flow at which its process is to die or to stand still. Clones are one trap.
#[derive(Debug, Clone, Default)]
pub(super) struct Trap(Arc<Place>);

#[derive(Debug, Default)]
struct Place {
    armed: Mutex<Option<(String, Manner)>>,
    sprung: Notify,
    thawed: Mutex<bool>,
    thaws: Condvar,
    goes_on: Notify,
}

impl Trap {
    /// The next one to reach this place stays there for good.
    pub(super) fn arm(&self, place: &str) {
        *self.0.armed.lock().unwrap() = Some((place.to_owned(), Manner::Stays));
    }

    /// The next one to reach this place waits there; all else of its process goes on.
    pub(super) fn hold(&self, place: &str) {
        *self.0.thawed.lock().unwrap() = false;
        *self.0.armed.lock().unwrap() = Some((place.to_owned(), Manner::Waits));
    }

    /// The next one to reach this place stands still with its whole thread, as a process that is suspended does: it
    /// renews no lease and answers nobody.
    pub(super) fn freeze(&self, place: &str) {
        *self.0.thawed.lock().unwrap() = false;
        *self.0.armed.lock().unwrap() = Some((place.to_owned(), Manner::Freezes));
    }

    /// Lets whoever waits or stands still go on.
    pub(super) fn thaw(&self) {
        *self.0.thawed.lock().unwrap() = true;
        self.0.thaws.notify_all();
        self.0.goes_on.notify_one();
    }

    /// Passes a place, unless it is the armed one.
    pub(super) fn pass(&self, place: &str) -> impl Future<Output = ()> + Send + use<> {
        let (trap, place) = (self.clone(), place.to_owned());
        async move {
            match trap.springs(&place) {
                None => {}
                Some(Manner::Freezes) => trap.stand_still(),
                Some(Manner::Waits) => {
                    trap.0.sprung.notify_one();
                    while !trap.is_thawed() {
                        trap.0.goes_on.notified().await;
                    }
                }
                Some(Manner::Stays) => {
                    trap.0.sprung.notify_one();
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    fn springs(&self, place: &str) -> Option<Manner> {
        let armed = self.0.armed.lock().unwrap().take_if(|(armed, _)| armed == place);
        armed.map(|(_, manner)| manner)
    }

    fn is_thawed(&self) -> bool {
        *self.0.thawed.lock().unwrap()
    }

    fn stand_still(&self) {
        self.0.sprung.notify_one();
        let mut thawed = self.0.thawed.lock().unwrap();
        while !*thawed {
            thawed = self.0.thaws.wait(thawed).unwrap();
        }
    }

    /// Waits until somebody has reached the armed place. Panics if nobody does: a crash test whose place is never
    /// reached proves nothing.
    pub(super) async fn springs_at(&self, place: &str) {
        let sprung = tokio::time::timeout(PATIENCE, self.0.sprung.notified()).await;
        assert!(sprung.is_ok(), "nobody came to {place:?} within {PATIENCE:?}");
    }
}
